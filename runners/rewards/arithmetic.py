"""The functions of the reward language on single numbers, with IEEE results where Python would raise."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from reodsl.ir.expression import Function

ROUNDING = 1e-9
"""Values count as equal if their distances from the mean are at most this share of the largest absolute value."""


def divide(a: float, b: float) -> float:
    """Return `a / b` as IEEE floats do: an infinity for a division by zero, and NaN for 0 / 0 or NaN / 0."""
    if b != 0:
        return a / b
    return math.nan if a == 0 or math.isnan(a) else math.copysign(math.inf, a) * math.copysign(1.0, b)


def power(a: float, b: float) -> float:
    """Return `a ^ b` over the reals: NaN if the result would be complex, and an infinity if it exceeds all floats.

    Zero to a negative power is an infinity too.
    """
    try:
        return math.pow(a, b)
    except OverflowError:
        return -math.inf if a < 0 and b % 2 == 1 else math.inf
    except ValueError:
        # Zero to a negative power is a pole; a negative base to a fractional power is not real.
        if a == 0:
            return math.copysign(math.inf, a) if b % 2 == 1 else math.inf
        return math.nan


def logarithm(x: float) -> float:
    """Return the natural logarithm; minus infinity at 0, NaN below."""
    return math.log(x) if x > 0 else (-math.inf if x == 0 else math.nan)


def exponential(x: float) -> float:
    """Return e^x, or infinity if the result exceeds all floats."""
    try:
        return math.exp(x)
    except OverflowError:
        return math.inf


def root(x: float) -> float:
    """Return the square root; NaN below 0."""
    return math.sqrt(x) if x >= 0 else math.nan


def cosine(x: float) -> float:
    """Return the cosine of x radians; NaN of an infinity."""
    return math.nan if math.isinf(x) else math.cos(x)


def floor(x: float) -> float:
    """Return the greatest integer that is at most x, as a float; return NaN and infinities unchanged."""
    return float(math.floor(x)) if math.isfinite(x) else x


def sigmoid(x: float) -> float:
    """Return 1 / (1 + e^-x)."""
    return 1.0 / (1.0 + exponential(-x))


def least(values: Sequence[float]) -> float:
    """Return the smallest value, or NaN if a value is NaN."""
    return math.nan if any(math.isnan(v) for v in values) else min(values)


def greatest(values: Sequence[float]) -> float:
    """Return the largest value, or NaN if a value is NaN."""
    return math.nan if any(math.isnan(v) for v in values) else max(values)


def clip(x: float, low: float, high: float) -> float:
    """Return `x` clipped to the range from `low` to `high`; `high` if `low` exceeds `high`."""
    return least((greatest((x, low)), high))


def choose(n: float, k: float) -> float:
    """Return the binomial coefficient C(n, k) as a float, or infinity if it exceeds all floats.

    Fractions are rounded down. The result is 0 if k is below 0 or above n, and NaN if n or k is not finite.
    """
    if not (math.isfinite(n) and math.isfinite(k)):
        return math.nan
    n_floor, k_floor = math.floor(n), math.floor(k)
    if not 0 <= k_floor <= n_floor:
        return 0.0
    k_floor = min(k_floor, n_floor - k_floor)
    try:
        # C(n, k) is at least 2^k for n >= 2 k: larger values exceed all floats and would take long to compute.
        return float(math.comb(n_floor, k_floor)) if k_floor < 1024 else math.inf
    except OverflowError:
        return math.inf


def mean(values: Sequence[float]) -> float:
    """Return the mean, summed in the order of the values, and clipped to their range because sums round."""
    return clip(sum(values) / len(values), least(values), greatest(values))


def deviation(values: Sequence[float]) -> float:
    """Return the population standard deviation; 0 if the values are equal except for rounding (`ROUNDING`)."""
    centre = mean(values)
    gaps, bound = [v - centre for v in values], ROUNDING * max(map(abs, values))
    return 0.0 if all(abs(gap) <= bound for gap in gaps) else root(mean([gap * gap for gap in gaps]))


def median(values: Sequence[float]) -> float:
    """Return the middle value, or the mean of the two middle values; NaN if a value is NaN."""
    if any(math.isnan(v) for v in values):
        return math.nan
    ordered, half = sorted(values), len(values) // 2
    return ordered[half] if len(values) % 2 else (ordered[half - 1] + ordered[half]) / 2


def quantile(values: Sequence[float], share: float) -> float:
    """Return the smallest value v such that at least the share `share` (0 to 1) of the values is at most v."""
    # The margin absorbs rounding, e.g. of a share of 1/3 of 6 values.
    rank = math.ceil(share * len(values) - 1e-9)
    return float(sorted(values)[min(max(rank, 1), len(values)) - 1])


BINARY: dict[str, Callable[[float, float], float]] = {
    "+": lambda a, b: a + b,
    "-": lambda a, b: a - b,
    "*": lambda a, b: a * b,
    "/": divide,
    "^": power,
    "==": lambda a, b: float(a == b),
    "!=": lambda a, b: float(a != b),
    "<": lambda a, b: float(a < b),
    "<=": lambda a, b: float(a <= b),
    ">": lambda a, b: float(a > b),
    ">=": lambda a, b: float(a >= b),
    "and": lambda a, b: float(a != 0 and b != 0),
    "or": lambda a, b: float(a != 0 or b != 0),
}

STATISTICS: dict[str, Callable[[Sequence[float]], float]] = {
    "mean": mean,
    "std": deviation,
    "min": least,
    "max": greatest,
    "sum": lambda values: float(sum(values)),
    "median": median,
}

FUNCTIONS: dict[Function, Callable[..., float]] = {
    "sigmoid": sigmoid,
    "log": logarithm,
    "exp": exponential,
    "sqrt": root,
    "cos": cosine,
    "abs": abs,
    "floor": floor,
    "min": lambda *values: least(values),
    "max": lambda *values: greatest(values),
    "clip": clip,
    "choose": choose,
}
