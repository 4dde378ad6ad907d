"""`reodsl doctor`: what this machine can run, which specs fit, and what to install for the rest."""

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
from reodsl.diagnostics import Diagnostic, Problem, error
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
_SPECS = Path("specs")


@click.command(
    short_help="Say what is missing here, and which specs can run.",
    epilog="""\b
Examples:
  reodsl doctor                                  this machine, and every spec under specs/
  reodsl doctor specs/qwen3_4b_reo_exp.reo       one spec: exits 1 where it cannot run here
  reodsl doctor specs/paper --json               the specs of a folder, as JSON
  reodsl doctor specs/paper --address 10.0.0.7:6379   whether the Ray cluster there has room for them
  reodsl doctor --node --address auto --store /shared/reo   drivers, compilers, disks and network of its nodes
""",
)
@click.argument("specs", nargs=-1, type=click.Path(path_type=Path))
@store_option
@click.option(
    "--address",
    metavar="HOST:PORT",
    help="Check the Ray cluster at this address (`auto`: this node's).",
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
        _probe(store_dir or Path(".reodsl"), address, as_json)
        return
    files = spec_files(map(str, specs)) if specs else sorted(_SPECS.rglob("*.reo"))
    measures = measure(store_dir or (files[0].parent if files else Path()))
    registry, parts = _survey()
    everything = (*_list_core_parts(measures), *parts)
    fits = [fit(path, registry, measures, Machine(address=address), store_dir) for path in files]
    ready = all(part.state == "ok" for part in everything if part.needed)
    if as_json:
        print_json(_json(everything, fits, ready))
    else:
        print_text(_text(everything, fits, bool(specs)))
    if not ready or (specs and not all(result.fits for result in fits)):
        raise SystemExit(1)


def _probe(store: Path, address: str | None, as_json: bool) -> None:
    """Print what nodes have and lack, and exit with 1 if they lack anything.

    Raises:
        Problem: E0121 or E0962 if the nodes cannot be reached.
    """
    look = load_registry().probe
    nodes = look(store, address) if look is not None else {}
    if as_json:
        print_json(
            {"nodes": [{"name": name, "parts": list(map(_describe, parts))} for name, parts in nodes.items()]}
        )
    else:
        width = max((len(part.name) for parts in nodes.values() for part in parts), default=0)
        for name, parts in nodes.items():
            print_text(name)
            for part in parts:
                help = f": {part.help}" if part.help is not None else ""
                print_text(f"  {_mark(part.state == 'ok')} {part.name:<{width}}  {part.says}{help}")
    if any(part.state != "ok" for parts in nodes.values() for part in parts):
        raise SystemExit(1)


def _survey() -> tuple[Registry | None, Sequence[MachinePart]]:
    """Return the runners and the parts they find, or the reason why they cannot be loaded."""
    try:
        registry = load_registry()
    except Problem as caught:
        diagnostic = caught.diagnostics[0]
        return None, (MachinePart("runners", "missing", diagnostic.message, diagnostic.help),)
    return registry, registry.survey()


def _list_core_parts(measures: Measures) -> tuple[MachinePart, ...]:
    """Return the parts that need no runner."""
    cores = f"{measures.cores} core{'s' if measures.cores > 1 else ''}"
    return (
        MachinePart("python", "ok", platform.python_version()),
        MachinePart("processor", "ok", f"{cores}, {platform.machine()}"),
        MachinePart("memory", "ok", memory(measures.memory)),
        MachinePart("disk", "ok", f"{size(measures.disk)} free"),
    )


def _text(parts: Sequence[MachinePart], fits: Sequence[Fit], named: bool) -> str:
    """Return the parts, the specs and the remedies as lines."""
    width = max(len(part.name) for part in parts)
    lines = ["This machine"]
    lines += [f"  {_mark(part.state == 'ok')} {part.name:<{width}}  {part.says}" for part in parts]
    if fits:
        lines += ["Specs", *(f"  {line}" for line in (_list_specs(fits) if named else _overview(fits)))]
    remedies, names = _remedies(parts, fits), {part.name for part in parts}
    if remedies:
        lines += [
            "To run the rest",
            *(f"  {remedy}{_uses(users, names)}" for remedy, users in remedies.items()),
        ]
    return "\n".join(lines)


def _mark(ok: bool) -> str:
    return "+" if ok else "-"


def _list_specs(fits: Sequence[Fit]) -> list[str]:
    """Return every spec with every reason why it cannot run here, or differs from what it says."""
    lines = []
    for fit in fits:
        lines.append(f"{_mark(fit.fits)} {fit.path}{'  fits' if fit.fits else ''}")
        lines += [f"    {reason}" for reason in _reasons(fit)]
    return lines


def _overview(fits: Sequence[Fit]) -> list[str]:
    """Return a line for each spec that does not fit, with its first reason, and a line for each folder of fitting specs."""
    folders: dict[Path, list[Fit]] = {}
    for fit in fits:
        folders.setdefault(Path(fit.path).parent, []).append(fit)
    lines = []
    for folder, members in folders.items():
        if len(members) > _MOST_LISTED and not any(fit.lacks for fit in members):
            lines.append(f"+ {folder}: all {len(members)} fit")
            continue
        width = max(len(fit.path) for fit in members)
        for fit in members:
            reasons = _reasons(fit)
            more = f"; and {len(reasons) - 1} more" if len(reasons) > 1 else ""
            words = f"{reasons[0]}{more}" if reasons else "fits"
            lines.append(f"{_mark(fit.fits)} {fit.path:<{width}}  {words}")
    return lines


def _reasons(fit: Fit) -> list[str]:
    """Return the reasons why a spec does not fit, each once."""
    return list(dict.fromkeys(map(_reason, fit.lacks)))


def _reason(lack: Diagnostic) -> str:
    """Return why a part is lacking, with the file at fault if a line of the spec names it."""
    path = lack.code == "E0803"  # Of a folder, which it speaks of as the place it is shown at.
    return (
        f"{lack.where}: {lack.message}" if lack.where is not None and (lack.labels or path) else lack.message
    )


def _remedies(parts: Sequence[MachinePart], fits: Sequence[Fit]) -> dict[str, list[str]]:
    """Map each remedy to its purposes: the name of a part, or specs."""
    remedies: dict[str, list[str]] = {}
    for part in parts:
        if part.help is not None and part.state != "ok":
            remedies.setdefault(part.help, []).append(part.name)
    for fit in fits:
        for lack in fit.lacks:
            users = remedies.setdefault(lack.help or f"reodsl explain {lack.code}", [])
            if fit.path not in users:
                users.append(fit.path)
    return remedies


def _uses(users: Sequence[str], parts: Collection[str]) -> str:
    """Return what a remedy is for: parts by name, and specs by number or, if single, by name."""
    specs = [user for user in users if user not in parts]
    words = [user for user in users if user in parts]
    if specs:
        words.append(specs[0] if len(specs) == 1 else f"{len(specs)} specs")
    return f"  (for {', '.join(words)})"


def _json(parts: Sequence[MachinePart], fits: Sequence[Fit], ready: bool) -> dict[str, Any]:
    """Return parts and specs as JSON data."""
    return {
        "ready": ready,
        "parts": list(map(_describe, parts)),
        "specs": [{"path": fit.path, "fits": fit.fits, "lacks": to_json(fit.lacks)} for fit in fits],
    }


def _describe(part: MachinePart) -> dict[str, Any]:
    return {name: getattr(part, name) for name in ("name", "state", "says", "help", "needed")}


@dataclass(frozen=True, slots=True)
class Fit:
    """A spec with the diagnostics of what it lacks here; it fits without an error among them."""

    path: str
    lacks: tuple[Diagnostic, ...]

    @property
    def fits(self) -> bool:
        """Return whether the spec can run here."""
        return all(lack.severity != "error" for lack in self.lacks)


def fit(
    path: Path, registry: Registry | None, measures: Measures, machine: Machine, store_dir: Path | None = None
) -> Fit:
    """Return what a spec lacks on `machine`, and start nothing.

    It may lack a correct text, packages, devices, weights, data, memory, disk, or a store. Questions that its store
    already has are not looked up again.

    Args:
        path: spec file.
        registry: the runners, or None if they cannot be loaded; their needs are then unknown.
        measures: memory and disk of this machine, in bytes.
        machine: machine or Ray cluster that is asked.
        store_dir: the store; None for the one beside the spec.
    """
    compiled = compile_file(path)
    wrong = tuple(found for found in compiled.diagnostics if found.severity == "error")
    if compiled.spec is None or wrong:
        return Fit(str(path), wrong)
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
    missing = registry.check(tasks, spec, folder, machine) if registry is not None else ()
    return Fit(
        str(path),
        (*missing, *refusals(prices, (task.id for task in graph.tasks), spec), *_space(prices, measures)),
    )


def _without_questions(graph: Graph, store: Store, folder: Path) -> tuple[Task, ...]:
    """Return the tasks, except those whose questions are in the store and still up to date."""
    if not store.root.is_dir():
        return graph.tasks
    keys = Keys(store, folder)
    return tuple(
        task for task in graph.tasks if task.kind != "data" or store.get(keys.key(task, {})[0]) is None
    )


def _space(prices: Prices, measures: Measures) -> tuple[Diagnostic, ...]:
    """Report E0973 if the largest task needs more memory than available, or the results need more disk."""
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
                help="keep results on a larger disk with --store DIR, or make room: reodsl gc",
            )
        )
    return tuple(lacks)
