"""Compute the range of a product, quotient or comparison from the ranges of its parts."""

from __future__ import annotations

import math
from typing import NamedTuple

Interval = tuple[float, float]


class Room(NamedTuple):
    """The range that a condition leaves to a value, and whether the value may be 0."""

    low: float = -math.inf
    high: float = math.inf
    zero: bool = True

    @property
    def empty(self) -> bool:
        """Return whether no value fits."""
        return self.low > self.high or (self.low == self.high == 0 and not self.zero)

    def meet(self, other: Room) -> Room:
        """Return the room that two conditions leave together."""
        return Room(max(self.low, other.low), min(self.high, other.high), self.zero and other.zero)

    def join(self, other: Room) -> Room:
        """Return the room that either of two conditions leaves."""
        return Room(min(self.low, other.low), max(self.high, other.high), self.zero or other.zero)

    def within(self, low: float, high: float) -> Interval:
        """Return the part of a range that fits; the range itself where none does."""
        bounds = max(low, self.low), min(high, self.high)
        if not self.zero:
            bounds = (
                math.nextafter(0, math.inf) if bounds[0] == 0 else bounds[0],
                math.nextafter(0, -math.inf) if bounds[1] == 0 else bounds[1],
            )
        return bounds if bounds[0] <= bounds[1] else (low, high)


def contains_zero(interval: Interval) -> bool:
    """Return whether 0 is possible."""
    return interval[0] <= 0 <= interval[1]


def multiply(left: Interval, right: Interval) -> Interval:
    """Return the range of x y."""
    ends = [_times(a, b) for a in left for b in right]
    return min(ends), max(ends)


def divide(left: Interval, right: Interval) -> Interval:
    """Return the range of x / y for y of one sign; everything if y may be 0."""
    if contains_zero(right):
        return -math.inf, math.inf
    inverse = (0.0 if math.isinf(right[1]) else 1 / right[1], 0.0 if math.isinf(right[0]) else 1 / right[0])
    return multiply(left, (min(inverse), max(inverse)))


def compare_ranges(op: str, left: Interval, right: Interval) -> Interval:
    """Return the range of a comparison: (1, 1) if it always holds, (0, 0) if it never does, else (0, 1)."""
    if op in (">", ">="):
        return compare_ranges("<" + op[1:], right, left)
    if op == "!=":
        low, high = compare_ranges("==", left, right)
        return 1 - high, 1 - low
    if op == "==":
        always = left == right and left[0] == left[1]
        never = left[1] < right[0] or right[1] < left[0]
    elif op == "<":
        always, never = left[1] < right[0], left[0] >= right[1]
    else:
        always, never = left[1] <= right[0], left[0] > right[1]
    return (1.0, 1.0) if always else (0.0, 0.0) if never else (0.0, 1.0)


def _times(a: float, b: float) -> float:
    return 0.0 if a == 0 or b == 0 else a * b
