"""Oracle budgets: from a frontier to the budgets that a greedy search picks, and the error any schedule makes."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from reodsl.numbers.budgets import BudgetError, Schedule, check_count, check_l_max, tokens, whole
from reodsl.numbers.curves import Curves, average, span_text

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

# Errors this close, relative to S, are equal: what is left between them is rounding, and the smallest budget wins.
TIE = 1e-12


@dataclass(frozen=True, slots=True)
class Pick:
    """A budget in the order of picking, and the relative, signed error (f - S) / S once it is in."""

    budget: int
    error: float


def greedy(frontier: Curves, l_max: int, n: int, step: int = 1) -> Schedule:
    """The paper's REO-RL (Oracle): `n` budgets picked one at a time, each bringing |f - S| lowest given those before.

    On the mean over benchmarks J: S = sum of J(L) over L = 1 … l_max, linear between points;
    f = (L_1 / 2) J(0) + sum of c_i J(L_i) with trapezoid weights. Candidates are the multiples of `step` below
    `l_max`; the smallest wins a tie. Raises `BudgetError` where the frontier does not cover 0 to `l_max`.
    """
    return Schedule(tuple(sorted(pick.budget for pick in picks(frontier, l_max, n, step))), l_max)


def picks(frontier: Curves, l_max: int, n: int, step: int = 1) -> tuple[Pick, ...]:
    """The picks behind `greedy` in their order, with the error after each."""
    import numpy as np

    check_l_max(l_max)
    check_count(n, l_max)
    whole(step, "the candidates' step")
    if not 1 <= step <= l_max - 1 or (l_max - 1) // step < n:
        count = (l_max - 1) // step if step >= 1 else 0
        raise BudgetError(
            "setting",
            f"a step of {tokens(step)} leaves {count} candidates below {tokens(l_max)} for {n} budgets",
            (step, l_max, n),
            "take a smaller step or fewer budgets",
        )
    j = rewards(frontier, l_max)
    total = sum_of(j)
    candidates = np.arange(step, l_max, step)
    chosen: list[int] = []
    found: list[Pick] = []
    for _ in range(n):
        errors = (areas_with(j, candidates, chosen, l_max) - total) / total
        size = np.abs(errors)
        best = int(np.flatnonzero(size <= size.min() + TIE)[0])
        found.append(Pick(int(candidates[best]), float(errors[best])))
        chosen.append(int(candidates[best]))
        candidates = np.delete(candidates, best)
    return tuple(found)


def approximation_error(frontier: Curves, schedule: Schedule) -> float:
    """(f - S) / S of a schedule on a frontier's mean over benchmarks: relative and signed."""
    j = rewards(frontier, schedule.l_max)
    total = sum_of(j)
    return (area(j, schedule.splits) - total) / total


def rewards(frontier: Curves, l_max: int) -> NDArray[np.float64]:
    """J(0) … J(l_max) of the mean over benchmarks, shape [l_max + 1], linear between the frontier's points."""
    import numpy as np

    curve = average(frontier)
    if curve.budgets[0] > 0 or curve.budgets[-1] < l_max:
        raise BudgetError(
            "uncovered",
            f"the frontier covers {span_text(curve)}, and 0 to {tokens(l_max)} are needed",
            (curve.budgets[0], curve.budgets[-1], l_max),
            "use a frontier that starts at 0 and reaches the longest response",
        )
    return np.interp(np.arange(l_max + 1), curve.budgets, curve.accuracy)


def sum_of(j: NDArray[np.float64]) -> float:
    """S = J(1) + … + J(l_max), exactly rounded; a frontier without any reward has no relative error."""
    total = math.fsum(j[1:])
    if total <= 0:
        raise BudgetError(
            "uncovered",
            "the frontier is 0 at every budget, and an error relative to nothing is none",
            (),
            "use a frontier on which some model is right at some budget",
        )
    return total


def area(j: NDArray[np.float64], splits: Sequence[int]) -> float:
    """f: the trapezoid rule through J(0) and J at the splits, the last of which is l_max."""
    points = (0, *splits)
    return math.fsum((b - a) * (j[a] + j[b]) / 2 for a, b in itertools.pairwise(points))


def areas_with(
    j: NDArray[np.float64], candidates: NDArray[np.int64], chosen: Sequence[int], l_max: int
) -> NDArray[np.float64]:
    """f with each of the candidates added to the chosen, shape of `candidates`."""
    import numpy as np

    splits = (*sorted(chosen), l_max)
    points = np.array((0, *splits))
    right = np.searchsorted(points, candidates)
    a, b = points[right - 1], points[right]
    # A point between a and b only replaces their one trapezoid by two.
    change = ((candidates - a) * (j[a] + j[candidates]) + (b - candidates) * (j[candidates] + j[b])) / 2
    areas: NDArray[np.float64] = area(j, splits) + change - (b - a) * (j[a] + j[b]) / 2
    return areas
