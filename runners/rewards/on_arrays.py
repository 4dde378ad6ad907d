"""The functions of the reward language on arrays, as `arithmetic` has them; the caller silences warnings."""

from __future__ import annotations

from functools import reduce

import numpy as np

from reodsl.ir.expression import Function
from runners.rewards.inputs import Bools, Floats, Ints


def statistic(fn: str, value: Floats, keep: Bools, counted: Ints, axis: int) -> Floats:
    """A statistic along an axis, which stays with size 1, over what is kept; `counted` says how many those are.

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
        # NaN marks what is left out, and a NaN that is kept has to show: it is put back afterwards.
        middle = np.nanmedian(np.where(keep, value, np.nan), axis=axis, keepdims=True)
        return np.where((keep & np.isnan(value)).any(axis=axis, keepdims=True), np.nan, middle)
    mean = _sum(value, keep, axis) / counted
    if fn == "mean":
        return mean
    return np.sqrt(_sum((value - mean) * (value - mean), keep, axis) / counted)


def binary(fn: str, a: Floats, b: Floats) -> Floats:
    """Arithmetic, a comparison or a connective, element by element; conditions are 1 or 0."""
    match fn:
        case "+":
            return a + b
        case "-":
            return a - b
        case "*":
            return a * b
        case "/":
            return a / b
        case "^":
            return np.power(a, b)
        case "==":
            true = a == b
        case "!=":
            true = a != b
        case "<":
            true = a < b
        case "<=":
            true = a <= b
        case ">":
            true = a > b
        case ">=":
            true = a >= b
        case "and":
            true = (a != 0) & (b != 0)
        case _:
            true = (a != 0) | (b != 0)
    return true.astype(float)


def call(fn: Function, args: list[Floats]) -> Floats:
    """A function, element by element."""
    match fn:
        case "sigmoid":
            return 1.0 / (1.0 + np.exp(-args[0]))
        case "log":
            return np.log(args[0])
        case "exp":
            return np.exp(args[0])
        case "sqrt":
            return np.sqrt(args[0])
        case "cos":
            return np.cos(args[0])
        case "abs":
            return np.abs(args[0])
        case "floor":
            return np.floor(args[0])
        case "clip":
            return np.minimum(np.maximum(args[0], args[1]), args[2])
        case "min":
            return reduce(np.minimum, args)
        case "max":
            return reduce(np.maximum, args)


def _sum(value: Floats, keep: Bools, axis: int) -> Floats:
    """The sum along an axis in order, so that it rounds as a loop does."""
    kept = np.where(keep, value, 0.0)
    return np.take(np.add.accumulate(kept, axis=axis), [-1], axis=axis)
