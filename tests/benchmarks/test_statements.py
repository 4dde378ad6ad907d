"""What is said of simulated studies: a small cut of `make intervals`, and that its readers notice a contradiction."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from statistics import NormalDist

import numpy as np
import pytest

from benchmarks import intervals, statements, tables
from benchmarks.statements import (
    BASE,
    PAGE,
    REACHES,
    SEEDS,
    TABLE,
    compared,
    contradictions,
    cover_share,
    drawn,
    false_sameness,
    jobs,
    misread,
    named,
    texts,
    true_share,
)
from reodsl.numbers.crossed import Spread, spread_of
from reodsl.numbers.intervals import Interval, bound_interval, interval
from reodsl.numbers.verdict import judge
from reodsl.report.verdict_words import sentences


@pytest.mark.parametrize("number", range(100_000, 100_004))
def test_no_place_contradicts_another(number: int) -> None:
    assert contradictions(number) == []


def test_a_winner_of_two_equal_arms_has_a_star() -> None:
    """In 150 studies of one seed, in which the interval of the two arms' difference excludes 0 now and then."""
    scenario = intervals.Scenario("two equal arms", 1, 1, 150, judged=(1.6, 30.0), **intervals.SAME)
    apart = 0
    for number in range(scenario.studies):
        comparisons = compared(named(intervals.study(scenario, number)[0]))
        (difference,) = comparisons.reg.values()
        apart += difference.excludes_zero
        head = sentences(judge(comparisons, baseline=BASE, baseline_reg=(20.0, 15.0)))[0]
        assert ("No arm has" in head) is not difference.significant, head
    assert apart > 3


def test_a_contradiction_is_noticed() -> None:
    """Each of the sentences beside stars that say something else."""
    noticed = set()
    for number in range(100_001, 100_003):
        scores, _ = intervals.study(drawn(number), number)
        arms = named(scores)
        verdict = judge(compared(arms), baseline=BASE)
        lines = sentences(verdict)
        stars = {
            pair.one: math.copysign(1, pair.value) for pair in verdict.against_baseline if pair.significant
        }
        assert misread(lines, stars, arms, verdict) == []
        others = {arm: -1.0 for arm in arms if arm != BASE and arm not in stars}
        noticed |= set(misread(lines, others, arms, verdict))
    assert noticed
    assert misread(["somebody wins."], {}, ["a", BASE], verdict) == [
        "this sentence is not known: somebody wins."
    ]
    reo = f"a leads: its REG is lower than {BASE}'s by 4.0 tokens (95% CI 1.0 to 7.0)."
    assert misread([reo], {}, ["a", BASE], verdict) == ["an arm leads without a star"]
    none = f"No arm has a significantly lower REG than {BASE}, the baseline; a and {BASE} are tied (1.0 tokens apart)."
    assert "no arm is said to be lower beside a star" in misread([none], {"a": -1.0}, ["a", BASE], verdict)


def test_margins_are_wider_with_the_correction() -> None:
    """Arms that differ: an uncorrected margin is false at times, and never where the corrected one is not."""
    found = np.array([false_sameness(100_000 + number) for number in range(3)])
    assert not (found[:, 1] & ~found[:, 0]).any()


def test_shares_are_covered_in_range_and_with_width() -> None:
    """Of 30 studies with four seeds 95%, less four standard errors; Student's interval seldom holds shares near 1."""
    for reach in (1.6, 3.3):
        found = [cover_share(reach, 4, 100_000 + number) for number in range(30)]
        for measure in ("accuracy", "pass_at(2)"):
            students, own, sound = np.mean([each[measure] for each in found], axis=0)
            assert own > 0.95 - 4 * math.sqrt(0.05 * 0.95 / 30)
            assert sound == 1
            if reach == 3.3 and measure == "pass_at(2)":
                assert students < 0.7


@pytest.mark.parametrize("right", [0.0, 0.004, 0.5, 0.996, 1.0])
@pytest.mark.parametrize("scale", [1.0, 31 / 32])
@pytest.mark.parametrize("seeds", [1, 2, 6])
def test_a_share_has_ends_in_its_range_and_apart(right: float, scale: float, seeds: int) -> None:
    """The two ends of a share and of its complement mirror each other, at each level of confidence."""
    rng = np.random.default_rng(seeds)
    cells = scale * (rng.random((seeds, 48)) < right).astype(float)
    for confidence in (0.5, 0.9, 0.99):
        own, other = (
            bound_interval(interval(part, confidence), 0.0, scale, confidence, spread_of(part), 48)
            for part in ({"all": cells}, {"all": scale - cells})
        )
        assert own.low is not None
        assert own.high is not None
        assert other.low is not None
        assert 0 <= own.low <= own.value <= own.high <= scale
        assert own.low < own.high
        assert (scale - own.high, scale - own.value) == pytest.approx((other.low, other.value))


def test_near_an_end_the_interval_has_one_tail() -> None:
    """A share of 0.99: 200 independent questions would all be right in 13% of studies, so the upper end has one tail."""
    near = Spread(questions=0.99 * 0.01 / 200, question_df=math.inf, seed_df=3, rest=1e-9, rest_df=math.inf)
    around = Interval(0.99, 0.9, 1.0)

    def wilson(probability: float) -> float:
        """The share above 0.99 whose own error is as far, by bisection."""
        low, high = 0.99, 1.0
        for _ in range(80):
            share = (low + high) / 2
            reached = share - 0.99 > NormalDist().inv_cdf(probability) * math.sqrt(share * (1 - share) / 200)
            low, high = (low, share) if reached else (share, high)
        return low

    several = bound_interval(around, 0.0, 1.0, 0.95, near, 48)
    assert several.high == pytest.approx(wilson(0.955), abs=1e-6)
    one = bound_interval(around, 0.0, 1.0, 0.95, replace(near, rest=0.0), 48)
    assert one.high == pytest.approx(wilson(0.975), abs=1e-6)
    assert one.low == several.low
    # Of a share of 0.9 nothing changes: 200 questions are never all right.
    far = Interval(0.9, 0.8, 1.0)
    wide = replace(near, questions=0.9 * 0.1 / 200)
    assert bound_interval(far, 0.0, 1.0, 0.95, wide, 48) == bound_interval(
        far, 0.0, 1.0, 0.95, replace(wide, rest=0.0), 48
    )


def test_the_true_share_is_that_of_many_draws() -> None:
    rng = np.random.default_rng(1)
    effects = rng.standard_normal((400_000, 4)) @ np.array(statements.EFFECTS)
    both = rng.standard_normal((400_000, 2)) < (1.6 + effects)[:, None]
    assert true_share("accuracy", 1.6, None) == pytest.approx(both.mean(), abs=2e-3)
    assert true_share("pass_at(2)", 1.6, None) == pytest.approx(both.any(axis=1).mean(), abs=2e-3)


def test_the_committed_numbers_are_the_pages_and_within_what_is_promised() -> None:
    sums = json.loads(TABLE.read_text())
    page = PAGE.read_text()
    assert tables.place(page, texts(sums)) == page
    assert {name: studies for name, (studies, _) in jobs().items()} == {
        name: each[0] for name, each in sums.items()
    }
    assert sums["statements"][1] == 0
    studies, _, corrected, spoken = sums["same"]
    assert corrected / studies <= 0.05
    assert spoken / studies <= 0.05
    for reach in REACHES:
        for seeds in SEEDS:
            count, _, accuracy, sound, _, both, sound_both = sums[f"share {reach} {seeds}"]
            assert sound == sound_both == count
            for share in (accuracy / count, both / count):
                assert 0.93 <= share <= 0.97 or seeds < 4
