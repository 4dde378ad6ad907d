"""A past result as prices see it: what was counted, and how long it took."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from reodsl.graph.task import Kind
from reodsl.price.facts import Facts
from reodsl.price.sizes import Sizes
from reodsl.price.value import Term


@dataclass(frozen=True, slots=True)
class Past:
    """A result that is there: its task and payload, its model's sizes, what was counted, and how long it took.

    `seconds` is from start to end; `terms` the part of it that is known by term, all steps together. With `processor`
    they are those that processors spent, which other work on the machine does not stretch; else those of the clock.
    `device` is where it ran (`cpu`, `cuda`) and `model` that device's name, empty where the result does not say.
    `generating` of these generated, each engine on `tensor_parallel`, and `training` trained; 0 where it does not say.
    `peak` is in bytes. `mismatch` is the factor by which engine and trainer differed in the median token, where it was seen.
    """

    task: str
    kind: Kind
    payload: Mapping[str, Any]
    sizes: Sizes
    facts: Facts
    seconds: float
    terms: Mapping[Term, float]
    device: str
    words: bool
    model: str = ""
    peak: float | None = None
    processor: bool = False
    generating: int = 0
    training: int = 0
    tensor_parallel: int = 1
    mismatch: float | None = None
