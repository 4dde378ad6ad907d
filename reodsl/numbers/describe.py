"""A schedule as facts to print: longest response, budgets, weights and, on a frontier, the approximation error."""

from __future__ import annotations

from reodsl.numbers.budgets import Schedule
from reodsl.numbers.curves import Curves
from reodsl.numbers.greedy import approximation_error
from reodsl.numbers.weights import trapezoid


def describe_schedule(schedule: Schedule, frontier: Curves | None = None) -> dict[str, object]:
    """`{"l_max", "budgets", "weights"}`, tokens and trapezoid weights c_1 … c_{N+1} (the last is that of `l_max`).

    With a frontier also `"approximation_error"`, relative and signed.
    """
    facts: dict[str, object] = {
        "l_max": schedule.l_max,
        "budgets": list(schedule.budgets),
        "weights": list(trapezoid(schedule)),
    }
    if frontier is not None:
        facts["approximation_error"] = approximation_error(frontier, schedule)
    return facts
