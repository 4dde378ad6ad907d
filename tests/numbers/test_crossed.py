"""Spreads of means over seeds and questions: variance components by the analysis of variance, written out."""

import csv
import math
from pathlib import Path

import numpy as np
import pytest

from reodsl.numbers.crossed import PRIOR_DF, Spread, spread_of, typical_variance
from reodsl.numbers.reg import t_quantile

ROOT = Path(__file__).resolve().parent.parent.parent


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

    assert Spread(4.0, math.inf).half_width(0.975) == pytest.approx(1.959964 * 2)


def reference(p, seeds, questions, rest, dfs):
    """The widths squared, of the seeds alone and with the noise's own, written out for arrays.

    Quantiles are read off a table that is linear between its entries.
    """
    table = np.exp(np.linspace(0, math.log(1e5), 400))
    values = [t_quantile(p, each) for each in table]
    seed_df, question_df, rest_df = dfs

    def width(between, df):
        total = between + np.maximum(questions - rest, 0)
        joint = total**2 / (between**2 / df + questions**2 / question_df + rest**2 / rest_df)
        joint = np.maximum(joint, min(df, question_df))
        return np.interp(np.log(np.minimum(joint, 1e5)), np.log(table), values) ** 2 * total

    return width(seeds, seed_df), np.maximum(width(seeds, seed_df), width(rest, rest_df))


def test_a_width_is_that_of_the_seeds_or_of_the_noise_alone_where_that_is_wider():
    drawn = np.random.default_rng(6).exponential(size=(9, 3))
    wider = 0
    for seeds, questions, rest in drawn:
        found = Spread(questions, 60, seeds, 2, rest, 120).half_width(0.95)
        alone, both = reference(0.95, seeds, questions, rest, (2, 60, 120))
        assert found**2 == pytest.approx(both, rel=1e-3)
        wider += both > alone
    assert 0 < wider < 9


@pytest.mark.parametrize(("seeds", "least"), [(2, 0.9), (3, 0.925), (4, 0.935), (10, 0.944)])
@pytest.mark.parametrize(
    "shares", [(0, 1, 0.001), (1, 0.001, 0.001), (1, 1, 1), (1, 1, 0.1), (3, 1, 0.3), (1, 3, 0.5), (1, 10, 1)]
)
def test_whatever_the_share_of_seeds_the_truth_is_held_as_often_as_is_said(seeds, least, shares):
    """Mean squares of the crossed normal design as what they are, chi-squares; 94 degrees of freedom of questions."""
    rng = np.random.default_rng([seeds, *(int(1000 * each) for each in shares)])
    draws, (of_seeds, of_questions, rest) = 40_000, shares
    dfs = seeds - 1, 94, 94 * (seeds - 1)
    parts = [
        expected * rng.chisquare(df, draws) / df
        for expected, df in zip((of_seeds + rest, of_questions + rest, rest), dfs, strict=True)
    ]
    errors = rng.normal(size=draws) * math.sqrt(of_seeds + of_questions + rest)
    alone, both = (np.mean(errors**2 <= each) for each in reference(0.975, *parts, dfs))
    assert least <= both <= 0.96
    assert alone <= both


def test_the_typical_variance_is_that_of_most_differences():
    rng = np.random.default_rng(8)
    by_seed = rng.normal(size=(400, 3)) + rng.normal(
        size=3
    )  # what all arms of a seed share is in no difference
    assert typical_variance(by_seed, paired=True) == pytest.approx(2 / 3, rel=0.15)
    assert typical_variance(by_seed - by_seed.mean(axis=0), paired=False) == pytest.approx(1 / 3, rel=0.2)
    by_seed[0] *= 1000
    assert typical_variance(by_seed, paired=True) == pytest.approx(2 / 3, rel=0.15)
    assert typical_variance(by_seed[:2], paired=True) is None
    assert typical_variance(by_seed[:1], paired=False) is None
    assert typical_variance(by_seed[:9, :1], paired=True) is None


def trigamma(x):
    return sum(1 / (x + k) ** 2 for k in range(20_000)) + 1 / (x + 20_000)


def degrees(excess):
    """The degrees of freedom, to a tenth, whose logarithms of variances spread so much."""
    return next(df for df in np.arange(0.1, 50, 0.1) if trigamma(df / 2) <= excess)


def test_arms_of_committed_studies_differ_in_their_seeds_as_the_prior_says():
    """The variances' degrees of freedom by the spread of their logarithms (Smyth 2004), less that of estimating them."""
    by_study = {}
    for path in sorted((ROOT / "benchmarks" / "tables").glob("two_ways*.csv")):
        with path.open() as file:
            for row in csv.DictReader(file):
                if row["benchmark"] == "mean":
                    by_study.setdefault(path.name, {}).setdefault(row["arm"], []).append(float(row["reg"]))
    with (ROOT / "benchmarks" / "tables" / "paper.csv").open() as file:
        rows = {row["arm"]: [float(each) for each in row["by_seed"].split()] for row in csv.DictReader(file)}
    by_study["paper.csv"] = rows
    deviations = [np.std(each, ddof=1) for each in rows.values()]
    assert (round(min(deviations), 1), round(max(deviations), 1)) == (0.9, 15.9)
    excess = []
    for arms in by_study.values():
        (seeds,) = {len(each) for each in arms.values()}
        logs = [math.log(np.var(each, ddof=1)) for each in arms.values()]
        excess.append((np.var(logs, ddof=1) - trigamma((seeds - 1) / 2), len(logs) - 1))
    each = [degrees(left) for left, _ in excess]
    pooled = degrees(sum(left * count for left, count in excess) / sum(count for _, count in excess))
    assert PRIOR_DF <= pooled < 2
    page = " ".join((ROOT / "docs" / "PROOFS.md").read_text().split())
    assert (
        f"have {pooled:.1f} degrees of freedom together, and {min(each):.1f} to {max(each):.1f} each" in page
    )


def test_a_typical_variance_counts_as_one_more_seed():
    own = spread_of({"x": np.random.default_rng(9).normal(size=(3, 20))})
    moderated = own.moderated(0.5)
    assert moderated.seeds == pytest.approx((0.5 + 2 * own.seeds) / 3)
    assert (own.seed_df, moderated.seed_df) == (2, 3)
    assert (moderated.rest, moderated.questions) == (own.rest, own.questions)
    assert own.moderated(None) == own


def test_nothing_that_varies_has_no_width_and_one_question_tells_none():
    assert spread_of({"x": np.full((3, 5), 0.5)}).half_width(0.975) == 0
    assert math.isinf(spread_of({"x": np.full((1, 5), 0.5)}).question_df)
    assert spread_of({"x": np.zeros((3, 1)), "y": np.zeros((3, 9))}) is None
