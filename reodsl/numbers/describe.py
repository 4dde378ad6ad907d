"""A schedule as facts to print: longest response, budgets, weights and, on a frontier, the approximation error."""

from __future__ import annotations

from typing import NotRequired, TypedDict

from reodsl.numbers.budgets import Schedule
from reodsl.numbers.curves import Curves
from reodsl.numbers.greedy import approximation_error
from reodsl.numbers.weights import trapezoid


class ScheduleFacts(TypedDict):
    """Tokens and trapezoid weights c_1 … c_{N+1} (the last is that of `l_max`); the error is relative and signed."""

    l_max: int
    budgets: list[int]
    weights: list[float]
    approximation_error: NotRequired[float]


def describe_schedule(schedule: Schedule, frontier: Curves | None = None) -> ScheduleFacts:
    """`{"l_max", "budgets", "weights"}`, and `"approximation_error"` where there is a frontier to measure it on."""
    facts = ScheduleFacts(
        l_max=schedule.l_max, budgets=list(schedule.budgets), weights=list(trapezoid(schedule))
    )
    if frontier is not None:
        facts["approximation_error"] = approximation_error(frontier, schedule)
    return facts
