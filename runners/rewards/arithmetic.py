"""The functions of the reward language on single numbers, with IEEE results where Python would raise."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from reodsl.ir.expression import Function

ROUNDING = 1e-9
"""The share of the largest value up to which distances from the mean are rounding: such values have no spread."""


def divide(a: float, b: float) -> float:
    """Return `a / b`; division by zero gives an infinity, or NaN for 0 / 0."""
    if b != 0:
        return a / b
    return math.nan if a == 0 or math.isnan(a) else math.copysign(math.inf, a) * math.copysign(1.0, b)


def power(a: float, b: float) -> float:
    """Return `a ^ b` over the reals: NaN if the result would be complex."""
    try:
        return math.pow(a, b)
    except OverflowError:
        return -math.inf if a < 0 and b % 2 == 1 else math.inf
    except ValueError:
        # Zero to a negative power is a pole; a negative base with a fraction above is not a real number.
        if a == 0:
            return math.copysign(math.inf, a) if b % 2 == 1 else math.inf
        return math.nan


def logarithm(x: float) -> float:
    """Return the natural logarithm; minus infinity at 0, NaN below."""
    return math.log(x) if x > 0 else (-math.inf if x == 0 else math.nan)


def exponential(x: float) -> float:
    """Return e^x, infinite past the largest float."""
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
    """Return the greatest integer that is at most x; NaN and infinities stay."""
    return float(math.floor(x)) if math.isfinite(x) else x


def sigmoid(x: float) -> float:
    """Return 1 / (1 + e^-x)."""
    return 1.0 / (1.0 + exponential(-x))


def least(values: Sequence[float]) -> float:
    """Return the smallest, or NaN if any is."""
    return math.nan if any(math.isnan(v) for v in values) else min(values)


def greatest(values: Sequence[float]) -> float:
    """Return the greatest, or NaN if any is."""
    return math.nan if any(math.isnan(v) for v in values) else max(values)


def clip(x: float, low: float, high: float) -> float:
    """Return `x` clipped to low..high; `high` wins if low exceeds it."""
    return least((greatest((x, low)), high))


def choose(n: float, k: float) -> float:
    """Return the binomial coefficient C(n, k) as a float, infinite if no float holds it.

    Fractions round down; k below 0 or above n gives 0.
    """
    if not (math.isfinite(n) and math.isfinite(k)):
        return math.nan
    n_whole, k_whole = math.floor(n), math.floor(k)
    if not 0 <= k_whole <= n_whole:
        return 0.0
    k_whole = min(k_whole, n_whole - k_whole)
    try:
        # C(n, k) is at least 2^k where n is at least 2 k: past this no float holds it, and counting would take long.
        return float(math.comb(n_whole, k_whole)) if k_whole < 1024 else math.inf
    except OverflowError:
        return math.inf


def mean(values: Sequence[float]) -> float:
    """Return the mean in the order of the values, clipped to their range against rounding."""
    return clip(sum(values) / len(values), least(values), greatest(values))


def deviation(values: Sequence[float]) -> float:
    """Return the population's standard deviation; 0 if values differ by rounding alone."""
    centre = mean(values)
    gaps, bound = [v - centre for v in values], ROUNDING * max(map(abs, values))
    if all(abs(gap) <= bound for gap in gaps):
        return 0.0
    return root(mean([gap * gap for gap in gaps]))


def median(values: Sequence[float]) -> float:
    """Return the middle value, or the mean of the middle two; NaN if any is."""
    if any(math.isnan(v) for v in values):
        return math.nan
    ordered, half = sorted(values), len(values) // 2
    return ordered[half] if len(values) % 2 else (ordered[half - 1] + ordered[half]) / 2


def quantile(values: Sequence[float], share: float) -> float:
    """Return the least value that at least the share `share` (0 to 1) of the values does not exceed."""
    # A share that is a fraction of the count, such as 1/3 of 6, is not to fail by its rounding.
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
