"""Lower a spec that may be a stranger's, or report why it is too large."""

from __future__ import annotations

from dataclasses import dataclass

from reodsl.diagnostics.model import Diagnostic, error
from reodsl.ir.base import names_of
from reodsl.ir.spec import Spec
from reodsl.language.lower import lower
from reodsl.language.modules import ParsedFile
from reodsl.language.program import Program
from reodsl.language.resolve import walk_starts
from reodsl.language.values import DeclaredExperiment, DeclaredStudy, Record

MOST_TASKS = 20_000
MOST_VALUES = 3_000_000
DEEPEST = 200
"""The deepest nesting of a spec: its serialiser gives up at 255 values in each other."""


def lower_bounded(
    program: Program, main: ParsedFile, record: DeclaredStudy | DeclaredExperiment
) -> tuple[Spec | None, tuple[Diagnostic, ...]]:
    """Return the spec of a record, or E0216 if a short text means more than a machine can hold."""
    # Below this the stack does not reach.
    if sum(1 for _ in zip(walk_starts(record), range(DEEPEST + 1), strict=False)) > DEEPEST:
        return None, (_large(record, "experiments start from each other too many times", _CHAIN),)
    try:
        spec = lower(program, main, record)
    except RecursionError:
        return None, (_large(record, "experiments start from each other too many times", _CHAIN),)
    size = measure_extent(spec)
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


CHARACTERS_PER_VALUE = 16


@dataclass(frozen=True, slots=True)
class Extent:
    """The size of a spec: its values written out, the depth to which they are nested, and its tasks at most.

    An experiment that two others start from counts twice.
    """

    values: int
    depth: int
    tasks: int


def measure_extent(spec: Spec) -> Extent:
    """Return the extent of a spec, in time linear in its objects, however often they are shared."""
    study = spec.study
    values, depth = _measure(study)
    stages = sum(len(each.stages) for arm in study.arms for each in arm.checkpoint.experiments)
    return Extent(values, depth, len(study.seeds) * (stages + len(study.arms)))


def _measure(top: object) -> tuple[int, int]:
    """Return values and depth, without recursion, as a study may be deeper than the stack."""
    extents: dict[int, tuple[int, int]] = {}
    # Each with its parts, those that wait to be measured being above it.
    open_ = [(top, _parts(top))]
    while open_:
        value, parts = open_[-1]
        waiting = [
            (part, _parts(part)) for part in parts if type(part) not in _SINGLE and id(part) not in extents
        ]
        if waiting:
            open_ += waiting
            continue
        open_.pop()
        values, deepest = 1, 0
        for part in parts:
            if type(part) in _SINGLE:
                count, depth = 1 + (len(part) // CHARACTERS_PER_VALUE if isinstance(part, str) else 0), 1
            else:
                count, depth = extents[id(part)]
            values += count
            deepest = max(deepest, depth)
        extents[id(value)] = values, deepest + 1
    return extents[id(top)]


_SINGLE = frozenset({str, int, float, bool, type(None)})
"""Classes of values that hold no others."""


def _parts(value: object) -> list[object]:
    names = names_of(type(value))
    if names is not None:
        return [getattr(value, name) for name in names]
    if isinstance(value, dict):
        return list(value.values())
    return list(value) if isinstance(value, (tuple, list)) else []
