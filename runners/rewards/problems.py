"""Problems of a reward on real responses: each names the reward and the values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from reodsl.diagnostics import Problem, problem


def not_finite(
    reward: str, question: str, rollout: int, split: int | None, value: float, seen: Mapping[str, float]
) -> Problem:
    """Return the error of a reward that is NaN or infinite."""
    at = "" if split is None else f", split {split + 1}"
    return problem(
        "E0920",
        f"the reward `{reward}` is {value} for a response",
        where=f"question {question}, rollout {rollout}{at}",
        notes=["there " + ", ".join(f"{name} = {number:g}" for name, number in seen.items())] if seen else [],
        help="guard the division, logarithm or root with `if`, `max(…, 1)` or `clip`, and give aggregates an `empty:`",
    )


def cut_needs_verdict(reward: str) -> Problem:
    """Return the error of a cut whose place depends on what is found by cutting."""
    return problem(
        "E0921",
        f"the reward `{reward}` cuts a response at a place that depends on whether answers are right",
        where=f"reward {reward}",
        help="make cuts from budgets, lengths and given numbers alone",
    )


def given_missing(reward: str, field: str, available: Sequence[str]) -> Problem:
    """Return the error of a number of the question that the data does not give."""
    there = ", ".join(f"`{name}`" for name in available) or "none"
    return problem(
        "E0922",
        f"the reward `{reward}` uses the given number `{field}`, which the questions do not have",
        where=f"reward {reward}",
        notes=[f"given numbers of the questions: {there}"],
        help="add the number to the questions' `meta`, or use one that is there",
    )


def reference_missing(reward: str) -> Problem:
    """Return the error of statistics over `ref` without reference samples."""
    return problem(
        "E0923",
        f"the reward `{reward}` uses the reference's responses, and there are none for this question",
        where=f"reward {reward}",
        help="set `reference_samples` to at least 1, so that the starting model's responses are sampled first",
    )


def reference_not_cut(reward: str) -> Problem:
    """Return the error of forced or bare answers of reference samples, which are never cut."""
    return problem(
        "E0924",
        f"the reward `{reward}` cuts the reference's responses, which are only measured whole",
        where=f"reward {reward}",
        help="use `len(z)` and `correct(z)` over `ref`, and cut the responses of `group`",
    )
