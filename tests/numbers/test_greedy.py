"""Oracle budgets against an exact brute force, the paper's 1% claim, and ties; the facts of a schedule."""

from __future__ import annotations

import itertools
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from reodsl.numbers.budgets import BudgetError, Schedule, exp, explicit, linear
from reodsl.numbers.curves import Curve
from reodsl.numbers.greedy import approximation_error, describe_schedule, greedy, picks


def exact(curves, l_max):
    """J at each budget from 0 on as a fraction: the mean over benchmarks, each linear between its points."""
    total = [Fraction(0)] * (l_max + 1)
    for curve in curves.values():
        points = zip(curve.budgets, map(Fraction, curve.accuracy), strict=True)
        for (x0, y0), (x1, y1) in itertools.pairwise(points):
            for budget in range(x0 + (x0 > 0), min(x1, l_max) + 1):
                total[budget] += y0 + (y1 - y0) * Fraction(budget - x0, x1 - x0)
    return [each / len(curves) for each in total]


def objective(j, budgets, l_max):
    """f as the paper's equation has it, term by term."""
    ls = [0, *sorted(budgets), l_max]
    n = len(ls) - 2
    inner = sum(Fraction(ls[i + 1] - ls[i - 1], 2) * j[ls[i]] for i in range(1, n + 1))
    return inner + Fraction(ls[1], 2) * j[0] + Fraction(l_max - ls[n], 2) * j[l_max]


def brute_force(curves, l_max, n, step):
    """The greedy picks and relative errors in exact arithmetic, each candidate tried in turn."""
    j = exact(curves, l_max)
    total = sum(j[1:])
    chosen, errors = [], []
    for _ in range(n):
        best = None
        for candidate in range(step, l_max, step):
            if candidate not in chosen:
                error = (objective(j, [*chosen, candidate], l_max) - total) / total
                if best is None or abs(error) < abs(best[1]):
                    best = (candidate, error)
        chosen.append(best[0])
        errors.append(float(best[1]))
    return chosen, errors


@st.composite
def frontiers(draw):
    """One to three benchmarks over 0 … l_max; eighths make ties, which are exact here and have to be there."""
    l_max = draw(st.integers(6, 60))
    curves = {}
    for k in range(draw(st.integers(1, 3))):
        inner = draw(st.sets(st.integers(1, l_max - 1), max_size=6))
        budgets = (0, *sorted(inner), l_max)
        share = st.integers(0, 8).map(lambda eighths: eighths / 8)
        accuracy = draw(st.lists(share, min_size=len(budgets), max_size=len(budgets)))
        curves[f"b{k}"] = Curve(budgets, tuple(accuracy))
    return curves, l_max


@settings(max_examples=40)
@given(frontiers(), st.integers(1, 3), st.sampled_from([1, 1, 2, 3]))
def test_greedy_is_the_brute_force(drawn, n, step):
    curves, l_max = drawn
    if (l_max - 1) // step < n:
        return
    if not any(exact(curves, l_max)[1:]):
        with pytest.raises(BudgetError):
            picks(curves, l_max, n, step)
        return
    chosen, errors = brute_force(curves, l_max, n, step)
    found = picks(curves, l_max, n, step)
    assert [pick.budget for pick in found] == chosen
    assert [pick.error for pick in found] == pytest.approx(errors, abs=1e-12)
    schedule = greedy(curves, l_max, n, step)
    assert schedule == Schedule(tuple(sorted(chosen)), l_max)
    assert approximation_error(curves, schedule) == pytest.approx(errors[-1], abs=1e-12)


def test_five_budgets_are_within_one_percent_on_every_published_frontier(published):
    schedule = greedy(published, 32768, 5)
    assert len(schedule.budgets) == 5
    assert abs(approximation_error(published, schedule)) < 0.01


def test_five_budgets_are_the_same_with_candidates_at_every_token_and_at_every_64th(published):
    assert greedy(published, 32768, 5, 1).budgets == greedy(published, 32768, 5, 64).budgets


@pytest.mark.slow
def test_picks_on_a_published_frontier_are_the_brute_force(all_published):
    edge = all_published["deepseek_7b"]
    chosen, errors = brute_force(edge, 32768, 5, 1024)
    found = picks(edge, 32768, 5, step=1024)
    assert [pick.budget for pick in found] == chosen == [4096, 12288, 1024, 22528, 2048]
    assert [pick.error for pick in found] == pytest.approx(errors, rel=1e-9)


def test_linear_budgets_are_worse_than_the_paper_s_two(published):
    """As the paper's figure on approximation errors says; greedy and exponential ones are close."""
    greedy_, exp_, linear_ = (
        abs(approximation_error(published, schedule))
        for schedule in (greedy(published, 32768, 5), exp(1024, 32768, 5), linear(32768, 5))
    )
    assert max(greedy_, exp_) < 0.012
    assert linear_ > 0.024


def test_a_line_ties_everywhere_and_the_smallest_wins():
    # S = (l_max + 1) / 2 and f = l_max / 2 whatever the budgets
    line = {"b": Curve((0, 30000), (0.0, 1.0))}
    found = picks(line, 30000, 4)
    assert [pick.budget for pick in found] == [1, 2, 3, 4]
    assert [pick.error for pick in found] == pytest.approx([-1 / 30001] * 4, rel=1e-9)
    assert [pick.budget for pick in picks(line, 30000, 2, step=700)] == [700, 1400]


def test_a_constant_frontier_only_misses_the_half_at_zero():
    # f = l_max J, the trapezoid from 0; S = l_max J: no error at all
    assert approximation_error({"b": Curve((0, 64), (0.5, 0.5))}, linear(64, 3)) == 0


def test_a_shorter_reach_than_the_frontiers_is_fine(published):
    assert greedy(published, 16384, 5).budgets[-1] < 16384


@pytest.mark.parametrize(
    ("curve", "l_max", "n", "step", "reason"),
    [
        (Curve((0, 64), (0.1, 0.5)), 65, 2, 1, "uncovered"),
        (Curve((1, 64), (0.1, 0.5)), 64, 2, 1, "uncovered"),
        (Curve((0, 64), (0.0, 0.0)), 64, 2, 1, "uncovered"),
        (Curve((0, 64), (0.1, 0.5)), 64, 2, 32, "setting"),
        (Curve((0, 64), (0.1, 0.5)), 64, 2, 0, "setting"),
        (Curve((0, 64), (0.1, 0.5)), 64, 0, 1, "setting"),
        (Curve((0, 64), (0.1, 0.5)), 64, 2, 1.5, "not_whole"),
    ],
)
def test_what_cannot_be_searched(curve, l_max, n, step, reason):
    with pytest.raises(BudgetError) as caught:
        greedy({"b": curve}, l_max, n, step)
    assert caught.value.reason == reason


def test_exactly_the_documented_keys():
    assert describe_schedule(exp(1024, 32768, 5)) == {
        "l_max": 32768,
        "budgets": [1024, 2048, 4096, 8192, 16384],
        "weights": [1024, 1536, 3072, 6144, 12288, 8192],
    }


def test_with_a_frontier_also_the_error(all_published):
    facts = describe_schedule(exp(1024, 32768, 5), all_published["qwen3_4b"])
    assert list(facts) == ["l_max", "budgets", "weights", "approximation_error"]
    assert -0.02 < facts["approximation_error"] < -0.01


def test_the_error_by_hand():
    # J = 0, 1/4, 1/2, 1/2, 1/2: S = 7/4; f = 1/2 * 0 + 3/2 * 1/4 + 4/2... with L_1 = 2: 2 * 1/2 + 1 * 1/2
    frontier = {"b": Curve((0, 2, 4), (0.0, 0.5, 0.5))}
    facts = describe_schedule(explicit([2], 4), frontier)
    assert facts["weights"] == [2, 1]
    assert facts["approximation_error"] == (1.5 - 1.75) / 1.75
