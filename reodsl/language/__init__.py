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
class CompileResult:
    """A compiled spec with the findings about it."""

    spec: Spec | None
    """None if a finding is an error."""
    diagnostics: tuple[Diagnostic, ...]
    sources: dict[str, str]
    """The texts that findings quote, by path."""


@dataclass(frozen=True, slots=True)
class CheckResult:
    """The findings of a check, and the texts that they quote."""

    diagnostics: tuple[Diagnostic, ...]
    sources: dict[str, str]


@contextmanager
def _pause_garbage_collection() -> Iterator[None]:
    """Turn Python's garbage collection off for a block, and restore it afterwards.

    A compilation keeps nearly all its objects, and the search for garbage would take a third of its time.
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


@_pause_garbage_collection()
def check_file(
    path: str | Path, *, sets: Mapping[str, str] = {}, amends: Mapping[str, str] = {}
) -> CheckResult:
    """Return all findings on a spec; raise nothing.

    Args:
        path: The spec; its imports and the standard library are read too.
        sets: Texts of values by the names of params, as `--set` gives them.
        amends: Texts of values by the dotted paths of settings, as `--amend` gives them.
    """
    # These imports take a third of a check's time, and also create no garbage to collect.
    from reodsl.language.checks import check_program
    from reodsl.language.program import load

    program = load(path, sets, amends)
    check_program(program)
    return CheckResult(program.context.findings, program.context.modules.sources)


@_pause_garbage_collection()
def compile_file(
    path: str | Path,
    *,
    sets: Mapping[str, str] = {},
    amends: Mapping[str, str] = {},
    target: str | None = None,
) -> CompileResult:
    """Check a spec, and return it in its canonical form; raise nothing.

    Args:
        path: The spec; its imports and the standard library are read too.
        sets: Texts of values by the names of params, as `--set` gives them.
        amends: Texts of values by the dotted paths of settings, as `--amend` gives them.
        target: The name of the study or experiment to run; needed if the file has several.

    Returns:
        The spec, or None if a finding is an error; the findings; the texts that the findings quote, by path.
    """
    from reodsl.language.checks import check_program
    from reodsl.language.program import load, pick

    program = load(path, sets, amends)
    check_program(program)
    findings, sources = program.context.findings, program.context.modules.sources
    if program.main is None or not program.is_sound:
        return CompileResult(None, findings, sources)
    record, problem = pick(program, program.main, target)
    if problem is not None:
        findings = (*findings, problem)
    if record is None:
        return CompileResult(None, findings, sources)
    from reodsl.language.checks.studies import check_runnable

    not_runnable = check_runnable(program.context, record)
    if not_runnable:
        return CompileResult(None, (*findings, *not_runnable), sources)
    from reodsl.language.lower import lower_bounded

    spec, too_large = lower_bounded(program, program.main, record)
    return CompileResult(spec, (*program.context.findings, *too_large), sources)


__all__ = ["CheckResult", "CompileResult", "check_file", "compile_file"]
