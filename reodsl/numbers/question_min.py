"""Q-Spec budgets: the smallest budget of each question, from where the answers of its rollouts change."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Literal

from reodsl.diagnostics import problem

Unsolved = Literal["formula", "l_max", "drop"]
Changes = Sequence[tuple[int, bool]]
"""A rollout by what its prefixes answer: `(tokens, correct)` from each change on, rising; wrong before the first."""


@dataclass(frozen=True, slots=True)
class QuestionMinimum:
    """`budgets`: L^x in tokens by question; `unsolved`: those nobody solves at `l_max`, whatever became of them."""

    budgets: dict[str, int]
    l_max: int
    unsolved: tuple[str, ...]


@dataclass(slots=True)
class _Reached:
    """Results of one question's groups: each mean with its first budget, and the best mean at `l_max`."""

    first: dict[float, int] = field(default_factory=dict)
    full: float = 0.0


def question_min(
    groups: Iterable[tuple[str, Sequence[Changes]]], l_max: int, unsolved: Unsolved = "formula"
) -> QuestionMinimum:
    """Return L^x of the paper's REO-RL (Q-Spec): the least budget with a best group as good as the best at `l_max`.

    Each of `groups`, in any order, is a question and the rollouts that one checkpoint made for it together: a
    prefix of L tokens is judged by its own answer, and a group by the mean over its rollouts. L runs over 1 …
    `l_max`, all of them: the mean only changes where some rollout's answer changes. The group that is best early
    need not be the one that is best at `l_max`, as the formula has it.

    `unsolved` decides about a question that no group solves at `l_max`: `formula` follows the paper's formula, by
    which every L is as good as `l_max` and L^x = 1; `l_max` gives it the full budget, so that only whole responses
    count; `drop` removes it. Raises E0429 for a group without rollouts, changes that do not rise from 1, and an
    `l_max` below 1.
    """
    if l_max < 1:
        raise problem(
            "E0429",
            f"question budgets end at the longest response, which is not {l_max} tokens",
            help="give the longest response, at least 1 token",
        )
    reached_by: dict[str, _Reached] = {}
    for question, rollouts in groups:
        reached = reached_by.setdefault(question, _Reached())
        mean = 0.0
        for at, mean in means(question, rollouts, l_max):
            reached.first[mean] = min(at, reached.first.get(mean, at))
        reached.full = max(mean, reached.full)
    budgets: dict[str, int] = {}
    nobody: list[str] = []
    for question in sorted(reached_by):
        reached = reached_by[question]
        if reached.full > 0:
            budgets[question] = min(at for mean, at in reached.first.items() if mean >= reached.full)
            continue
        nobody.append(question)
        if unsolved != "drop":
            budgets[question] = 1 if unsolved == "formula" else l_max
    return QuestionMinimum(budgets, l_max, tuple(nobody))


def means(question: str, rollouts: Sequence[Changes], l_max: int) -> list[tuple[int, float]]:
    """Yield `(tokens, share of the rollouts that are right)` at each change up to `l_max`; it is 0 before the first."""
    if not rollouts:
        raise problem(
            "E0429",
            f"a group of question `{question}` has no rollouts",
            help="leave out groups without rollouts",
        )
    moves: Counter[int] = Counter()
    for changes in rollouts:
        right_so_far, last = False, 1
        for at, correct in changes:
            if at < last:
                raise problem(
                    "E0429",
                    f"the answers of a rollout of question `{question}` change at {at} tokens after {last}",
                    help="give the changes of each rollout in their order, the first at 1 token or later",
                )
            last = at
            if correct != right_so_far and at <= l_max:
                moves[at] += 1 if correct else -1
            right_so_far = correct
    right = 0
    changes_of_mean = []
    for at, move in sorted(moves.items()):
        right += move
        # Divisions of equal fractions are equal, so means of groups of unlike sizes can be compared.
        changes_of_mean.append((at, right / len(rollouts)))
    return changes_of_mean
