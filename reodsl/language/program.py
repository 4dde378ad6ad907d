"""Programs: from a spec's file to everything that it declares, evaluated, with what is to run picked."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from reodsl.diagnostics.model import Diagnostic, error
from reodsl.language.amend import report_unmet
from reodsl.language.bounds import Enough
from reodsl.language.changes import read_changes
from reodsl.language.context import Context, Failed
from reodsl.language.declare import new_context
from reodsl.language.modules import Loaded, Modules
from reodsl.language.resolve import starts
from reodsl.language.suggest import advice
from reodsl.language.values import Experiment, Record, Study, Value
from reodsl.syntax import tree

R = TypeVar("R", bound=Record)


@dataclass(frozen=True, slots=True)
class Program:
    """A spec evaluated: the values of its declarations by name, those with errors left out."""

    context: Context
    main: Loaded | None
    values: dict[str, Value]

    def of_kind(self, kind: str) -> dict[str, Record]:
        """The declarations of one kind."""
        return self.of_type(Record, kind)

    def of_type(self, type_: type[R], kind: str) -> dict[str, R]:
        """The declarations of one kind, all of them of the class that it has."""
        records = {name: value.data for name, value in self.values.items()}
        return {name: data for name, data in records.items() if isinstance(data, type_) and data.kind == kind}

    @property
    def sound(self) -> bool:
        """Whether nothing that was found is an error."""
        if self.main is None or self.context.ended:
            return False
        return not any(each.severity == "error" for each in self.context.findings)


def load(
    path: str | Path, sets: Mapping[str, str], amends: Mapping[str, str], drafts: Mapping[str, str] = {}
) -> Program:
    """Read, parse and evaluate a spec and what it imports. Findings are in the context; nothing is raised.

    `drafts` are texts, by resolved path, that stand in for what is on the disk.
    """
    place = Path(path)
    try:
        root = place.resolve().parent
    except (OSError, RuntimeError, ValueError):
        root = place.parent
    modules = Modules(root, drafts)
    main = modules.main(place)
    return evaluate(modules, main, sets, amends)


def evaluate(
    modules: Modules, main: Loaded | None, sets: Mapping[str, str], amends: Mapping[str, str]
) -> Program:
    """Every declaration of the main file, evaluated."""
    ctx = new_context(modules)
    values: dict[str, Value] = {}
    # What was read before a bound was passed is shown; nothing is made of it.
    if main is not None and not ctx.ended:
        with suppress(Enough):
            read_changes(ctx, main, sets, amends)
            for name, item in main.items.items():
                with suppress(Failed):
                    values[name] = ctx.declared(main, item)
            report_unmet(ctx, (change for changes in ctx.amends.values() for change in changes))
    return Program(ctx, main, values)


def picked(
    program: Program, main: Loaded, target: str | None
) -> tuple[Study | Experiment | None, Diagnostic | None]:
    """The study or experiment to run: the one named, else the only study, else the only experiment that no other
    starts from."""
    studies = program.of_type(Study, "study")
    experiments = program.of_type(Experiment, "experiment")
    everything: dict[str, Study | Experiment] = {**experiments, **studies}
    where = main.path
    if target is not None:
        if target in everything:
            return everything[target], None
        return None, error(
            "E0214",
            f"there is no study or experiment `{target}` in this file",
            where=where,
            help=_of_arms(target, studies) or advice(target, everything, "there is"),
        )
    declares = [item for item in main.items.values() if isinstance(item, tree.Decl)]
    named = [item.name.name for item in declares if item.kind.name == "study"] or [
        item.name.name for item in declares if item.kind.name == "experiment"
    ]
    if not named:
        return None, error(
            "E0215",
            "there is nothing to run in this file",
            where=where,
            help="declare an `experiment` or a `study`, or run a file that imports this one",
        )
    ends = _ends(named, experiments)
    if len(ends) > 1:
        return None, error(
            "E0214",
            f"this file has {len(ends)} of them to run: {', '.join(ends)}",
            where=where,
            help=f"say which: `--target {ends[0]}`, or put them in a `study`",
        )
    return everything.get(ends[0]), None


def _of_arms(target: str, studies: Mapping[str, Study]) -> str | None:
    """The help where an arm is named as what to run."""
    for name, study in studies.items():
        if any(arm.name == target for arm in study.arms):
            return f"`{target}` is an arm of `{name}`, which runs as a whole: make it an experiment to run it alone"
    return None


def _ends(named: list[str], experiments: Mapping[str, Experiment]) -> list[str]:
    """Those that no other starts from: a starting point is trained on the way to what starts from it."""
    started = {base.owner for name in named if name in experiments for base in starts(experiments[name])}
    return [name for name in named if name not in experiments or experiments[name].owner not in started]
