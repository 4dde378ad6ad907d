"""Check and compile specs: names, types, units, checks and lowering, behind two functions."""

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


@_pause_garbage_collection()
def check_file(path: str | Path, *, sets: Mapping[str, str] = {}, amends: Mapping[str, str] = {}) -> Checked:
    """Return every finding on a spec. Reads the file, its imports and the library; raises nothing."""
    # These imports are a third of a check's time, and make nothing that could be collected either.
    from reodsl.language.checks import check_program
    from reodsl.language.program import load

    program = load(path, sets, amends)
    check_program(program)
    return Checked(program.context.findings, program.context.modules.sources)


@_pause_garbage_collection()
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


__all__ = [
    "Checked",
    "Compiled",
    "check_file",
    "compile_file",
]
