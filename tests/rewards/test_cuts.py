"""Exactly the cuts that a reward needs: below the end, each once, and none whose place hangs on a verdict."""

import pytest
from hypothesis import given as forall
from hypothesis import settings

from reodsl.ir.reward import Budgets, DenseReward, Metric, ResponseGroup, Reward, RewardedResponse, cuts_below
from reodsl.ir.reward import RewardCuts as Static
from runners.rewards.vectorise import needed_cuts
from tests.rewards.expressions import bare, correct, forced, length, op, stat, weight, where
from tests.rewards.reward_groups import arrays
from tests.rewards.test_vectorise import rewards, steps


@pytest.mark.slow
@settings(max_examples=60)
@forall(rewards(), steps())
def test_nothing_is_cut_but_where_the_reward_says_that_prices_and_diffs_read(reward, step):
    """At fixed places, at those of the question's responses where it names splits, and nowhere else."""
    groups, places = step
    said = reward.forced
    if said.computed:
        return
    cuts = iter(needed_cuts(reward, arrays(groups, places).inputs).forced)
    for group, own in zip(groups, places, strict=True):
        splits = {0, *(place for each in own for place in each)} if said.splits else set()
        for rollout in group.rollouts:
            assert set(next(cuts)) <= set(cuts_below(said.fixed | splits, rollout.length))


GROUP = ResponseGroup(
    "q", (RewardedResponse(40, True), RewardedResponse(6, False), RewardedResponse(4, True))
)
PLACES = (4, 8, 16, 32, 128)


def dense(value):
    return Reward(
        name="r", dense=DenseReward(split=Budgets(budgets=(4, 8, 16, 32), l_max=128), var="L", value=value)
    )


def cuts(reward):
    return needed_cuts(reward, arrays([GROUP], [[PLACES] * 3]).inputs)


def test_budgets_below_each_end():
    found = cuts(dense(op(weight(), "*", forced("L"))))
    assert found.forced == ((4, 8, 16, 32), (4,), ())
    assert found.bare == ((), (), ())
    assert found.any


def test_fixed_places_and_splits_are_those_that_the_reward_says():
    rule = dense(op(forced(6), "+", op(forced("L"), "*", stat("mean", forced(2.7, "z")))))
    assert rule.forced == Static(frozenset({6, 2}), splits=True)
    for rollout, found in zip(GROUP.rollouts, cuts(rule).forced, strict=True):
        assert found == cuts_below(sorted({*rule.forced.fixed, *PLACES}), rollout.length)


def test_an_outcome_without_cuts_needs_none():
    assert not cuts(Reward(name="r", outcome=correct())).any


def test_what_is_logged_alone_is_cut_too():
    logged = (Metric(name="early", value=forced(5)), Metric(name="bare", value=bare(2)))
    found = cuts(Reward(name="r", outcome=correct(), metrics=logged))
    assert found.forced == ((5,), (5,), ())
    assert found.bare == ((2,), (2,), (2,))


def test_both_branches_and_other_responses_count():
    guarded = where(correct(), forced(0), bare(2))
    found = cuts(dense(op(guarded, "+", stat("mean", forced(op("L", "/", 3), "z")))))
    assert found.forced[0] == (0, 1, 2, 5, 10)
    assert found.forced[2] == (0, 1, 2)
    assert found.bare == ((2,), (2,), (2,))


def test_a_cut_at_half_of_the_response():
    assert cuts(Reward(name="r", outcome=forced(op(length(), "/", 2)))).forced == ((20,), (3,), (2,))
