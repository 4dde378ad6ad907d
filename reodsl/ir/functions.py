"""The functions of numbers in rewards, a row each: how many numbers, of which units, where, and the range of values."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, TypeAlias

Ends: TypeAlias = tuple[float, float]
Function: TypeAlias = Literal[
    "sigmoid", "log", "exp", "sqrt", "cos", "abs", "floor", "min", "max", "clip", "choose"
]


@dataclass(frozen=True, slots=True)
class Domain:
    """The numbers of 0 or more at which a function has a value: 0 itself too where it is not `open`.

    `why` says why others have none. `mend` helps where the argument reaches above `bound`, `otherwise` helps elsewhere.
    """

    open: bool
    why: str
    bound: float
    mend: str
    otherwise: str

    def contains(self, low: float) -> bool:
        """Return whether a function has a value at `low` and above."""
        return low > 0 or (low == 0 and not self.open)


@dataclass(frozen=True, slots=True)
class Signature:
    """The types of a function. `range` returns the range of its values, from those of its arguments.

    A function takes `arity` numbers, or `more`. A `plain` one takes numbers without a unit and gives one; any other
    gives a number in the unit of its first. `written` is its call for readers, where it is not the name alone.
    """

    range: Callable[..., Ends]
    arity: int = 1
    more: bool = False
    plain: bool = False
    domain: Domain | None = None
    written: str = ""


def _cos(x: Ends) -> Ends:
    return (math.cos(x[1]), math.cos(x[0])) if x[0] >= 0 and x[1] <= math.pi else (-1.0, 1.0)


def _abs(x: Ends) -> Ends:
    ends = abs(x[0]), abs(x[1])
    return 0.0 if x[0] <= 0 <= x[1] else min(ends), max(ends)


def _clip(x: Ends, low: Ends, high: Ends) -> Ends:
    return min(max(x[0], low[0]), high[0]), min(max(x[1], low[1]), high[1])


def _rising(fn: Callable[[float], float]) -> Callable[[Ends], Ends]:
    return lambda x: tuple(end if math.isinf(end) else float(fn(end)) for end in x)  # type: ignore[return-value]


FUNCTIONS: dict[Function, Signature] = {
    "sigmoid": Signature(lambda x: (0.0, 1.0), plain=True),
    "log": Signature(
        _rising(math.log),
        plain=True,
        domain=Domain(
            True,
            "the logarithm of 0 or less is not a number",
            1e-6,
            "keep it above 0: `max(…, 1e-6)`",
            "take what it is away from 0: `abs(…) + 1e-6`",
        ),
    ),
    "sqrt": Signature(
        _rising(math.sqrt),
        plain=True,
        domain=Domain(
            False,
            "the root of a negative number is not a number",
            0.0,
            "keep it at 0 or above: `max(…, 0)`",
            "take what it is away from 0: `abs(…)`",
        ),
    ),
    "cos": Signature(_cos, plain=True),
    "abs": Signature(_abs),
    "floor": Signature(_rising(math.floor)),
    "min": Signature(lambda *xs: (min(x[0] for x in xs), min(x[1] for x in xs)), 2, more=True),
    "max": Signature(lambda *xs: (max(x[0] for x in xs), max(x[1] for x in xs)), 2, more=True),
    "clip": Signature(_clip, 3, written="clip(x, low, high)"),
    "choose": Signature(
        lambda n, k: (float(k[0] >= 0 and k[1] <= n[0]), math.inf), 2, plain=True, written="choose(n, k)"
    ),
    "exp": Signature(lambda x: (0.0, math.exp(x[1])), plain=True, written="e^x"),
}
