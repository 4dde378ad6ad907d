"""The functions of the reward language on arrays, as `arithmetic` has them; the caller silences warnings."""

from __future__ import annotations

import operator
from collections.abc import Callable
from functools import reduce
from typing import Any

import numpy as np

from reodsl.ir.expression import Function
from runners.rewards.arithmetic import choose, quantile
from runners.rewards.inputs import Bools, Floats, Ints


def statistic(fn: str, value: Floats, keep: Bools, counted: Ints, axis: int) -> Floats:
    """Return a statistic along an axis, which stays with size 1, over what is kept.

    `counted` says how many those are.

    Over none of them it means nothing: the caller puts something else there.
    """
    if fn == "count":
        return counted.astype(float)
    if fn == "sum":
        return _sum(value, keep, axis)
    if fn == "min":
        return np.where(keep, value, np.inf).min(axis=axis, keepdims=True)
    if fn == "max":
        return np.where(keep, value, -np.inf).max(axis=axis, keepdims=True)
    if fn == "median":
        # NaN marks what does not count, and a NaN that is kept has to show: it is put back afterwards.
        middle = np.nanmedian(np.where(keep, value, np.nan), axis=axis, keepdims=True)
        return np.where((keep & np.isnan(value)).any(axis=axis, keepdims=True), np.nan, middle)
    mean = _sum(value, keep, axis) / counted
    if fn == "mean":
        return mean
    return np.sqrt(_sum((value - mean) * (value - mean), keep, axis) / counted)


def summarise(fn: str, values: Floats, at: float) -> float:
    """Return a statistic over some values, one at least; `at` is the share of a quantile."""
    if fn == "quantile":
        return quantile(values.tolist(), at)
    kept, counted = np.ones(values.shape, dtype=np.bool_), np.array([len(values)])
    return float(statistic(fn, values, kept, counted, 0)[0])


BINARY: dict[str, Callable[[Floats, Floats], Any]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "/": operator.truediv,
    "^": np.power,
    "==": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
    "and": np.logical_and,
    "or": np.logical_or,
}
FUNCTIONS: dict[Function, Callable[..., Floats]] = {
    "sigmoid": lambda x: 1.0 / (1.0 + np.exp(-x)),
    "log": np.log,
    "exp": np.exp,
    "sqrt": np.sqrt,
    "cos": np.cos,
    "abs": np.abs,
    "floor": np.floor,
    "min": lambda *values: reduce(np.minimum, values),
    "max": lambda *values: reduce(np.maximum, values),
    "choose": lambda n, k: np.asarray(np.frompyfunc(choose, 2, 1)(n, k), dtype=float),
    "clip": lambda x, low, high: np.minimum(np.maximum(x, low), high),
}


def _sum(value: Floats, keep: Bools, axis: int) -> Floats:
    """Return the sum along an axis in order, so that it rounds as a loop does."""
    kept = np.where(keep, value, 0.0)
    return np.take(np.add.accumulate(kept, axis=axis), [-1], axis=axis)
