"""Tracks: their values against loops over rows, and rewards that read them, one by one and as arrays."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import polars as pl
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from reodsl.ir.expression import (
    METRIC,
    STEP,
    TRACK,
    Aggregate,
    Attribute,
    Constant,
    Correct,
    Expression,
    FunctionCall,
    If,
    Infix,
    Length,
    StepStatistic,
    Variable,
)
from reodsl.ir.reward import NamedValue, ResponseGroup, Reward, RewardedResponse, Track
from runners.rewards.arithmetic import quantile
from runners.rewards.inputs import RewardInputs
from runners.rewards.interpret import interpret
from runners.rewards.tracks import track_values
from runners.rewards.vectorise import vectorise

Row = tuple[int, bool, int]
"""Tokens, verdict and mode of a response."""


def table(groups: list[list[Row]]) -> pl.DataFrame:
    rows = [(rollout, *row) for group in groups for rollout, row in enumerate(group)]
    columns = {"rollout": 0, "tokens": 1, "correct": 2, "mode": 3}
    data = {name: [row[at] for row in rows] for name, at in columns.items()}
    return pl.DataFrame({**data, "budget": [None] * len(rows)})


def over(fn: str, over: str = "steps", **more: object) -> StepStatistic:
    return StepStatistic(**{"fn": fn, "var": "z", "over": over, "value": Length(of="z"), **more})  # type: ignore[arg-type]


def of(value: Expression, *earlier: Track) -> Reward:
    return Reward(name="r", outcome=Correct(of="y"), tracks=(*earlier, Track(name="a", value=value)))


ACCURACY = Aggregate(fn="mean", var="w", over="group", value=Correct(of="w"))
HALF = Constant(value=0.5)
ROW = st.tuples(st.integers(1, 30), st.booleans(), st.integers(0, 1))
GROUPS = st.lists(st.lists(ROW, min_size=3, max_size=3), min_size=1, max_size=4)


@settings(max_examples=60, deadline=None)
@given(
    st.lists(GROUPS, max_size=4),
    st.integers(1, 3),
    st.sampled_from(["mean", "min", "max", "median", "sum", "std"]),
)
def test_a_statistic_over_steps_is_a_loop_over_their_rows(steps, window, fn):
    """Of the last steps, over the responses in mode 1 to questions that half of the responses at least get right."""
    where = Infix(
        fn="and",
        left=Infix(fn=">=", left=ACCURACY, right=HALF),
        right=Infix(fn="==", left=Attribute(of="z", field="mode"), right=Constant(value=1)),
    )
    reward = of(over(fn, window=window, where=where, empty=Constant(value=7)))
    kept = [
        tokens
        for groups in steps[-window:]
        for group in groups
        for tokens, _, mode in group
        if mode == 1 and sum(right for _, right, _ in group) / len(group) >= 0.5
    ]
    slow = {
        "mean": lambda: sum(kept) / len(kept),
        "min": lambda: min(kept),
        "max": lambda: max(kept),
        "median": lambda: float(np.median(kept)),
        "sum": lambda: sum(kept),
        "std": lambda: math.sqrt(sum((x - sum(kept) / len(kept)) ** 2 for x in kept) / len(kept)),
    }
    expected = slow[fn]() if kept else 7
    values = track_values(reward, len(steps), [table(groups) for groups in steps], None)
    assert values == {"a": pytest.approx(expected)}


@given(st.lists(st.integers(1, 40), min_size=1, max_size=20), st.integers(1, 20))
@example([2, 1], 2)
@example([6, 5, 4, 3, 2, 1], 3)
@example([3, 2, 1], 2)
def test_a_quantile_is_the_least_value_that_so_many_do_not_exceed(values, parts):
    covered = [x for x in values if sum(v <= x for v in values) * parts >= len(values)]
    assert quantile(values, 1 / parts) == min(covered)


def test_over_nothing_before_the_first_step():
    assert track_values(of(over("mean", empty=Constant(value=9))), 0, [], None) == {"a": 9}
    assert track_values(of(over("count", value=Constant(value=1))), 0, [], None) == {"a": 0}
    assert math.isnan(track_values(of(over("mean")), 0, [], None)["a"])


def test_a_warm_up_and_a_track_that_reads_an_earlier_one():
    ratio = Infix(fn="/", left=Variable(name=STEP), right=Constant(value=100))
    warm = Track(name="warm", value=FunctionCall(fn="min", args=(Constant(value=1), ratio)))
    target = over(
        "max", over="monitor", where=Infix(fn="<=", left=Length(of="z"), right=Variable(name=f"{TRACK}cap"))
    )
    cap = Track(name="cap", value=Infix(fn="*", left=Variable(name=f"{TRACK}warm"), right=Constant(value=50)))
    monitor = table([[(10, True, 0), (30, False, 0)]])
    reward = of(target, warm, cap)
    assert track_values(reward, 40, [], monitor) == {"warm": 0.4, "cap": 20, "a": 10}
    assert track_values(reward, 300, [], monitor) == {"warm": 1, "cap": 50, "a": 30}


@given(GROUPS, st.integers(1, 5))
def test_a_track_that_reads_itself_is_a_loop_over_steps(groups, steps):
    """A dual variable: the price rises by what the mean length is past 10, between 0 and 5, from 1 on."""
    here = Variable(name=f"{TRACK}a")
    rise = Infix(
        fn="/", left=Infix(fn="-", left=over("mean"), right=Constant(value=10)), right=Constant(value=10)
    )
    ends = (Constant(value=0), Constant(value=5))
    reward = Reward(
        name="r",
        outcome=Correct(of="y"),
        tracks=(
            Track(
                name="a",
                value=FunctionCall(fn="clip", args=(Infix(fn="+", left=here, right=rise), *ends)),
                start=Constant(value=1),
            ),
            Track(name="twice", value=Infix(fn="*", left=Constant(value=2), right=here)),
        ),
    )
    price, values = 1.0, {}
    mean = np.mean([tokens for group in groups for tokens, _, _ in group])
    for step in range(steps):
        values = track_values(reward, step, [table(groups)] if step else [], None, previous=values)
        price = min(max(price + (mean - 10) / 10, 0), 5) if step else 1.0
        assert values == {"a": pytest.approx(price), "twice": pytest.approx(2 * price)}


def test_a_track_follows_a_metric_and_waits_where_it_has_no_number():
    value = FunctionCall(fn="max", args=(Variable(name=f"{METRIC}spread"), Constant(value=0)))
    reward = Reward(
        name="r", outcome=Correct(of="y"), tracks=(Track(name="a", value=value, start=Constant(value=7)),)
    )
    values, found = {}, []
    for step, spread in enumerate((2.0, 3.0, None, 5.0)):
        values = track_values(reward, step, [], None, previous=values)
        found.append(values["a"])
        values |= {f"{METRIC}spread": spread} if spread is not None else {}
    assert found == [7, 2, 3, 3]


def test_a_reward_reads_its_tracks_wherever_it_is_computed():
    """1 for a right response no longer than the track, which a let has doubled."""
    limit = NamedValue(
        name="let1", value=Infix(fn="*", left=Constant(value=2), right=Variable(name=f"{TRACK}a"))
    )
    short = Infix(fn="<=", left=Length(of="y"), right=Variable(name="let1"))
    reward = Reward(
        name="r",
        lets=(limit,),
        outcome=If(test=short, then=Correct(of="y"), other=Constant(value=0)),
        tracks=(Track(name="a", value=over("mean", empty=Constant(value=6))),),
    )
    length = np.array([[10.0, 12.0, 13.0]])
    inputs = RewardInputs(("q",), length, np.ones((1, 3)), length[:, :, None], np.ones((1, 3, 1), dtype=bool))

    def never(*_: object) -> None:
        raise AssertionError

    found = vectorise(reward, replace(inputs, tracks={"a": 6.0}), never, never)  # type: ignore[arg-type]
    assert found.tolist() == [[[1], [1], [0]]]
    group = ResponseGroup("q", tuple(RewardedResponse(int(n), True) for n in length[0]), tracks={"a": 6.0})
    assert [interpret(reward, group, i) for i in range(3)] == [[1], [1], [0]]
