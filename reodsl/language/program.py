"""Evaluate a spec's file: all its declarations, and the study or experiment to run."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from reodsl.diagnostics.model import Diagnostic, error
from reodsl.language.bounds import MOST_STEPS, LimitReached, WorkLimit
from reodsl.language.changes import read_changes, report_unmet
from reodsl.language.context import Context, NoValue
from reodsl.language.declare import new_context
from reodsl.language.modules import Modules, ParsedFile
from reodsl.language.resolve import walk_starts
from reodsl.language.suggest import suggest
from reodsl.language.values import DeclaredExperiment, DeclaredStudy, Record, Value
from reodsl.syntax import tree

R = TypeVar("R", bound=Record)


@dataclass(frozen=True, slots=True)
class Program:
    """An evaluated spec."""

    context: Context
    main: ParsedFile | None
    """The spec's file; None if it cannot be read."""
    values: dict[str, Value]
    """Values of its declarations by name, without declarations that have errors."""

    def list_kind(self, kind: str) -> dict[str, Record]:
        """Return the declarations of a kind by name."""
        return self.list_type(Record, kind)

    def list_type(self, type_: type[R], kind: str) -> dict[str, R]:
        """Return the declarations of a kind by name, restricted to records of the class `type_`."""
        records = {name: value.data for name, value in self.values.items()}
        return {name: data for name, data in records.items() if isinstance(data, type_) and data.kind == kind}

    @property
    def is_sound(self) -> bool:
        """Return whether the spec was read, checked completely, and has no errors."""
        if self.main is None or self.context.is_stopped:
            return False
        return not any(finding.severity == "error" for finding in self.context.findings)


def load(
    path: str | Path,
    sets: Mapping[str, str],
    amends: Mapping[str, str],
    drafts: Mapping[str, str] = {},
    most: float = MOST_STEPS,
) -> Program:
    """Read, parse and evaluate a spec and its imports; raise nothing.

    Args:
        path: The spec.
        sets: Texts of values by the names of params.
        amends: Texts of values by the dotted paths of settings.
        drafts: Texts, by resolved path, that replace files of the disk.
        most: The most steps of work that the spec may take.

    Returns:
        The program; its context has the findings.
    """
    file = Path(path)
    try:
        root = file.resolve().parent
    except (OSError, RuntimeError, ValueError):
        root = file.parent
    modules = Modules(root, drafts, work_limit=WorkLimit(most))
    return evaluate(modules, modules.main(file), sets, amends)


def evaluate(
    modules: Modules, main: ParsedFile | None, sets: Mapping[str, str], amends: Mapping[str, str]
) -> Program:
    """Return the program with the value of every declaration of the main file.

    Args:
        modules: The parsed files.
        main: The spec's file; None if it could not be read.
        sets: Texts of values by the names of params.
        amends: Texts of values by the dotted paths of settings.
    """
    ctx = new_context(modules)
    values: dict[str, Value] = {}
    # After a limit was passed, the findings so far are shown, and nothing is evaluated.
    if main is not None and not ctx.is_stopped:
        with suppress(LimitReached):
            read_changes(ctx, main, sets, amends)
            for name, item in main.items.items():
                with suppress(NoValue):
                    values[name] = ctx.value_of(main, item)
            report_unmet(ctx, (change for changes in ctx.amends.values() for change in changes))
    return Program(ctx, main, values)


def pick(
    program: Program, main: ParsedFile, target: str | None
) -> tuple[DeclaredStudy | DeclaredExperiment | None, Diagnostic | None]:
    """Return the study or experiment to run, or the error that says why none can be chosen.

    Without a target the only study is chosen. In a file without studies it is the only experiment that no
    other experiment starts from.

    Args:
        program: The evaluated spec.
        main: The spec's file.
        target: The name that the user gave; None if no name was given.

    Returns:
        The pair (declaration, None) or (None, error). The pair (None, None) stands for a declaration with an
        error that was reported.
    """
    studies = program.list_type(DeclaredStudy, "study")
    experiments = program.list_type(DeclaredExperiment, "experiment")
    runnable: dict[str, DeclaredStudy | DeclaredExperiment] = {**experiments, **studies}
    where = main.path
    if target is not None:
        if target in runnable:
            return runnable[target], None
        return None, error(
            "E0214",
            f"there is no study or experiment `{target}` in this file",
            where=where,
            help=_suggest_study(target, studies) or suggest(target, runnable, "there is"),
        )
    declares = [item for item in main.items.values() if isinstance(item, tree.Decl)]
    candidates = [item.name.name for item in declares if item.kind.name == "study"] or [
        item.name.name for item in declares if item.kind.name == "experiment"
    ]
    if not candidates:
        return None, error(
            "E0215",
            "there is nothing to run in this file",
            where=where,
            help="declare an `experiment` or a `study`, or run a file that imports this one",
        )
    end_names = _find_ends(candidates, experiments)
    if len(end_names) > 1:
        return None, error(
            "E0214",
            f"this file has {len(end_names)} experiments or studies to run: {', '.join(end_names)}",
            where=where,
            help=f"name one: `--target {end_names[0]}`, or put them in a `study`",
        )
    return runnable.get(end_names[0]), None


def _suggest_study(target: str, studies: Mapping[str, DeclaredStudy]) -> str | None:
    """Return help if the user named an arm where a study or experiment is expected; None for any other name."""
    for name, study in studies.items():
        if any(arm.name == target for arm in study.arms):
            return f"`{target}` is an arm of `{name}`, which runs as a whole: make it an experiment to run it alone"
    return None


def _find_ends(names: list[str], experiments: Mapping[str, DeclaredExperiment]) -> list[str]:
    """Return the given names without experiments from whose checkpoints other experiments start.

    A run of the other experiment trains them too. Names of studies stay in the list.

    Args:
        names: The names of experiments or studies.
        experiments: The experiments without errors by name.
    """
    started = {base.owner for name in names if name in experiments for base in walk_starts(experiments[name])}
    return [name for name in names if name not in experiments or experiments[name].owner not in started]
