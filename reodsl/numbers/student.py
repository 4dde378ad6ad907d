"""Student's t: a probability and degrees of freedom, a whole number or not, to the quantile."""

from __future__ import annotations

import math
from functools import lru_cache
from statistics import NormalDist

MANY = 1e9
"""Degrees of freedom above which Student's t is the normal distribution, to nine digits."""

_STEPS = 200
"""Halvings of an interval and terms of a continued fraction, either of which settles long before."""


@lru_cache(maxsize=4096)
def t_quantile(probability: float, df: float) -> float:
    """The t with `probability` below it, to within rounding. `probability` is in (0, 1) and `df` above 0."""
    if df > MANY:
        return NormalDist().inv_cdf(probability)
    if probability < 0.5:
        return -t_quantile(1 - probability, df)
    low, high = 0.0, 1.0
    while t_probability(high, df) < probability and high < 1e300:
        low, high = high, high * 2
    for _ in range(_STEPS):
        middle = (low + high) / 2
        if not low < middle < high:
            break
        if t_probability(middle, df) < probability:
            low = middle
        else:
            high = middle
    return (low + high) / 2


def t_probability(t: float, df: float) -> float:
    """The probability below `t`, which is 0 or more: 1 - I(df / (df + t^2); df/2, 1/2) / 2."""
    return 1 - incomplete_beta(df / (df + t * t), df / 2, 0.5) / 2


def incomplete_beta(x: float, a: float, b: float) -> float:
    """The regularised incomplete beta function, by its continued fraction (DLMF 8.17.22), evaluated as Lentz does."""
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
    c, d = 1.0, 1 / _apart(1 - (a + b) * x / (a + 1), tiny)
    value = d
    for m in range(1, _STEPS):
        for term in (
            m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m)),
            -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1)),
        ):
            d = 1 / _apart(1 + term * d, tiny)
            c = _apart(1 + term / c, tiny)
            value *= c * d
        if abs(c * d - 1) < 1e-16:
            break
    return value


def _apart(value: float, tiny: float) -> float:
    return value if abs(value) > tiny else tiny
