"""Weights: the paper's example, the sum over any schedule, and Q-Spec's two conventions."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reodsl.numbers.budgets import Schedule, exp
from reodsl.numbers.weights import coefficients, trapezoid


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
