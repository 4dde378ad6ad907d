"""The grid REG integrates on: budgets, an upper end and optional settings to trapezoid points and weights."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

from reodsl.diagnostics import problem
from reodsl.numbers.budgets import MOST_TOKENS

REG_TO = 16 * 1024
FINE, COARSE = 64, 1024


def paper_grid(l_max: int = REG_TO) -> tuple[int, ...]:
    """`{64 i, 0 ≤ i < 16} ∪ {1024 i, i ≥ 1}` up to `l_max` tokens, which is the last point in any case.

    At 16K this is the paper's grid ("Evaluating Reasoning Efficiency Gap"); further up its coarse part goes on.
    """
    check_end(l_max)
    points = {*range(0, min(COARSE, l_max), FINE), *range(COARSE, l_max, COARSE), l_max}
    return tuple(sorted(points))


def integration_grid(l_max: int | None = None, grid: Sequence[int] | None = None) -> tuple[int, ...]:
    """The points to integrate on: `grid` up to `l_max`, or the paper's; `l_max` itself is always the last.

    Without `l_max` a given grid is taken whole, and the paper's ends at 16K. A grid that is not increasing, has fewer
    than two points or stops before `l_max` is a `Problem`.
    """
    if grid is None:
        return paper_grid(REG_TO if l_max is None else l_max)
    for before, after in itertools.pairwise(grid):
        if after <= before:
            raise problem(
                "E0427",
                f"the grid must increase, and {after} follows {before}",
                help="write it from the smallest to the largest budget, each once",
            )
    if not grid or grid[0] < 0 or grid[-1] > MOST_TOKENS:
        ends = f"runs from {grid[0]} to {grid[-1]} tokens" if grid else "is empty"
        raise problem("E0427", f"the grid {ends}", help=f"give budgets from 0 to {MOST_TOKENS} tokens")
    end = grid[-1] if l_max is None else l_max
    check_end(end)
    if grid[-1] < end:
        raise problem(
            "E0427",
            f"the grid stops at {grid[-1]} tokens, before {end}",
            help=f"let it reach {end}, or integrate to {grid[-1]}",
        )
    points = (*(point for point in grid if point < end), end)
    if len(points) < 2:
        raise problem(
            "E0427",
            f"the grid has no point below {end} tokens",
            help="start it at 0: an integral needs two points",
        )
    return points


def trapezoid_weights(points: Sequence[int]) -> tuple[float, ...]:
    """The weight of each point in the trapezoid integral over points."""
    widths = [b - a for a, b in itertools.pairwise(points)]
    return tuple((a + b) / 2 for a, b in zip([0, *widths], [*widths, 0], strict=True))


def check_end(l_max: int) -> None:
    """Whether an upper end of integration is in range."""
    if not 1 <= l_max <= MOST_TOKENS:
        raise problem(
            "E0427",
            f"REG is integrated to {l_max} tokens",
            help=f"integrate to 1 to {MOST_TOKENS} tokens; the paper goes to 16384",
        )
