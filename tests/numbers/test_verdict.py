"""The verdict against t tests, Holm's steps and two one-sided tests, each written out slowly, and its JSON data."""

from __future__ import annotations

import json
import math
from itertools import combinations
from typing import Any

import numpy as np
import polars as pl
import pytest

from reodsl.numbers.arm_scores import ArmScores
from reodsl.numbers.crossed import Spread, spread_of, typical_variance
from reodsl.numbers.intervals import ArmCells, Comparisons, Interval, compare_arms, difference, score_arms
from reodsl.numbers.reg import holm, t_probability, t_quantile
from reodsl.numbers.verdict import EqualResponses, StudyVerdict, common_responses, from_json, judge, to_json

BUDGETS = (0, 16, 32)
NAMES = ("base", "vanilla", "one", "twin")


def scores(seed, boost):
    """An arm in which a question is right from some budget on; `boost` moves all of them."""
    rng = np.random.default_rng(seed)
    forced = {b: np.clip(rng.normal([0.1, 0.4, 0.6], 0.05, (9, 3)) + boost, 0, 1) for b in ("easy", "hard")}
    whole = {b: each[:, -1] for b, each in forced.items()}
    return ArmScores(forced, whole, whole)


def arms(seeds):
    boosts = dict(zip(NAMES, (0.0, 0.1, 0.3, 0.3), strict=True))
    return {
        name: [scores(100 * k + s, boost) for s in range(seeds)]
        for k, (name, boost) in enumerate(boosts.items())
    }


def compared(seeds=3, of=None, baseline="vanilla"):
    return compare_arms(
        arms(seeds) if of is None else of, BUDGETS, seeds=seeds, grid=BUDGETS, against=baseline
    )


def judged(seeds=3, of=None, baseline="vanilla", **more):
    return judge(compared(seeds, of, baseline), **{"baseline": baseline, "baseline_reg": (8.0, 2.0)} | more)


def spread_between(one, two, seeds):
    """The spread of a pair's difference."""
    one, two = areas(one, seeds), areas(two, seeds)
    return spread_of({b: two[b] - one[b] for b in one})


def moderated_between(one, two, seeds):
    """The spread of a pair's difference with the variance that all pairs' seeds typically have as one more seed."""
    every = [areas(name, seeds) for name in NAMES]
    by_seed = np.array([np.mean([each[b].mean(axis=1) for b in each], axis=0) for each in every])
    return spread_between(one, two, seeds).moderated(typical_variance(by_seed, paired=True))


def areas(name, seeds):
    """Area under the curve by seed and question, by the trapezoid rule written out."""
    return {
        b: np.array([
            [16 * (row[0] / 2 + row[1] + row[2] / 2) for row in each.forced[b]] for each in arms(seeds)[name]
        ])
        for b in ("easy", "hard")
    }  # fmt: skip


@pytest.mark.parametrize("seeds", [1, 3])
def test_every_pair_has_the_paired_difference_and_its_interval(seeds):
    verdict = judged(seeds)
    assert {frozenset((p.one, p.two)) for p in verdict.pairs} == {
        frozenset(p) for p in combinations(NAMES, 2)
    }
    for pair in verdict.pairs:
        one, two = areas(pair.one, seeds), areas(pair.two, seeds)
        wanted = np.mean([np.mean(two[b]) - np.mean(one[b]) for b in one])
        assert pair.value == pytest.approx(wanted, abs=1e-9)
        assert pair.value <= 0  # the better one is first
        reach = spread_between(pair.one, pair.two, seeds).half_width(0.975)
        assert (pair.low, pair.high) == pytest.approx((wanted - reach, wanted + reach), abs=1e-9)


def test_a_p_value_is_that_of_the_wider_interval_that_ends_at_zero():
    for pair in judged().pairs:
        if 1e-12 < pair.p < 1:
            own, moderated = (
                spread(pair.one, pair.two, 3).half_width(1 - pair.p / 2)
                for spread in (spread_between, moderated_between)
            )
            assert max(own, moderated) == pytest.approx(abs(pair.value), rel=1e-6)


def test_seeds_that_agree_by_chance_are_doubted_where_others_differ():
    cells = np.random.default_rng(2).normal(0.5, 1, size=(3, 40))
    cells -= cells.mean(axis=1, keepdims=True) - 0.5
    one, two = (ArmCells({"x": each}, {}, {}, True) for each in (cells, np.zeros((3, 40))))
    alone, among_others = (
        difference(one, two, "area", ["x"], 0.95, {("area", True): t}) for t in (None, 1.0)
    )
    assert (alone.low, alone.high) == (among_others.low, among_others.high)
    assert alone.p < 0.01
    spread = spread_of({"x": cells}).moderated(1.0)
    assert among_others.p == spread.p_value(0.5) > 0.3


@pytest.mark.parametrize("df", [1, 2, 7.5, 60])
@pytest.mark.parametrize("t", [0.1, 1.0, 2.5, 6.0])
def test_with_one_variance_the_p_value_is_students(df, t):
    assert Spread(4.0, df).p_value(2 * t) == pytest.approx(2 * (1 - t_probability(t, df)), rel=1e-7)
    assert Spread(4.0, df).p_value(-2 * t) == Spread(4.0, df).p_value(2 * t)


def test_a_p_value_without_spread_or_difference():
    assert Spread(0.0, 3).p_value(1.0) == 0
    assert Spread(0.0, 3).p_value(0.0) == 1
    assert Spread(2.0, 3).p_value(0.0) == pytest.approx(1)
    # With one degree of freedom Student's t is Cauchy's distribution.
    assert Spread(4.0, 1).p_value(1.0) == pytest.approx(1 - 2 / math.pi * math.atan(1 / 2))


def slow_holm(p_values):
    """The largest of the steps up to each probability, each times the number of those that are not smaller yet."""
    ranked = sorted(p_values)
    by_rank = [
        max(min(1.0, (len(ranked) - j) * ranked[j]) for j in range(rank + 1)) for rank in range(len(ranked))
    ]
    return [by_rank[ranked.index(p)] for p in p_values]


def test_holm_as_it_is_printed_and_written_out():
    assert holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx(
        [0.03, 0.06, 0.06, 0.02]
    )  # R: p.adjust(p, "holm")
    assert holm([]) == []
    rng = np.random.default_rng(0)
    for count in range(1, 9):
        p_values = (rng.random(count) ** 3).tolist()
        assert holm(p_values) == pytest.approx(slow_holm(p_values))


def test_a_star_is_holms_over_all_pairs_and_what_accuracy_changes():
    verdict, comparisons = judged(), compared()
    of_accuracy = list(comparisons.accuracy.values())
    adjusted = slow_holm([*(pair.p for pair in verdict.pairs), *(each.p for each in of_accuracy)])
    assert [pair.p_holm for pair in verdict.pairs] == pytest.approx(adjusted[:6])
    assert [each.p_holm for each in of_accuracy] == pytest.approx(adjusted[6:])
    assert [pair.significant for pair in verdict.pairs] == [p <= 0.05 for p in adjusted[:6]]
    assert verdict.comparisons == len(adjusted) == 9
    assert list(comparisons.accuracy) == ["base", "one", "twin"]


def test_against_the_baseline_the_stars_are_the_tables():
    rows = score_arms(arms(3), BUDGETS, NAMES, seeds=range(3), grid=BUDGETS, relative_to="vanilla")
    verdict = judged()
    table = {row.model: row.difference for row in rows if row.benchmark == "mean" and row.seed is None}
    starred = {row.model: row.accuracy_change for row in rows if row.benchmark == "mean" and row.seed is None}
    for name, change in compared().accuracy.items():
        assert starred[name] == change
    assert [p.two for p in verdict.against_baseline] == ["vanilla"] * 3
    assert [p.one for p in verdict.against_baseline] == [name for name in verdict.arms if name != "vanilla"]
    for pair in verdict.against_baseline:
        wanted = table[pair.one]
        assert (pair.value, pair.low, pair.high) == pytest.approx((wanted.value, wanted.low, wanted.high))
        assert (pair.p_holm, pair.significant) == (wanted.p_holm, wanted.significant)
    assert verdict.against_baseline[-1].one == "base"
    assert verdict.against_baseline[-1].value > 0 > verdict.against_baseline[0].value


def test_two_one_sided_tests_reject_at_the_margin_and_not_below_it():
    """TOST (Schuirmann 1987), at 5% over six pairs: `value + d` and `d - value` over the error exceed its quantile."""
    verdict = judged(1)
    for pair in verdict.pairs:
        spread = spread_between(pair.one, pair.two, 1)
        error, quantile = math.sqrt(spread.variance), t_quantile(1 - 0.05 / 6, spread.question_df)
        for scale, both in ((1 + 1e-2, True), (1 - 1e-2, False)):
            margin = scale * pair.same_within
            tests = [(margin + pair.value) / error, (margin - pair.value) / error]
            assert all(t > quantile for t in tests) is both
        assert pair.same_within == pytest.approx(
            max(abs(pair.value + side * quantile * error) for side in (-1, 1)), rel=5e-3
        )


def test_who_leads_and_who_ties():
    verdict = judged()
    assert set(verdict.leaders) == {"one", "twin"}
    assert verdict.arms[2:] == ("vanilla", "base")
    assert [(p.one, p.two) for p in verdict.tied] == [verdict.arms[:2]]
    ahead = {p.one for p in verdict.against_baseline if p.significant and p.value < 0}
    assert ahead == set(verdict.leaders)
    assert (verdict.trained_once, judged(1).trained_once) == (False, True)
    assert (verdict.seeds, verdict.questions) == (3, 18)
    # A baseline that ties with the best leads too.
    alone = {name: each for name, each in arms(3).items() if name in ("one", "twin")}
    verdict = judged(of=alone, baseline="twin")
    assert set(verdict.leaders) == {"one", "twin"}
    assert not any(p.significant for p in verdict.against_baseline)


def test_a_margin_is_named_where_it_is_a_tenth_of_the_baselines_reg():
    verdict = judged()
    assert verdict.margin == pytest.approx(0.8)
    assert verdict.same == tuple(pair for pair in verdict.pairs if pair.same_within <= 0.8)
    closest = min(pair.same_within for pair in verdict.pairs)
    assert len(judged(baseline_reg=(10 * closest + 1e-9, 2.0)).same) == 1
    assert judged(baseline_reg=(10 * closest - 1e-9, 2.0)).same == ()
    assert judged(baseline_reg=(8.0, -0.1)).same == ()
    assert judged(baseline_reg=None).margin is None


def test_one_question_a_benchmark_tells_no_spread():
    one = {
        name: [ArmScores({"b": np.array([row])}, {"b": np.ones(1)}, {"b": np.ones(1)})]
        for name, row in (("x", [0, 1, 1]), ("y", [0, 0, 1]))
    }
    verdict = judged(1, of=one, baseline=None)
    (pair,) = verdict.pairs
    assert (pair.one, pair.value, pair.low, pair.p, pair.significant, pair.same_within) == (
        "x",
        -16,
        None,
        None,
        False,
        None,
    )
    assert verdict.leaders == ("x", "y")


def test_common_responses_are_paired_by_question_seed_and_sample():
    keys = {"benchmark": ["a", "a", "a", "b"], "question": ["q", "q", "r", "q"], "sample": [0, 1, 0, 0]}
    one = pl.DataFrame(keys | {"response": ["x", "y", "z", "w"], "seed": [1, 1, 1, 2]})
    two = pl.DataFrame(keys | {"response": ["x", "no", "z", "w"], "seed": [1, 1, 1, 1]})
    assert common_responses(one, two) == EqualResponses(2, 3)
    assert common_responses(one.drop("seed"), two.drop("seed")) == EqualResponses(3, 4)
    assert common_responses(one, two.sample(fraction=1, shuffle=True, seed=3)) == EqualResponses(2, 3)


def read(verdict: StudyVerdict, *names: Any) -> StudyVerdict:
    return from_json(
        json.loads(json.dumps({"sentences": [], "command": None} | to_json(verdict), allow_nan=False)), *names
    )


@pytest.mark.parametrize("seeds", [1, 3])
def test_what_is_read_is_what_was_written(seeds: int) -> None:
    verdict = judged(seeds, common={frozenset(("one", "twin")): EqualResponses(5, 9)})
    assert read(verdict) == verdict
    assert verdict.extension is not None
    assert to_json(verdict)["leaders"] == verdict.leaders
    assert any(pair.common == EqualResponses(5, 9) for pair in read(verdict).pairs)


def test_arms_have_the_names_of_now_everywhere() -> None:
    verdict = read(judged(3), {"one": "first", "vanilla": "plain"})
    assert set(verdict.arms) == {"base", "plain", "first", "twin"}
    assert verdict.baseline == "plain"
    pairs = (*verdict.pairs, *verdict.tied, *verdict.against_baseline)
    assert {arm for pair in pairs for arm in (pair.one, pair.two)} == set(verdict.arms)
    assert set(verdict.leaders) <= set(verdict.arms)


@pytest.mark.parametrize(
    "data", [None, [], {}, {"arms": 3}, {"tied": [{}]}, "text", to_json(judged(1)) | {"new": 1}]
)
def test_anything_else_is_no_verdict(data: Any) -> None:
    with pytest.raises(ValueError, match="this is not a verdict"):
        from_json(data)


def made(differences, against):
    """Comparisons of arms, best first, some of whose differences are significant; each is 1 token."""
    order = sorted({arm for pair in differences for arm in pair})
    reg = {
        (one, two): Interval(-1.0, -2.0, 0.5, 0.2, 0.3, significant)
        for (one, two), significant in differences.items()
    }
    return Comparisons(tuple(order), reg, {}, {}, against, len(reg), 3, 9, 0.95)


def test_who_leads_is_below_nobody_even_where_the_best_is_noisy():
    """`a` has the least mean and too much noise; `b` alone is significantly below `d`, the baseline."""
    pairs = dict.fromkeys(combinations("abcd", 2), False) | {("b", "d"): True}
    verdict = judge(made(pairs, dict.fromkeys("abc", "d")), baseline="d")
    assert verdict.leaders == ("a", "b", "c")
    assert not any(pair.significant for pair in verdict.tied)
    assert [pair.one for pair in verdict.against_baseline if pair.significant] == ["b"]


def test_pairs_that_are_not_made_are_corrected_for(monkeypatch):
    monkeypatch.setattr("reodsl.numbers.intervals.MAX_PAIRED", 2)
    few = compared()
    assert few.count == 9
    assert few.arms == ("one", "twin", "vanilla") or few.arms == ("twin", "one", "vanilla")
    assert len(few.reg) == 4  # the best two, and three with the baseline
    known = [each.p for each in (*few.reg.values(), *few.accuracy.values())]
    wanted = slow_holm([*known, 1.0, 1.0])[:7]
    assert [each.p_holm for each in (*few.reg.values(), *few.accuracy.values())] == pytest.approx(wanted)
    verdict = judge(few, baseline="vanilla")
    assert {pair.one for pair in verdict.against_baseline} == {"one", "twin", "base"}
    assert len(verdict.pairs) == 3
