"""Budgets chosen on a frontier, or for each question from its rollouts."""

from __future__ import annotations

import itertools
import math
from array import array
from bisect import bisect_left, insort
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from reodsl.diagnostics import problem
from reodsl.numbers.budgets import (
    BudgetError,
    Schedule,
    check_count,
    check_l_max,
    require_whole,
    tokens,
    trapezoid,
)
from reodsl.numbers.curves import Curves, average, span_text

# Errors that differ by less than this share of S differ by rounding only, and the smallest of their budgets wins.
TIE_SHARE = 1e-12


@dataclass(frozen=True, slots=True)
class PickedBudget:
    """A picked budget in tokens, and the relative, signed error (f - S) / S after it is added."""

    budget: int
    error: float


def greedy(frontier: Curves, l_max: int, n: int, step: int = 1) -> Schedule:
    """Return the paper's REO-RL (Oracle) schedule of `n` budgets, chosen greedily on a frontier.

    Each budget in turn is the candidate that, added to the budgets chosen before it, minimizes |f - S|. J is the
    frontier's mean over benchmarks, linear between points. S is the sum of J(L) over L = 1 … l_max. f estimates S from
    the budgets alone: (L_1 / 2) J(0) plus the sum of c_i J(L_i), with trapezoid weights c_i.

    Args:
        frontier: Accuracy by budget, for each benchmark.
        l_max: The longest response in tokens.
        n: The number of budgets.
        step: Candidates are the multiples of `step` below `l_max`; the smallest wins a tie.

    Raises:
        BudgetError: The frontier does not cover 0 to `l_max`, or there are fewer candidates than budgets.
    """
    return Schedule(tuple(sorted(pick.budget for pick in picks(frontier, l_max, n, step))), l_max)


def picks(frontier: Curves, l_max: int, n: int, step: int = 1) -> tuple[PickedBudget, ...]:
    """Return the budgets of `greedy` in the order in which they are chosen, each with the error after its choice.

    Args:
        frontier: Accuracy by budget, for each benchmark.
        l_max: The longest response in tokens.
        n: The number of budgets.
        step: The distance of candidates in tokens.

    Raises:
        BudgetError: The frontier does not cover 0 to `l_max`, or there are fewer candidates than budgets.
    """
    check_l_max(l_max)
    check_count(n, l_max)
    require_whole(step, "the candidates' step")
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
    candidates = array("q", range(step, l_max, step))
    gains = gains_of(j, candidates, 0, l_max)
    points = [0, l_max]
    picked: list[PickedBudget] = []
    for _ in range(n):
        missing = total - area(j, points[1:])
        tie = min(map(abs, map(missing.__rsub__, gains))) + TIE_SHARE * total
        best = next(i for i, gain in enumerate(gains) if abs(gain - missing) <= tie)
        picked.append(PickedBudget(candidates[best], (gains[best] - missing) / total))
        budget = candidates.pop(best)
        del gains[best]
        insort(points, budget)
        # The new point changes only the gains of candidates between its two neighbours.
        i = bisect_left(points, budget)
        for a, b in itertools.pairwise(points[i - 1 : i + 2]):
            first, last = bisect_left(candidates, a), bisect_left(candidates, b)
            gains[first:last] = gains_of(j, candidates[first:last], a, b)
    return tuple(picked)


def approximation_error(frontier: Curves, schedule: Schedule) -> float:
    """Return the relative error (f - S) / S of a schedule on a frontier's mean over benchmarks.

    f is the trapezoid sum at the schedule's budgets and S the sum of the accuracy at every budget.

    Returns:
        The signed error as a share of S.
    """
    j = rewards(frontier, schedule.l_max)
    total = sum_of(j)
    return (area(j, schedule.splits) - total) / total


def rewards(frontier: Curves, l_max: int) -> array[float]:
    """Return J(0) … J(l_max), the mean accuracy over benchmarks at each budget, linear between the frontier's points.

    Returns:
        l_max + 1 accuracies, 0 to 1.

    Raises:
        BudgetError: The frontier does not cover 0 to `l_max`.
    """
    curve = average(frontier)
    if curve.budgets[0] > 0 or curve.budgets[-1] < l_max:
        raise BudgetError(
            "uncovered",
            f"the frontier covers {span_text(curve)}, and 0 to {tokens(l_max)} are needed",
            (curve.budgets[0], curve.budgets[-1], l_max),
            "use a frontier that starts at 0 and reaches the longest response",
        )
    j = array("d")
    for (x0, y0), (x1, y1) in itertools.pairwise(zip(curve.budgets, curve.accuracy, strict=True)):
        slope = (y1 - y0) / (x1 - x0)
        j.extend(slope * (x - x0) + y0 for x in range(x0, min(x1, l_max + 1)))
    if len(j) <= l_max:
        j.append(curve.accuracy[-1])
    return j


def sum_of(j: Sequence[float]) -> float:
    """Return S = J(1) + … + J(l_max), exactly rounded.

    Returns:
        Accuracy times tokens, above 0.

    Raises:
        BudgetError: The frontier is 0 at every budget, and a relative error is undefined.
    """
    total = math.fsum(itertools.islice(j, 1, None))
    if total <= 0:
        raise BudgetError(
            "uncovered",
            "the frontier is 0 at every budget, so the relative error is undefined",
            (),
            "use a frontier on which some model is right at some budget",
        )
    return total


def area(j: Sequence[float], splits: Sequence[int]) -> float:
    """Return f, the area by the trapezoid rule through J(0) and the accuracies at the budgets of a schedule.

    Args:
        j: Accuracy at each budget from 0 to l_max.
        splits: The schedule's budgets in tokens, and l_max last.

    Returns:
        Accuracy times tokens.
    """
    points = (0, *splits)
    return math.fsum((b - a) * (j[a] + j[b]) / 2 for a, b in itertools.pairwise(points))


def gains_of(j: Sequence[float], candidates: Sequence[int], a: int, b: int) -> array[float]:
    """Return how much each candidate adds to f if it becomes a point between the neighbouring points `a` and `b`.

    Args:
        j: Accuracy at each budget from 0 to l_max.
        candidates: Budgets between `a` and `b`, in tokens.
        a: The point before the candidates, in tokens.
        b: The point after the candidates, in tokens.

    Returns:
        For each candidate, two trapezoids minus the trapezoid that they replace: accuracy times tokens.
    """
    left, right, before = j[a], j[b], (b - a) * (j[a] + j[b]) / 2
    return array("d", (((c - a) * (left + j[c]) + (b - c) * (j[c] + right)) / 2 - before for c in candidates))


def describe_schedule(schedule: Schedule, frontier: Curves | None = None) -> dict[str, Any]:
    """Return a schedule as `{"l_max", "budgets", "weights"}`, with a frontier also `"approximation_error"`.

    `budgets` are tokens. `weights` are the trapezoid rule's, the weight of `l_max` last. The error is that of the
    trapezoid sum, as a signed share of the frontier's sum over all budgets.
    """
    facts = {"l_max": schedule.l_max, "budgets": list(schedule.budgets), "weights": list(trapezoid(schedule))}
    return facts | (
        {"approximation_error": approximation_error(frontier, schedule)} if frontier is not None else {}
    )


Unsolved = Literal["formula", "l_max", "drop"]
Changes = Sequence[tuple[int, bool]]
"""The verdicts on a rollout's prefixes: `(tokens, correct)` at each change, in ascending order; wrong before the first."""


@dataclass(frozen=True, slots=True)
class QuestionMinimum:
    """The budget L^x of each question in tokens, and the `unsolved` questions, on which no rollout is right at `l_max`."""

    budgets: dict[str, int]
    l_max: int
    unsolved: tuple[str, ...]


@dataclass(slots=True)
class _GroupResults:
    """Results of a question's groups: the smallest budget at which a group has each mean, and the best mean at `l_max`."""

    first: dict[float, int] = field(default_factory=dict)
    full: float = 0.0


def question_min(
    groups: Iterable[tuple[str, Sequence[Changes]]], l_max: int, unsolved: Unsolved = "formula"
) -> QuestionMinimum:
    """Return the budget L^x of each question x, as in the paper's REO-RL (Q-Spec).

    The best accuracy at `l_max` is the largest of all groups of rollouts to the question. L^x is the least budget at
    which the accuracy of any group reaches this value; as in the paper's formula, it may be another group. Only budgets
    at which an answer changes have to be compared.

    Args:
        groups: Pairs of a question and the rollouts that one checkpoint generated for it, in any order. A question has
            a pair for each checkpoint.
        l_max: The longest response in tokens.
        unsolved: The budget of a question on which no group is right at `l_max`. `formula` gives L^x = 1, as the
            paper's formula does, since every budget is as good as `l_max`. `l_max` gives the largest budget, at which
            only complete responses count. `drop` removes the question.

    Raises:
        Problem: E0405 for a group without rollouts, changes that do not ascend from 1, or an `l_max` below 1.
    """
    if l_max < 1:
        raise problem(
            "E0405",
            f"the longest response is {l_max} tokens, but question budgets need at least 1",
            help="give the length of the longest response in tokens",
        )
    results_of: dict[str, _GroupResults] = {}
    for question, rollouts in groups:
        results = results_of.setdefault(question, _GroupResults())
        mean = 0.0
        for count, mean in means(question, rollouts, l_max):
            results.first[mean] = min(count, results.first.get(mean, count))
        results.full = max(mean, results.full)
    budgets: dict[str, int] = {}
    unsolved_questions: list[str] = []
    for question in sorted(results_of):
        results = results_of[question]
        if results.full > 0:
            budgets[question] = min(count for mean, count in results.first.items() if mean >= results.full)
            continue
        unsolved_questions.append(question)
        if unsolved != "drop":
            budgets[question] = 1 if unsolved == "formula" else l_max
    return QuestionMinimum(budgets, l_max, tuple(unsolved_questions))


def means(question: str, rollouts: Sequence[Changes], l_max: int) -> list[tuple[int, float]]:
    """Return a group's accuracy at each budget up to `l_max` at which any answer of the group changes.

    The accuracy stays the same between two of these budgets, and is 0 before the first.

    Args:
        question: The question, for messages.
        rollouts: The group's rollouts.
        l_max: The longest response in tokens.

    Returns:
        Pairs of tokens and the share of rollouts that are right, 0 to 1.

    Raises:
        Problem: E0405 for a group without rollouts, or changes that do not ascend from 1.
    """
    if not rollouts:
        raise problem(
            "E0405",
            f"a group of question `{question}` has no rollouts",
            help="leave out groups without rollouts",
        )
    moves: Counter[int] = Counter()
    for changes in rollouts:
        right_so_far, last = False, 1
        for count, correct in changes:
            if count < last:
                raise problem(
                    "E0405",
                    f"the answers of a rollout of question `{question}` change at {count} tokens after {last}",
                    help="give the changes of each rollout in their order, the first at 1 token or later",
                )
            last = count
            if correct != right_so_far and count <= l_max:
                moves[count] += 1 if correct else -1
            right_so_far = correct
    right = 0
    changes_of_mean = []
    for count, move in sorted(moves.items()):
        right += move
        # Divisions of equal fractions are equal, so means of groups of unlike sizes can be compared.
        changes_of_mean.append((count, right / len(rollouts)))
    return changes_of_mean
