"""Lower a spec that may be a stranger's, or report why it is too large."""

from __future__ import annotations

from reodsl.diagnostics.model import Diagnostic, error
from reodsl.ir.extent import extent
from reodsl.ir.spec import Spec
from reodsl.language.lower import lower
from reodsl.language.modules import Loaded
from reodsl.language.program import Program
from reodsl.language.resolve import walk_starts
from reodsl.language.values import Experiment, Record, Study

MOST_TASKS = 20_000
MOST_VALUES = 3_000_000
DEEPEST = 200
"""What serialises a spec gives up at 255 values in each other."""


def lower_bounded(
    program: Program, main: Loaded, record: Study | Experiment
) -> tuple[Spec | None, tuple[Diagnostic, ...]]:
    """Return the spec of a record, or E0216 if a short text means more than a machine can hold."""
    # Below this the stack does not reach.
    if sum(1 for _ in zip(walk_starts(record), range(DEEPEST + 1), strict=False)) > DEEPEST:
        return None, (_large(record, "experiments start from each other too many times", _CHAIN),)
    try:
        spec = lower(program, main, record)
    except RecursionError:
        return None, (_large(record, "experiments start from each other too many times", _CHAIN),)
    size = extent(spec.study)
    if size.depth > DEEPEST:
        return None, (_large(record, "experiments start from each other too many times", _CHAIN),)
    if size.tasks > MOST_TASKS:
        words = f"this is {size.tasks:,} tasks, and a spec has at most {MOST_TASKS:,}"
        return None, (_large(record, words, "take fewer arms, seeds or stages"),)
    if size.values > MOST_VALUES:
        words = f"written out, this is {size.values:,} values, and a spec has at most {MOST_VALUES:,}"
        return None, (
            _large(record, words, "start fewer experiments from two others, and shorten long texts"),
        )
    return spec, ()


_CHAIN = "start from fewer experiments, one after the other"


def _large(record: Record, words: str, helps: str) -> Diagnostic:
    return error("E0216", words, record.span, "too large", help=helps)
