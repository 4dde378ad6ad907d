"""How large a spec is when everything is written out: values, depth and tasks."""

from __future__ import annotations

from dataclasses import dataclass

from reodsl.ir.base import names_of
from reodsl.ir.study import Study

CHARACTERS_PER_VALUE = 16


@dataclass(frozen=True, slots=True)
class Extent:
    """The size of a spec: its values written out, the depth to which they are nested, and its tasks at most.

    An experiment that two others start from counts twice.
    """

    values: int
    depth: int
    tasks: int


def extent(study: Study) -> Extent:
    """Return the extent of a study, in time linear in its objects, however often they are shared."""
    values, depth = _measured(study)
    stages = sum(len(each.stages) for arm in study.arms for each in arm.checkpoint.experiments)
    return Extent(values, depth, len(study.seeds) * (stages + len(study.arms)))


def _measured(top: object) -> tuple[int, int]:
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
                count, depth = _single(part), 1
            else:
                count, depth = extents[id(part)]
            values += count
            deepest = max(deepest, depth)
        extents[id(value)] = values, deepest + 1
    return extents[id(top)]


_SINGLE = frozenset({str, int, float, bool, type(None)})
"""Classes of values that hold no others."""


def _single(value: object) -> int:
    return 1 + len(value) // CHARACTERS_PER_VALUE if isinstance(value, str) else 1


def _parts(value: object) -> list[object]:
    names = names_of(type(value))
    if names is not None:
        return [getattr(value, name) for name in names]
    if isinstance(value, dict):
        return list(value.values())
    return list(value) if isinstance(value, (tuple, list)) else []
