"""The distribution of lengths, from a mean and a maximum: how many responses are left at each token."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cache

_EULER = 0.5772156649015329


@dataclass(frozen=True, slots=True)
class Lengths:
    """Exponential lengths with scale `scale`, cut off at `longest`; `mean` is after the cut.

    One parameter is all that a mean gives, and a constant rate of ending is the plainest choice. `scale` is infinite
    where every response reaches the maximum.
    """

    mean: float
    longest: float
    scale: float

    @staticmethod
    @cache
    def of(mean: float, longest: float) -> Lengths:
        """The lengths with this mean; one at or past `longest` means that all are that long."""
        mean = max(mean, 1e-9)
        if mean >= longest * 0.9999:
            return Lengths(longest, longest, math.inf)
        low, high = math.log(mean / 2), math.log(longest * 1e5)
        for _ in range(80):
            middle = (low + high) / 2
            scale = math.exp(middle)
            if -scale * math.expm1(-longest / scale) < mean:
                low = middle
            else:
                high = middle
        return Lengths(mean, longest, math.exp(high))

    def beyond(self, tokens: float) -> float:
        """The share of responses that are longer than `tokens`."""
        if tokens >= self.longest:
            return 0.0
        return 1.0 if math.isinf(self.scale) else math.exp(-tokens / self.scale)

    def quantiles(self, count: int) -> list[float]:
        """Lengths that stand for equal shares of all: the middle of each share, so that their mean is near the mean."""
        return [self._at((i + 0.5) / count) for i in range(count)]

    def _at(self, share: float) -> float:
        """The length that this share of all responses does not pass."""
        if math.isinf(self.scale):
            return self.longest
        return min(self.longest, -self.scale * math.log1p(-share))

    def moment(self, power: int) -> float:
        """The mean of the length to this power, a whole number of at least 1."""
        if math.isinf(self.scale):
            return self.longest**power
        ratio = self.longest / self.scale
        # The incomplete gamma function of a whole number: its series from `power` on, where one minus the rest would cancel.
        terms = [ratio**k / math.factorial(k) for k in range(power + 30 if ratio < 1 else power)]
        inside = math.exp(-ratio) * sum(terms[power:]) if ratio < 1 else 1 - math.exp(-ratio) * sum(terms)
        return math.factorial(power) * self.scale**power * inside

    @property
    def square(self) -> float:
        """The mean of the squared length."""
        return self.moment(2)

    def longest_of(self, count: float) -> float:
        """About how long the longest of `count` responses is: the scale times the harmonic number."""
        if math.isinf(self.scale):
            return self.longest
        expected = self.scale * (math.log(max(count, 1.0)) + _EULER)
        return min(self.longest, max(expected, self.mean))
