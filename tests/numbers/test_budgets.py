"""Schedules: the paper's numbers, closed forms, and every way not to be one; their weights, and Q-Spec's two conventions."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reodsl.diagnostics import Problem, Span
from reodsl.numbers.budgets import (
    BudgetError,
    Schedule,
    coefficients,
    exp,
    explicit,
    halve,
    linear,
    trapezoid,
)

K = 1024


def reason(call, *args):
    with pytest.raises(BudgetError) as caught:
        call(*args)
    assert caught.value.diagnostics[0].help
    assert caught.value.diagnostics[0].code == ("E0408" if caught.value.reason == "uncovered" else "E0410")
    return caught.value.reason, caught.value.values


def test_exp_gives_the_papers_budgets():
    assert exp(K, 32 * K, 5) == Schedule((K, 2 * K, 4 * K, 8 * K, 16 * K), 32 * K)


def test_exp_rounds():
    # 1000 * 32.768^(k/3): 1000, 3200.0, 10240.0
    assert exp(1000, 32768, 3).budgets == (1000, 3200, 10240)
    assert exp(10, 200, 4).budgets == (10, 21, 45, 95)
    assert exp(64, 256, 1).budgets == (64,)


def test_linear_is_even():
    assert linear(32 * K, 3).budgets == (8 * K, 16 * K, 24 * K)
    assert linear(32 * K, 5).budgets == (5461, 10923, 16384, 21845, 27307)
    # Halves go to the even one: 2.5 and 3.5.
    assert (linear(5, 1).budgets, linear(7, 1).budgets) == ((2,), (4,))
    assert linear(10, 3).budgets == (2, 5, 8)


def test_halving_goes_down_to_the_last_length():
    assert halve(16 * K, 512) == (16 * K, 8 * K, 4 * K, 2 * K, K, 512)
    assert halve(96, 96) == (96,)


@pytest.mark.parametrize(
    ("call", "args", "expected"),
    [
        (explicit, ([1, 2, 2], 10), ("equal", (2, 2))),
        (explicit, ([1, 3, 2], 10), ("not_increasing", (3, 2))),
        (explicit, ([0, 3], 10), ("outside", (0, 10))),
        (explicit, ([3, 10], 10), ("outside", (10, 10))),
        (explicit, ([-3, 2], 10), ("outside", (-3, 10))),
        (explicit, ([3, 65536], 32768), ("outside", (65536, 32768))),
        (explicit, ([1.5], 10), ("not_whole", (1.5,))),
        (explicit, ([True], 10), ("not_whole", (True,))),
        (explicit, (["8"], 10), ("not_whole", ())),
        (explicit, ([], 10), ("setting", (0, 10))),
        (explicit, ([1], 2**40), ("setting", (2**40,))),
        (explicit, ([1], 1.5), ("not_whole", (1.5,))),
        (exp, (4, 16, 12), ("equal", (4, 4))),
        (exp, (16, 16, 2), ("setting", (16, 16))),
        (exp, (0, 16, 2), ("setting", (0, 16))),
        (exp, (1, 32768, 10**9), ("setting", (10**9, 32768))),
        (linear, (4, 4), ("setting", (4, 4))),
        (linear, (32768, 0), ("setting", (0, 32768))),
        (halve, (16384, 600), ("setting", (16384, 600))),
        (halve, (512, 1024), ("setting", (512, 1024))),
        (halve, (96, 1), ("setting", (96, 1))),
    ],
)
def test_what_is_no_schedule_says_why(call, args, expected):
    assert reason(call, *args) == expected


def test_an_error_is_presentable_and_takes_a_place():
    with pytest.raises(Problem) as caught:
        explicit([3, 65536], 32768)
    found = caught.value
    assert isinstance(found, BudgetError)
    span = Span("a.reo", 1, 2, 1, 5)
    placed = found.at(span, "65536 tokens")
    assert "65536 tokens" in placed.message
    assert "32768 tokens" in placed.message
    assert placed.labels[0].span == span
    assert placed.code == found.diagnostics[0].code


def test_budgets_that_fall_together_say_which():
    with pytest.raises(BudgetError, match="budgets 1 and 2 of 12 are both 4 tokens after rounding"):
        exp(4, 16, 12)


@given(st.integers(1, 5000), st.integers(2, 50000), st.integers(1, 40))
def test_exp_is_a_schedule_or_an_error(l_min, l_max, n):
    try:
        found = exp(l_min, l_max, n)
    except BudgetError:
        return
    assert len(found.budgets) == n
    assert found.budgets[0] == l_min
    assert list(found.splits) == sorted(set(found.splits))
    for i, budget in enumerate(found.budgets):
        assert abs(budget - l_min * (l_max / l_min) ** (i / n)) <= 0.5 + 1e-6


@given(st.integers(2, 50000), st.integers(1, 200))
def test_linear_is_even_up_to_rounding_whenever_it_fits(l_max, n):
    if n >= l_max:
        assert reason(linear, l_max, n)[0] == "setting"
        return
    found = linear(l_max, n)
    assert all(abs(b - (i + 1) * l_max / (n + 1)) <= 0.5 for i, b in enumerate(found.budgets))


@st.composite
def schedules(draw):
    l_max = draw(st.integers(2, 2**20))
    budgets = draw(st.sets(st.integers(1, l_max - 1), min_size=1, max_size=40))
    return Schedule(tuple(sorted(budgets)), l_max)


def test_the_papers_schedule():
    assert trapezoid(exp(1024, 32768, 5)) == (1024, 1536, 3072, 6144, 12288, 8192)
    assert coefficients("uniform", exp(1024, 32768, 5).budgets, 32768) == (1,) * 6


@given(schedules())
def test_trapezoid_weights_sum_to_l_max_less_half_the_first(schedule):
    assert sum(trapezoid(schedule)) == schedule.l_max - schedule.budgets[0] / 2
    assert all(weight > 0 for weight in trapezoid(schedule))


@given(schedules(), st.floats(-3, 3), st.floats(-3, 3))
def test_trapezoid_weights_integrate_a_line_exactly(schedule, slope, start):
    line = [start + slope * point for point in schedule.splits]
    sum_ = sum(c * j for c, j in zip(trapezoid(schedule), line, strict=True))
    whole = schedule.budgets[0] / 2 * start + sum_
    exact = start * schedule.l_max + slope * schedule.l_max**2 / 2
    assert whole == pytest.approx(exact, rel=1e-9, abs=1e-6)


@given(schedules())
def test_only_the_first_weight_is_halved_in_half_first(schedule):
    rule, printed = (coefficients(r, schedule.budgets, schedule.l_max) for r in ("trapezoid", "half_first"))
    assert printed == (schedule.budgets[0] / 2, *rule[1:])


def test_q_spec_conventions():
    """The paper's own rule gives c_1 = l_max / 2, and it prints L^x / 2."""
    assert coefficients("trapezoid", (3000,), 32768) == (16384, 14884)
    assert coefficients("half_first", (3000,), 32768) == (1500, 14884)
    # a question that needs the full length leaves nothing to the second split
    assert coefficients("trapezoid", (32768,), 32768) == (16384, 0)
