"""Weights: from a schedule to the coefficient c_i of each of its splits L_1 … L_{N+1}."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from reodsl.numbers.budgets import Schedule

Rule = Literal["trapezoid", "uniform", "half_first"]


def coefficients(rule: Rule, budgets: Sequence[int], l_max: int) -> tuple[float, ...]:
    """c_1 … c_{N+1} for budgets L_1 ≤ … ≤ L_N ≤ l_max, in tokens.

    `trapezoid`: c_i = (L_{i+1} - L_{i-1}) / 2 and c_{N+1} = (l_max - L_N) / 2, with L_0 = 0. `uniform`: all 1.
    `half_first`: as `trapezoid`, with c_1 = L_1 / 2, which is how Q-Spec's is printed. A budget may equal
    `l_max` here, as a question's own can; the last weight is then 0.
    """
    if rule == "uniform":
        return (1.0,) * (len(budgets) + 1)
    points = (0, *budgets, l_max)
    inner = [(points[i + 1] - points[i - 1]) / 2 for i in range(1, len(budgets) + 1)]
    if rule == "half_first" and budgets:
        inner[0] = budgets[0] / 2
    return (*inner, (l_max - points[-2]) / 2)


def trapezoid(schedule: Schedule) -> tuple[float, ...]:
    """The paper's c_i for i = 1 … N+1; they sum to `l_max - L_1 / 2`."""
    return coefficients("trapezoid", schedule.budgets, schedule.l_max)
