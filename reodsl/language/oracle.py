"""Oracle budgets of a published frontier, found while the spec is read."""

from __future__ import annotations

from reodsl.language.values import Record
from reodsl.numbers.budgets import Schedule


def greedy_budgets(frontier: Record, l_max: int, n: int, step: int) -> Schedule:
    """The greedy schedule on a frontier given as numbers. Raises `Problem` where the frontier does not reach."""
    from reodsl.numbers.curves import Curve
    from reodsl.numbers.greedy import greedy

    curve = Curve(tuple(frontier.data("budgets")), tuple(float(a) for a in frontier.data("accuracy")))
    return greedy({frontier.data("benchmark"): curve}, l_max, n, step)
