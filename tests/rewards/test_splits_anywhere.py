"""Statistics over splits in lets, functions, metrics, outcomes and parts, against loops written from their meaning."""

from __future__ import annotations

import random
from bisect import bisect_left
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from reodsl.ir.reward import ResponseGroup, Reward, RewardedResponse, reached_places
from reodsl.language.chosen_reward import choose_reward
from runners.rewards.interpret import interpret
from runners.rewards.vectorise import needed_cuts, vectorise, vectorise_metrics
from tests.rewards.reward_groups import Arrays, arrays

LONGEST = 16
AT = "[3 tokens, 7 tokens, 11 tokens, 16 tokens]"
PLACES = (3, 7, 11, 16)


@dataclass(frozen=True)
class Seen:
    """What a slow reference knows of one response: its length, its splits, and whether an answer after n tokens is right."""

    length: int
    places: Sequence[int]
    right: Callable[[int], bool]


def trapezoid(places: Sequence[int], n: int) -> float:
    """Half the way from the split before to the one after; the last reaches back alone, as the paper has them."""
    before = places[n - 1] if n else 0
    return (places[n + 1] - before) / 2 if n + 1 < len(places) else (places[n] - before) / 2


def right_places(one: Seen) -> list[int]:
    return [place for place in one.places if one.right(place)]


def serial(one: Seen) -> list[float]:
    """S-GRPO: the n-th right exit earns half of the one before."""
    earned, rank = [], 0
    for place in one.places:
        rank += one.right(place)
        earned.append(0.5 ** (rank - 1) if one.right(place) else 0.0)
    return earned


def below(one: Seen, tokens: float) -> int:
    """The last split before a number of tokens."""
    at = bisect_left(list(one.places), tokens)
    return one.places[at - 1] if at else 0


def sections(one: Seen) -> float:
    """The longest section whose end answers rightly."""
    starts = [0, *one.places[:-1]]
    widths = [end - start for start, end in zip(starts, one.places, strict=True) if one.right(end)]
    return max(widths, default=0) / LONGEST


CASES: dict[str, tuple[str, Callable[[Seen], list[float]]]] = {
    "a let of a dense reward": (
        f"""let all = count(M for M in splits if correct(answer(y[:M])))
        dense L in {AT}: correct(answer(y[:L])) / (1 + all)""",
        lambda one: [one.right(place) / (1 + len(right_places(one))) for place in one.places],
    ),
    "a function of a split": (
        f"""let rank(a, n) = count(M for M in splits if M <= n and correct(answer(a[:M])))
        let worth(a, n) = correct(answer(a[:n])) / 2^(rank(a, n) - 1)
        dense L in {AT}: worth(y, L) - mean(worth(y, M) for M in splits)""",
        lambda one: [each - sum(serial(one)) / len(one.places) for each in serial(one)],
    ),
    "a conditional, a product and a sum": (
        f"""let first = min(M for M in splits if correct(answer(y[:M])), empty: 99 tokens)
        dense L in {AT}: 2 * (L - before(L)) / 16 tokens + (1 if L > first else -1)""",
        lambda one: [
            2 * (end - start) / 16 + (1 if end > min([*right_places(one), 99]) else -1)
            for start, end in zip([0, *one.places[:-1]], one.places, strict=True)
        ],
    ),
    "an outcome over budgets": (
        f"mean(correct(answer(y[:M])) for M in {AT})",
        lambda one: [len(right_places(one)) / len(one.places)],
    ),
    "an outcome weighed by the trapezoid rule": (
        f"sum(trapezoid(M) * correct(answer(y[:M])) for M in {AT})",
        lambda one: [sum(trapezoid(one.places, n) for n, place in enumerate(one.places) if one.right(place))],
    ),
    "before the split at hand of a statistic": (
        f"max(M - before(M) for M in {AT} if correct(answer(y[:M])), empty: 0 tokens) / 16 tokens",
        lambda one: [sections(one)],
    ),
    "before a response's end, and before that": (
        f"""let last = before(len(y))
        mean(M for M in {AT}) / 16 tokens + correct(answer(y[:last])) + before(last) / 16 tokens""",
        lambda one: [
            sum(one.places) / len(one.places) / 16
            + one.right(below(one, one.length))
            + below(one, below(one, one.length)) / 16
        ],
    ),
    "one name for variables inside each other": (
        f"""(sum(sum(sum(M * N * P for P in splits if P < N) for N in splits if N < M) for M in {AT})
        / (1K tokens * 1K tokens * 1K tokens))""",
        lambda one: [
            sum(m * n * p for m in one.places for n in one.places for p in one.places if p < n < m) / 1024**3
        ],
    ),
    "a name that is taken again": (
        f"""(sum(sum(sum(N * M for N in splits) * M / 1 tokens for M in splits) for M in {AT})
        / (1K tokens * 1K tokens))""",
        lambda one: [len(one.places) * sum(n * m * m for m in one.places for n in one.places) / 1024**2],
    ),
    "parts": (
        f"z(count(M for M in {AT} if correct(answer(y[:M])))) + 0.5 * z(before(len(y)) / 16 tokens)",
        lambda one: [len(right_places(one)), below(one, one.length) / 16],
    ),
    "only those that a response reaches": (
        f"""let kept = count(M for M in splits)
        dense L in reached({AT}): trapezoid(L) * correct(answer(y[:L])) + kept + before(L) / 16 tokens""",
        lambda one: [
            trapezoid(one.places, n) * one.right(place)
            + len(one.places)
            + (one.places[n - 1] if n else 0) / 16
            for n, place in enumerate(one.places)
        ],
    ),
}


def chosen(body: str, folder: Path) -> Reward:
    path = folder / "own.reo"
    path.write_text(f"reward r {{\n{body}\n}}\n")
    found = choose_reward(str(path), None)
    assert found.reward is not None, found.diagnostics
    return found.reward


def grouped(reached: bool) -> tuple[list[ResponseGroup], list[list[tuple[int, ...]]]]:
    draw = random.Random(5)
    groups = []
    for number in range(6):
        rollouts = []
        for _ in range(3):
            length = draw.randint(1, LONGEST)
            verdicts = {cut: draw.random() < 0.5 for cut in range(length)}
            rollouts.append(RewardedResponse(length, draw.random() < 0.5, verdicts, verdicts))
        groups.append(ResponseGroup(f"q{number}", tuple(rollouts)))
    places = [
        [reached_places(PLACES, each.length) if reached else PLACES for each in group.rollouts]
        for group in groups
    ]
    return groups, places


def seen(rollout: RewardedResponse, places: Sequence[int]) -> Seen:
    return Seen(rollout.length, places, lambda cut: bool(rollout.forced_at(cut)))


def computed(reward: Reward, made: Arrays) -> np.ndarray:
    cuts = needed_cuts(reward, made.inputs)
    assert all(
        cut < length
        for own, length in zip(cuts.forced, made.inputs.length.ravel(), strict=True)
        for cut in own
    )
    return vectorise(reward, made.inputs, made.forced.look_up, made.bare.look_up)


@pytest.mark.parametrize("what", CASES)
def test_as_a_loop_has_it(what: str, tmp_path: Path) -> None:
    body, slow = CASES[what]
    reward = chosen(body, tmp_path)
    groups, places = grouped("reached" in body)
    values = computed(reward, arrays(groups, places))
    for number, group in enumerate(groups):
        for index, rollout in enumerate(group.rollouts):
            expected = slow(seen(rollout, places[number][index]))
            assert interpret(reward, group, index, places[number][index]) == pytest.approx(expected), rollout
            assert values[number, index, : len(expected)] == pytest.approx(expected), rollout


def test_a_metric_sums_what_a_dense_reward_earns(tmp_path: Path) -> None:
    reward = chosen(
        f"""metric earned = sum(trapezoid(M) * correct(answer(y[:M])) for M in splits)
        metric late = before(len(y)) / 1 token
        dense L in {AT}: trapezoid(L) * correct(answer(y[:L]))""",
        tmp_path,
    )
    groups, places = grouped(False)
    made = arrays(groups, places)
    logged = vectorise_metrics(reward, made.inputs, made.forced.look_up, made.bare.look_up)
    np.testing.assert_allclose(logged["earned"], computed(reward, made).sum(axis=2))
    expected = [[below(seen(each, PLACES), each.length) for each in group.rollouts] for group in groups]
    assert logged["late"].tolist() == expected
