"""`reodsl doctor`: what this machine can run, which specs fit on it, and what to install for the others."""

from __future__ import annotations

import platform
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from reodsl.cli.options import store_option
from reodsl.cli.output import print_json, print_text
from reodsl.cli.specs import spec_files
from reodsl.diagnostics import Diagnostic, Problem, error, group
from reodsl.diagnostics.render import to_json
from reodsl.graph.task import Graph, Task
from reodsl.language import compile_file
from reodsl.plan.registry import Machine, MachinePart, Registry, load_registry
from reodsl.plan.verdict import Keys
from reodsl.price import lower_placed, price, sizes_at_hand
from reodsl.price.machine import Measures, measure
from reodsl.price.memory import process_bytes
from reodsl.price.show import memory, refusals, size
from reodsl.price.value import Prices, add_prices
from reodsl.store.store import Store, find_store

_MOST_LISTED = 3
"""Largest number of specs of a folder that are listed one by one if all of them fit."""
_SPECS = Path("specs")


@click.command(
    short_help="Say what is missing here, and which specs can run.",
    epilog="""\b
Examples:
  reodsl doctor                                  this machine, and every spec under specs/
  reodsl doctor specs/qwen3_4b_reo_exp.reo       one spec: exits 1 if it cannot run here
  reodsl doctor specs/paper --json               the specs of a folder, as JSON
  reodsl doctor specs/paper --address 10.0.0.7:6379   whether the Ray cluster there has room for them
  reodsl doctor --node --address auto --store /shared/reo   drivers, compilers, disks and network of its nodes
""",
)
@click.argument("specs", nargs=-1, type=click.Path(path_type=Path))
@store_option
@click.option(
    "--address", metavar="HOST:PORT", help="Check the Ray cluster at this address (`auto`: this node's)."
)
@click.option(
    "--node", is_flag=True, help="Try what a run needs of this machine, or of each node at --address."
)
@click.option("--json", "as_json", is_flag=True, help="Print everything as JSON.")
def doctor_command(
    specs: tuple[Path, ...], store_dir: Path | None, address: str | None, node: bool, as_json: bool
) -> None:
    """Check what this machine has and lacks, and which SPECS (files or folders) can run here.

    Nothing is started, fetched or changed. Exits 1 if something that every run needs is missing, or a named spec
    cannot run here. Specs found under specs/ do not count.

    With --node, Ray starts, compilers and processes of a group are tried, and files are written beside the store and
    removed, for up to two minutes. Exits 1 when a node lacks anything.

    Args:
        specs: Spec files, and folders of spec files; empty for all specs under `specs/`.
        store_dir: Folder of the store, or None to look for it.
        address: Address of a Ray cluster to check instead of this machine, or None.
        node: Whether to try what a run needs on each node, instead of checking specs.
        as_json: Whether to print JSON instead of text.
    """
    if node:
        _probe_nodes(store_dir or Path(".reodsl"), address, as_json)
        return
    files = spec_files(map(str, specs)) if specs else sorted(_SPECS.rglob("*.reo"))
    measures = measure(store_dir or (files[0].parent if files else Path()))
    registry, parts = _survey_parts()
    cores = f"{measures.cores} core{'s' if measures.cores > 1 else ''}"
    all_parts = (
        MachinePart("python", "ok", platform.python_version()),
        MachinePart("processor", "ok", f"{cores}, {platform.machine()}"),
        MachinePart("memory", "ok", memory(measures.memory)),
        MachinePart("disk", "ok", f"{size(measures.disk)} free"),
        *parts,
    )
    fits = [fit(path, registry, measures, Machine(address=address), store_dir) for path in files]
    ready = all(part.state == "ok" for part in all_parts if part.needed)
    if as_json:
        specs_json = [{"path": fit.path, "fits": fit.fits, "lacks": to_json(fit.lacks)} for fit in fits]
        print_json({"ready": ready, "parts": list(map(_part_json, all_parts)), "specs": specs_json})
    else:
        print_text(_format_report(all_parts, fits, bool(specs)))
    if not ready or (specs and not all(result.fits for result in fits)):
        raise SystemExit(1)


def _probe_nodes(store: Path, address: str | None, as_json: bool) -> None:
    """Print what each node has and lacks, and exit with code 1 if any node lacks anything.

    Args:
        store: Folder of the store, which the nodes must share.
        address: Address of a Ray cluster; None for this machine alone.
        as_json: Whether to print JSON instead of text.

    Raises:
        Problem: E0121 or E0962 if the nodes cannot be reached.
    """
    probe = load_registry().probe
    nodes = probe(store, address) if probe is not None else {}
    if as_json:
        print_json({"nodes": [{"name": node, "parts": list(map(_part_json, nodes[node]))} for node in nodes]})
    else:
        width = max((len(part.name) for parts in nodes.values() for part in parts), default=0)
        for name, parts in nodes.items():
            print_text(name)
            for part in parts:
                help = f": {part.help}" if part.help is not None else ""
                print_text(f"  {_format_mark(part.state == 'ok')} {part.name:<{width}}  {part.says}{help}")
    if any(part.state != "ok" for parts in nodes.values() for part in parts):
        raise SystemExit(1)


def _survey_parts() -> tuple[Registry | None, Sequence[MachinePart]]:
    """Return (the registry of runners, the parts of this machine that the runners find, such as torch and Ray).

    If no registry can be loaded, the registry is None, and the only part is `runners` with the state `missing` and the
    reason.
    """
    try:
        registry = load_registry()
    except Problem as caught:
        diagnostic = caught.diagnostics[0]
        return None, (MachinePart("runners", "missing", diagnostic.message, diagnostic.help),)
    return registry, registry.survey()


def _format_report(parts: Sequence[MachinePart], fits: Sequence[Fit], is_detailed: bool) -> str:
    """Return the report of the command as text: parts, specs and remedies.

    Args:
        parts: Parts of this machine.
        fits: Specs with what they lack.
        is_detailed: Whether to list every reason of every spec, instead of an overview.
    """
    width = max(len(part.name) for part in parts)
    lines = ["This machine"]
    lines += [f"  {_format_mark(part.state == 'ok')} {part.name:<{width}}  {part.says}" for part in parts]
    if fits:
        lines += ["Specs", *(f"  {line}" for line in (_list_specs(fits) if is_detailed else _overview(fits)))]
    remedies, part_names = _remedies(parts, fits), {part.name for part in parts}
    if remedies:
        lines += [
            "To run the others",
            *(f"  {remedy}{_format_users(users, part_names)}" for remedy, users in remedies.items()),
        ]
    return "\n".join(lines)


def _format_mark(ok: bool) -> str:
    return "+" if ok else "-"


def _list_specs(fits: Sequence[Fit]) -> list[str]:
    """Return lines with every spec, each followed by all reasons why it cannot run here or would run differently."""
    return [
        line
        for fit in fits
        for line in (
            f"{_format_mark(fit.fits)} {fit.path}{'  fits' if fit.fits else ''}",
            *(f"    {reason}" for reason in _list_reasons(fit)),
        )
    ]


def _overview(fits: Sequence[Fit]) -> list[str]:
    """Return lines with the specs, sorted into their folders: a line for each spec, with its first reason if it has any.

    If a folder has more than `_MOST_LISTED` specs and none of them lacks anything, it has a single line.
    """
    lines = []
    for folder, members in group((Path(fit.path).parent, fit) for fit in fits).items():
        if len(members) > _MOST_LISTED and not any(fit.lacks for fit in members):
            lines.append(f"+ {folder}: all {len(members)} fit")
            continue
        width = max(len(fit.path) for fit in members)
        for fit in members:
            reasons = _list_reasons(fit)
            suffix = f"; and {len(reasons) - 1} more" if len(reasons) > 1 else ""
            text = f"{reasons[0]}{suffix}" if reasons else "fits"
            lines.append(f"{_format_mark(fit.fits)} {fit.path:<{width}}  {text}")
    return lines


def _list_reasons(fit: Fit) -> list[str]:
    """Return what a spec lacks or would do differently here, as sentences without repetition."""
    return list(dict.fromkeys(map(_format_reason, fit.lacks)))


def _format_reason(lack: Diagnostic) -> str:
    """Return the message of a diagnostic as the reason why a spec does not fit.

    The diagnostic's place comes first if the message alone does not name the file.
    """
    # The message of E0803 speaks of a folder that only its place names.
    needs_place = lack.where is not None and (lack.labels or lack.code == "E0803")
    return f"{lack.where}: {lack.message}" if needs_place else lack.message


def _remedies(parts: Sequence[MachinePart], fits: Sequence[Fit]) -> dict[str, list[str]]:
    """Return for each remedy the names of the machine's parts and the paths of the specs that need it.

    A part is listed if it is not `ok` and has advice, and a spec for everything that it lacks. If a diagnostic has no
    advice, the remedy is the command that explains the diagnostic.
    """
    of_parts = ((part.help, part.name) for part in parts if part.help is not None and part.state != "ok")
    of_specs = ((lack.help or f"reodsl explain {lack.code}", fit.path) for fit in fits for lack in fit.lacks)
    return group(dict.fromkeys((*of_parts, *of_specs)))


def _format_users(users: Sequence[str], part_names: Collection[str]) -> str:
    """Return which parts and specs need a remedy as text, such as `  (for sglang, 3 specs)`.

    Args:
        users: Names of parts and paths of specs.
        part_names: Names of all parts of this machine, by which parts and specs are told apart.
    """
    specs = [user for user in users if user not in part_names]
    purposes = [user for user in users if user in part_names]
    if specs:
        purposes.append(specs[0] if len(specs) == 1 else f"{len(specs)} specs")
    return f"  (for {', '.join(purposes)})"


def _part_json(part: MachinePart) -> dict[str, Any]:
    return {name: getattr(part, name) for name in ("name", "state", "says", "help", "needed")}


@dataclass(frozen=True, slots=True)
class Fit:
    """A spec with what it lacks on this machine; it fits if no diagnostic in `lacks` is an error."""

    path: str
    """Path of the spec."""
    lacks: tuple[Diagnostic, ...]
    """Errors and warnings on what is missing or different here."""

    @property
    def fits(self) -> bool:
        """Return whether the spec can run here."""
        return all(lack.severity != "error" for lack in self.lacks)


def fit(
    path: Path, registry: Registry | None, measures: Measures, machine: Machine, store_dir: Path | None = None
) -> Fit:
    """Return what a spec lacks to run on `machine`; no task is started.

    It may lack a correct text, packages, devices, weights, data, memory, disk, or a store. Data whose questions are in
    the store is not checked again.

    Args:
        path: spec file.
        registry: the runners, which check packages, devices, weights and data; None to leave these checks out.
        measures: memory and disk of this machine, in bytes.
        machine: machine or Ray cluster on which the spec would run.
        store_dir: the store; None for the store beside the spec.
    """
    compiled = compile_file(path)
    mistakes = tuple(finding for finding in compiled.diagnostics if finding.severity == "error")
    if compiled.spec is None or mistakes:
        return Fit(str(path), mistakes)
    spec = compiled.spec
    folder = Path(spec.folder) if spec.folder else path.resolve().parent
    graph = lower_placed(spec)
    prices = price(graph, spec, None, sizes_at_hand(spec, folder))
    store = Store(store_dir or find_store(path.resolve().parent))
    try:
        store.recognise()
        tasks = _without_questions(graph, store, folder)
    except Problem as caught:
        return Fit(str(path), caught.diagnostics)
    lacks = registry.check(tasks, spec, folder, machine) if registry is not None else ()
    return Fit(
        str(path),
        (*lacks, *refusals(prices, (task.id for task in graph.tasks), spec), *_check_space(prices, measures)),
    )


def _without_questions(graph: Graph, store: Store, folder: Path) -> tuple[Task, ...]:
    """Return the tasks of a graph, except `data` tasks whose questions are in the store and up to date.

    Args:
        graph: Tasks of a spec.
        store: The store.
        folder: The spec's folder, where relative paths of data start.
    """
    if not store.root.is_dir():
        return graph.tasks
    keys = Keys(store, folder)
    return tuple(
        task for task in graph.tasks if task.kind != "data" or store.get(keys.key(task, {})[0]) is None
    )


def _check_space(prices: Prices, measures: Measures) -> tuple[Diagnostic, ...]:
    """Return E0973 if this machine has too little memory for a task, and if the results need more disk than is free.

    Memory is compared for the task that needs most, and only if tasks run on this machine's processors: prices are then
    in seconds (`prices.unit`), and in GPU hours otherwise.
    """
    lacks = []
    if prices.unit == "seconds":
        task, peak = max(
            ((name, process_bytes(value.memory)) for name, value in prices.tasks.items()),
            key=lambda item: item[1],
            default=("", 0.0),
        )
        if peak > measures.memory:
            lacks.append(
                error(
                    "E0973",
                    f"{task} needs about {memory(peak)} of memory, and this machine has {memory(measures.memory)}",
                    help="give it fewer or shorter responses (`batch`, `max_tokens`), a smaller model, or a `cluster`",
                )
            )
    disk = add_prices(prices.tasks.values()).disk
    if disk > measures.disk:
        lacks.append(
            error(
                "E0973",
                f"the results take about {size(disk)}, and {size(measures.disk)} are free",
                help="keep results on a larger disk with --store DIR, or free space: reodsl gc",
            )
        )
    return tuple(lacks)
