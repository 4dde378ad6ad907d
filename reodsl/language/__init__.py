"""Check and compile specs: names, types, units, checks and lowering, behind three functions."""

from __future__ import annotations

import gc
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from reodsl.diagnostics.model import Diagnostic

if TYPE_CHECKING:
    from reodsl.ir.study import Spec
    from reodsl.numbers.budgets import Schedule
    from reodsl.numbers.curves import Reference


@dataclass(frozen=True, slots=True)
class Compiled:
    """A compiled spec, or None where a diagnostic is an error; `sources` are the texts that diagnostics show."""

    spec: Spec | None
    diagnostics: tuple[Diagnostic, ...]
    sources: dict[str, str]


@dataclass(frozen=True, slots=True)
class Checked:
    """The findings of a check, and the texts that they quote."""

    diagnostics: tuple[Diagnostic, ...]
    sources: dict[str, str]


@dataclass(frozen=True, slots=True)
class EvaluatedSchedule:
    """A schedule of budgets, or None and why not."""

    schedule: Schedule | None
    diagnostics: tuple[Diagnostic, ...]
    sources: dict[str, str]


@contextmanager
def _pause_garbage_collection() -> Iterator[None]:
    """Stop the search for garbage: a compiler keeps nearly all objects, and the search takes a third of its time."""
    was = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was:
            gc.enable()


def check_file(path: str | Path, *, sets: Mapping[str, str] = {}, amends: Mapping[str, str] = {}) -> Checked:
    """Return every finding on a spec. Reads the file, its imports and the library; raises nothing."""
    with _pause_garbage_collection():
        # These imports are a third of a check's time, and make nothing that could be collected either.
        from reodsl.language.checks import check_program
        from reodsl.language.program import load

        program = load(path, sets, amends)
        check_program(program)
    return Checked(program.context.findings, program.context.modules.sources)


def compile_file(
    path: str | Path,
    *,
    sets: Mapping[str, str] = {},
    amends: Mapping[str, str] = {},
    target: str | None = None,
) -> Compiled:
    """Return a spec in its canonical form. `target` names the study or experiment to run if a file has several.

    `sets` are texts for params, `amends` texts for any setting by its dotted path. Raises nothing: what is wrong is
    in the diagnostics, and then there is no spec.
    """
    with _pause_garbage_collection():
        return _compile(path, sets, amends, target)


def _compile(
    path: str | Path, sets: Mapping[str, str], amends: Mapping[str, str], target: str | None
) -> Compiled:
    from reodsl.language.checks import check_program
    from reodsl.language.program import load, pick

    program = load(path, sets, amends)
    check_program(program)
    findings, sources = program.context.findings, program.context.modules.sources
    if program.main is None or not program.sound:
        return Compiled(None, findings, sources)
    record, problem = pick(program, program.main, target)
    if problem is not None:
        findings = (*findings, problem)
    if record is None:
        return Compiled(None, findings, sources)
    from reodsl.language.checks.studies import check_runnable

    lacking = check_runnable(program.context, record)
    if lacking:
        return Compiled(None, (*findings, *lacking), sources)
    from reodsl.language.lower import lower_bounded

    spec, large = lower_bounded(program, program.main, record)
    return Compiled(spec, (*program.context.findings, *large), sources)


def evaluate_budgets(text: str) -> EvaluatedSchedule:
    """Return the schedule that a text such as `exp(from: 1K tokens, to: 32K tokens, n: 5)` describes.

    Also `linear(to:, n:)`, `greedy(FRONTIER, to:, n:)` with a frontier such as `std.paper.qwen3_4b` or a file's name
    in quotes, and a list whose last is the longest response.
    """
    from reodsl.language.chosen_reward import read_schedule

    return EvaluatedSchedule(*read_schedule(text))


def named_frontier(name: str) -> Reference:
    """Return a published frontier by its name, such as `std.paper.qwen3_4b`. Raises `Problem` for any other name."""
    from reodsl.language.chosen_reward import read_frontier_by_name as named

    return named(name)


__all__ = [
    "Checked",
    "Compiled",
    "EvaluatedSchedule",
    "check_file",
    "compile_file",
    "evaluate_budgets",
    "named_frontier",
]
