"""`reodsl diff A B`: how two specs or runs differ in meaning, and which work they share."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from reodsl.cli.options import complete_runs_or_files, existing_store, spec_options
from reodsl.cli.output import print_json, terminal_columns
from reodsl.cli.prepare import prepare
from reodsl.diagnostics import misread, problem
from reodsl.diff.compare import Payload, compare
from reodsl.graph.lower import lower
from reodsl.graph.task import Graph, Task, identity
from reodsl.ir import Spec
from reodsl.store.runs import began, pick, records, require_spec


@dataclass(frozen=True, slots=True)
class Side:
    """A side of the comparison: a compiled spec, or a run with its spec."""

    name: str
    """Name as the user gave it, or the run's name."""
    label: str
    """Name in few characters."""
    spec: Spec
    graph: Graph
    payload: Payload
    """Function from a task to the facts that its result depends on."""


@click.command(
    short_help="Compare two specs, a spec and a past run, or two runs.",
    epilog="""\b
Examples:
  reodsl diff specs/a.reo specs/b.reo
  reodsl diff specs/quickstart.reo --set n=10        (with and without the change)
  reodsl diff quickstart specs/quickstart.reo        (the last run of a study, and the spec now)
  reodsl diff 20260101T120000 20260102T120000        (two runs, by the start of their names; see `reodsl ls`)
""",
)
@click.argument("a", shell_complete=complete_runs_or_files)
@click.argument("b", required=False, shell_complete=complete_runs_or_files)
@spec_options
@click.option("--all", "everything", is_flag=True, help="Show equal settings and tasks too.")
@click.option("--json", "as_json", is_flag=True, help="Print the difference as JSON.")
def diff_command(
    a: str,
    b: str | None,
    sets: tuple[str, ...],
    amends: tuple[str, ...],
    target: str | None,
    store_dir: Path | None,
    everything: bool,
    as_json: bool,
) -> None:
    """Compare two specs, a spec and a past run, or two runs, by what they mean.

    A and B are spec files, run folders, or names of runs or studies in the store. Comments, order, names and the
    spelling of units do not count. --set and --amend change B; without B, A is compared with itself after these
    changes. Exits 0 if they do not differ, and 2 if they do.

    Args:
        a: Spec file, run folder, study or run on the left side.
        b: Spec file, run folder, study or run on the right side; None to compare `a` with itself after the changes.
        sets: Texts `PARAM=VALUE` of `--set`, which change the right side.
        amends: Texts `SETTING=VALUE` of `--amend`, which change the right side.
        target: Name of the study or experiment to use, or None if the spec declares only one.
        store_dir: Folder of the store, or None to look for it.
        everything: Whether to print equal settings and tasks too.
        as_json: Whether to print JSON instead of text.
    """
    from reodsl.diff.render import to_json, to_text

    if b is None and not (sets or amends):
        raise click.UsageError("name a second spec or run, or a change: --set NAME=VALUE")
    left = _find_side(a, (), (), target, store_dir)
    right = _find_side(b or a, sets, amends, target, store_dir)
    is_same_file = left.name == right.name
    names = left.name, _name_changed_side(right) if is_same_file else right.name
    labels = left.label, _name_changed_side(right) if is_same_file else right.label
    difference = compare(left.spec, right.spec, left.graph, right.graph, left.payload, right.payload)
    if as_json:
        print_json(to_json(difference, names))
    else:
        click.echo(to_text(difference, labels, everything, terminal_columns()))
    if difference.different:
        raise SystemExit(2)


def _name_changed_side(side: Side) -> str:
    """Return a name for the right side of a comparison of a spec with itself: its changes, as in `with n=10`.

    Without changes the name is the label of the side.
    """
    changes = _format_changes(side.spec)
    return f"with {changes}" if changes else side.label


def _format_changes(spec: Spec) -> str:
    """Return the changes of a spec by `--set` and `--amend` as text: `n=10, seeds=[1]`."""
    return ", ".join(f"{change.target}={change.value}" for change in spec.changes)


def _find_side(
    text: str, sets: tuple[str, ...], amends: tuple[str, ...], target: str | None, store_dir: Path | None
) -> Side:
    """Return a side of the comparison from what the user wrote.

    Args:
        text: Spec file, `-` for standard input, a run's folder or its `spec.reo.json`, or a study or run of the store.
        sets: Texts of `--set`, for a spec only.
        amends: Texts of `--amend`, for a spec only.
        target: Name of the study or experiment to use, or None if the spec declares only one.
        store_dir: Folder of the store, or None to look for it.
    """
    path = Path(text)
    if path.suffix == ".reo" or text == "-" or (path.is_file() and path.suffix != ".json"):
        return _compile_side(text, sets, amends, target, store_dir)
    if sets or amends:
        raise click.UsageError(f"{text} is a run, and --set and --amend change only specs")
    resolved = path / "spec.reo.json" if path.is_dir() else path
    return _read_side(text, resolved) if resolved.is_file() else _open_side(text, store_dir)


def _compile_side(
    text: str, sets: tuple[str, ...], amends: tuple[str, ...], target: str | None, store_dir: Path | None
) -> Side:
    """Compile a spec file with changes into a side of the comparison.

    Args:
        text: Path of the spec file, or `-` for standard input.
        sets: Texts `PARAM=VALUE` of `--set`.
        amends: Texts `SETTING=VALUE` of `--amend`.
        target: Name of the study or experiment to use, or None if the spec declares only one.
        store_dir: Folder of the store, or None for the store beside the spec.
    """
    ready = prepare(text, sets, amends, target, store_dir)
    changes = _format_changes(ready.spec)
    label = f"{text} with {changes}" if changes else text
    return Side(text, label, ready.spec, ready.graph, ready.keys.payload)


def _read_side(name: str, path: Path) -> Side:
    """Read a compiled spec, `spec.reo.json`, as one side of the comparison.

    Args:
        name: What the user typed for the side, shown in messages.
        path: The file.

    Raises:
        Problem: E0967 if the file holds no compiled spec.
    """
    try:
        spec = Spec.model_validate_json(path.read_bytes())
    except (OSError, ValueError) as error:
        raise problem(
            "E0967",
            "this is not a compiled spec",
            where=str(path),
            notes=(misread(error),),
            help="name a spec file, a run's folder or a run; `reodsl ls` lists runs",
        ) from None
    return Side(name, name, spec, lower(spec), identity)


def _open_side(text: str, store_dir: Path | None) -> Side:
    """Return a run of the store as a side of the comparison.

    Args:
        text: Study of the run, or the start of the run's name.
        store_dir: Folder of the store, or None to look for it.

    Raises:
        Problem: E0952 without a store, E0954 for an unknown run, E0967 if the run's spec is not in the store.
    """
    store = existing_store(store_dir)
    record = pick(records(store), text)
    spec = require_spec(store, record)

    def payload(task: Task) -> Mapping[str, Any]:
        """Return the facts on which a task's result depends, as stored with the result, or else as in the spec."""
        material = store.material(record.tasks[task.id]) if task.id in record.tasks else None
        return material["payload"] if material is not None else identity(task)

    label = f"{record.study} {began(record.name)}"
    return Side(record.name, label, spec, lower(spec), payload)
