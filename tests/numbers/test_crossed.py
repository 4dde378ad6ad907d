"""Spreads of means over seeds and questions: variance components by the analysis of variance, written out."""

import math

import numpy as np
import pytest

from reodsl.numbers.crossed import Spread, spread_of
from reodsl.numbers.student import t_quantile


def test_components_are_those_of_the_analysis_of_variance():
    cells = np.random.default_rng(1).normal(size=(3, 7)) + np.arange(7)
    seeds, questions = cells.shape
    grand = cells.mean()
    between = sum((cells[s].mean() - grand) ** 2 for s in range(seeds)) / (seeds - 1)
    across = sum((cells[:, q].mean() - grand) ** 2 for q in range(questions)) / (questions - 1)
    left = sum(
        (cells[s, q] - cells[s].mean() - cells[:, q].mean() + grand) ** 2
        for s in range(seeds)
        for q in range(questions)
    ) / ((seeds - 1) * (questions - 1))
    found = spread_of({"one": cells})
    assert (found.seeds, found.questions) == pytest.approx((between / seeds, across / questions))
    assert found.rest == pytest.approx(left / (seeds * questions))
    assert (found.seed_df, found.question_df) == (2, pytest.approx(6))


def test_a_mean_over_benchmarks_shares_its_seeds_and_not_its_questions():
    """Twice one benchmark: what seeds do stays, what questions do is halved, as for twice as many questions."""
    rng = np.random.default_rng(2)
    seeds, first, second = rng.normal(size=(4, 1)), rng.normal(size=(1, 30)), rng.normal(size=(1, 20))
    one = spread_of({"a": seeds + first})
    both = spread_of({"a": seeds + first, "b": seeds + second})
    assert both.seeds == pytest.approx(one.seeds)
    assert both.questions == pytest.approx((first.var(ddof=1) / 30 + second.var(ddof=1) / 20) / 4)
    assert both.rest == pytest.approx(0, abs=1e-12)
    assert both.variance == pytest.approx(both.seeds + both.questions)


def test_the_variance_is_right_on_average():
    """Over 4,000 draws of a crossed design the estimate has the mean of the true variance, which is a sum of three."""
    rng = np.random.default_rng(3)
    estimates, means = [], []
    for _ in range(4000):
        cells = rng.normal(size=(3, 1)) * 0.5 + rng.normal(size=(1, 12)) + rng.normal(size=(3, 12)) * 1.5
        found = spread_of({"x": cells})
        estimates.append(found.seeds + found.questions - found.rest)
        means.append(cells.mean())
    truth = 0.25 / 3 + 1 / 12 + 2.25 / 36
    assert np.mean(estimates) == pytest.approx(truth, rel=0.05)
    assert np.var(means) == pytest.approx(truth, rel=0.08)


def test_one_seed_has_the_questions_spread_alone():
    cells = np.random.default_rng(4).normal(size=(1, 25))
    found = spread_of({"x": cells})
    assert found.variance == pytest.approx(cells.var(ddof=1) / 25)
    assert found.half_width(0.975) == pytest.approx(t_quantile(0.975, 24) * cells.std(ddof=1) / 5)


def test_few_seeds_have_a_wide_quantile():
    assert Spread(0.0, 50, 4.0, 2, 0.0).half_width(0.975) == pytest.approx(4.302653 * 2)
    assert Spread(4.0, 1e9, 0.0, 2, 0.0).half_width(0.975) == pytest.approx(1.959964 * 2)
    assert Spread(1.0, 40, 1.0, 2, 3.0).half_width(0.975) == pytest.approx(4.302653)


def test_nothing_that_varies_has_no_width_and_one_question_tells_none():
    assert spread_of({"x": np.full((3, 5), 0.5)}).half_width(0.975) == 0
    assert math.isinf(spread_of({"x": np.full((1, 5), 0.5)}).question_df)
    assert spread_of({"x": np.zeros((3, 1)), "y": np.zeros((3, 9))}) is None
