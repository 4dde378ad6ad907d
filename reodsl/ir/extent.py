"""How large a spec is when everything is written out: values, depth and tasks."""

from __future__ import annotations

from dataclasses import dataclass

from reodsl.ir.base import IR, names_of
from reodsl.ir.expression import Node
from reodsl.ir.study import Study
from reodsl.ir.training import FromTraining

CHARACTERS_PER_VALUE = 16


@dataclass(frozen=True, slots=True)
class Extent:
    """`values` written out, an experiment that two others start from counted twice; how deep they stand in each other;
    and `tasks`, at most."""

    values: int
    depth: int
    tasks: int


def extent(study: Study) -> Extent:
    """The extent of a study, in time linear in its objects, however often they are shared."""
    values, depth = _measured(study)
    stages = 0
    for arm in study.arms:
        start = arm.checkpoint
        while isinstance(start, FromTraining):
            stages += len(start.experiment.stages)
            start = start.experiment.start
    return Extent(values, depth, len(study.seeds) * (stages + len(study.arms)))


def _measured(top: object) -> tuple[int, int]:
    """Values and depth. Without recursion: what is measured may be deeper than the stack."""
    extents: dict[int, tuple[int, int]] = {}
    open_: list[object] = [top]
    while open_:
        value = open_[-1]
        parts = _parts(value)
        waiting = [part for part in parts if id(part) not in extents]
        if waiting:
            open_ += waiting
            continue
        open_.pop()
        below = [extents[id(part)] for part in parts]
        values = 1 + len(value) // CHARACTERS_PER_VALUE if isinstance(value, str) else 1
        deepest = max((depth for _, depth in below), default=0)
        extents[id(value)] = values + sum(count for count, _ in below), deepest + 1
    return extents[id(top)]


def _parts(value: object) -> list[object]:
    if isinstance(value, (IR, Node)):
        return [getattr(value, name) for name in names_of(value)]
    if isinstance(value, dict):
        return list(value.values())
    return list(value) if isinstance(value, (tuple, list)) else []
