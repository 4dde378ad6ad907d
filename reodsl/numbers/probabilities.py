"""Probabilities: quantiles of Student's t, and adjustment for many comparisons at once."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache
from statistics import NormalDist

MANY = 1e9
"""Degrees of freedom above which Student's t is the normal distribution, to nine digits."""

_STEPS = 200
"""Newton's steps and terms of a continued fraction, either of which settles long before."""


@lru_cache(maxsize=4096)
def t_quantile(probability: float, df: float) -> float:
    """Return the t with `probability` below it, to within rounding, for `probability` in (0, 1) and `df` above 0."""
    if df > MANY:
        return NormalDist().inv_cdf(probability)
    if probability < 0.5:
        return -t_quantile(1 - probability, df)
    # Newton's steps rise to the quantile and never pass it: the normal one is below, and the density falls.
    t = NormalDist().inv_cdf(probability)
    front = math.exp(math.lgamma((df + 1) / 2) - math.lgamma(df / 2)) / math.sqrt(df * math.pi)
    for _ in range(_STEPS):
        density = front * math.exp(-(df + 1) / 2 * math.log1p(t * t / df))
        step = (probability - t_probability(t, df)) / density
        t += max(step, 0.0)
        if step <= 1e-14 * t:
            break
    return t


def t_probability(t: float, df: float) -> float:
    """Return the probability below `t`, which is 0 or more: 1 - I(df / (df + t^2); df/2, 1/2) / 2."""
    if df > MANY:
        return NormalDist().cdf(t)
    return 1 - incomplete_beta(df / (df + t * t), df / 2, 0.5) / 2


def incomplete_beta(x: float, a: float, b: float) -> float:
    """Compute the regularised incomplete beta function by its continued fraction (DLMF 8.17.22), after Lentz."""
    if x <= 0 or x >= 1:
        return float(x >= 1)
    front = math.exp(
        math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b) + a * math.log(x) + b * math.log1p(-x)
    )
    if x > (a + 1) / (a + b + 2):
        return 1 - front / b * _fraction(1 - x, b, a)
    return front / a * _fraction(x, a, b)


def _fraction(x: float, a: float, b: float) -> float:
    tiny = 1e-300
    c, d = 1.0, 1 / _away_from_zero(1 - (a + b) * x / (a + 1), tiny)
    value = d
    for m in range(1, _STEPS):
        for term in (
            m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m)),
            -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1)),
        ):
            d = 1 / _away_from_zero(1 + term * d, tiny)
            c = _away_from_zero(1 + term / c, tiny)
            value *= c * d
        if abs(c * d - 1) < 1e-16:
            break
    return value


def _away_from_zero(value: float, tiny: float) -> float:
    return value if abs(value) > tiny else tiny


def holm(p_values: Sequence[float]) -> list[float]:
    """Return each probability adjusted for all of them (Holm 1979), in their order."""
    order = sorted(range(len(p_values)), key=lambda index: p_values[index])
    adjusted = [0.0] * len(p_values)
    largest = 0.0
    for rank, index in enumerate(order):
        largest = max(largest, min(1.0, (len(p_values) - rank) * p_values[index]))
        adjusted[index] = largest
    return adjusted
