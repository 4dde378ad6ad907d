"""The words of a reward: its functions by what they are of, and the names that only a reward knows."""

from __future__ import annotations

from typing import get_args

from reodsl.ir.expression import Function, Statistic, WeightRule

WEIGHTS: tuple[WeightRule, ...] = get_args(WeightRule)
STATISTICS: tuple[Statistic, ...] = get_args(Statistic)
NUMERIC: tuple[Function, ...] = get_args(Function)
RESPONSE = ("len", "correct", "answer", "mode", "python")
FUNCTIONS = (*RESPONSE, *WEIGHTS, "before", "z", *dict.fromkeys((*STATISTICS, *NUMERIC)))

HISTORIES = ("quantile", "steps", "monitor", "step")
"""What a track alone may say: its own statistic, what it runs over, and the number of steps that are done."""

RESPONSE_NAMES = frozenset({"y", "x", "group", "ref", *RESPONSE, *WEIGHTS, "before"})
