"""Advantages against the equations written as loops, and against numbers worked out by hand."""

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from reodsl.ir.expression import Constant
from reodsl.ir.reward import Part, ResponseGroup, RewardedResponse
from reodsl.ir.training import Advantage
from reodsl.language.chosen_reward import choose_reward
from runners.rewards.interpret import interpret
from runners.rewards.vectorise import vectorise
from runners.train.advantages import (
    advantages_of,
    advantages_of_parts,
    normalise_batch,
    normalise_parts,
    section_advantages,
    section_tokens,
    try_reward,
)
from tests.rewards.reward_groups import arrays


def slow(rewards, present, length, places, rule):
    """One group, response by response: the advantage of each token, by the words of the paper."""
    rollouts, splits = rewards.shape
    credit = np.zeros((rollouts, splits))
    for j in range(rollouts):
        for i in range(splits):
            if present[j, i]:
                later = [rewards[j, k] for k in range(i, splits) if present[j, k]]
                credit[j, i] = rewards[j, i] if rule.credit == "own" else sum(later)
    scored = np.zeros((rollouts, splits))
    for i in range(splits):
        members = [j for j in range(rollouts) if present[j, i] or rule.absent == "zero"]
        values = [credit[j, i] for j in members]
        for j in members:
            mean = sum(values) / len(values)
            below = len(values) - (rule.std == "sample")
            deviation = math.sqrt(sum((v - mean) ** 2 for v in values) / below) if below else 0.0
            if rule.normalise == "none":
                scored[j, i] = credit[j, i]
            elif rule.normalise == "leave_one_out":
                others = [credit[k, i] for k in members if k != j]
                scored[j, i] = credit[j, i] - sum(others) / len(others) if others else 0.0
            elif rule.normalise == "center":
                scored[j, i] = credit[j, i] - mean
            elif deviation > 1e-9:
                scored[j, i] = (credit[j, i] - mean) / deviation
    if rule.bound is not None:
        scored = np.vectorize(lambda value: min(max(value, -rule.bound), rule.bound))(scored)
    tokens = []
    for j in range(rollouts):
        own = []
        for t in range(length[j]):
            last = max(i for i in range(splits) if present[j, i])
            section = next((i for i in range(last) if present[j, i] and t < places[j, i]), last)
            if rule.credit == "as_printed" and splits > 1:
                own.append(scored[j, section - 1] if section > 0 else 0.0)
            else:
                own.append(scored[j, section])
        tokens.append(own)
    return tokens


@st.composite
def groups(draw):
    rollouts, splits = draw(st.integers(1, 5)), draw(st.integers(1, 4))
    values = st.sampled_from([0.0, 0.0, 1.0, 4.0, -2.5])
    rewards = np.array([[draw(values) for _ in range(splits)] for _ in range(rollouts)])
    length = [draw(st.integers(1, 20)) for _ in range(rollouts)]
    places = sorted(draw(st.lists(st.integers(1, 20), min_size=splits, max_size=splits, unique=True)))
    has = [draw(st.integers(1, splits)) for _ in range(rollouts)]
    present = np.array([[i < n for i in range(splits)] for n in has])
    return rewards, present, length, np.array([places] * rollouts)


@settings(max_examples=100)
@given(
    groups(),
    st.sampled_from(["causal", "as_printed", "own"]),
    st.sampled_from(["group", "center", "leave_one_out", "none"]),
    st.sampled_from(["population", "sample"]),
    st.sampled_from(["left_out", "zero"]),
    st.sampled_from([None, 0.5, 1.2]),
)
def test_every_token_as_the_slow_reference_has_it(group, credit, normalise, std, absent, bound):
    rewards, present, length, places = group
    rule = Advantage(credit=credit, normalise=normalise, std=std, absent=absent, bound=bound)
    found, tokens = advantages_of(
        rewards[None], places[None].astype(float), present[None], np.array([length], dtype=float), rule
    )
    expected = slow(rewards, present, length, places, rule)
    for j, own in enumerate(expected):
        assert int(tokens[0, j].sum()) == length[j]
        np.testing.assert_allclose(np.repeat(found[0, j], tokens[0, j]), own, atol=1e-9)


def test_returns_of_reo_rl_by_hand():
    # Budgets 4, 8 and l_max 16: weights 4, 6, 4. Answers forced at 4 and 8, then the whole response.
    weights = np.array([4.0, 6.0, 4.0])
    right = np.array([[0, 1, 1], [0, 0, 1], [0, 0, 0]], dtype=float)
    rewards = (right * weights)[None]
    # Returns: (10, 10, 4), (4, 4, 4), (0, 0, 0).
    found = section_advantages(rewards, np.ones_like(rewards, dtype=bool), Advantage())
    first = math.sqrt(((10 - 14 / 3) ** 2 + (4 - 14 / 3) ** 2 + (14 / 3) ** 2) / 3)
    last = math.sqrt(2 * 16 / 9)
    expected = [
        [(10 - 14 / 3) / first, (10 - 14 / 3) / first, (4 / 3) / last],
        [(4 - 14 / 3) / first, (4 - 14 / 3) / first, (4 / 3) / last],
        [-14 / 3 / first, -14 / 3 / first, -8 / 3 / last],
    ]
    np.testing.assert_allclose(found[0], expected)
    printed = section_advantages(rewards, np.ones_like(rewards, dtype=bool), Advantage(credit="as_printed"))
    np.testing.assert_allclose(printed[0], [[0, row[0], row[1]] for row in expected])


def test_equal_rewards_and_a_lone_rollout_give_nothing():
    with np.errstate(all="raise"):
        rewards = np.array([[[0.1 + 0.2], [0.3], [0.3]]])
        for std in ("population", "sample"):
            rule = Advantage(std=std)
            assert not section_advantages(rewards, np.ones_like(rewards, dtype=bool), rule).any()
            assert not section_advantages(np.ones((1, 1, 1)), np.ones((1, 1, 1), dtype=bool), rule).any()


def test_each_question_decides_for_itself_whether_its_rewards_are_equal():
    """Neither the last bits of one nor the size of another's count, and what is equal divides nothing by zero."""
    rewards = np.array([[[0.1 + 0.2], [0.3], [0.3]], [[1e-12], [3e-12], [2e-12]], [[1e3], [3e3], [2e3]]])
    with np.errstate(all="raise"):
        found = section_advantages(rewards, np.ones_like(rewards, dtype=bool), Advantage())
    z = math.sqrt(3 / 2)
    np.testing.assert_allclose(found[..., 0], [[0, 0, 0], [-z, z, 0], [-z, z, 0]], atol=1e-12)


def test_an_outcome_is_credited_to_the_whole_response_under_every_rule():
    rewards = np.array([[[1.0], [0.0]]])
    for credit in ("causal", "as_printed", "own"):
        found = section_advantages(rewards, np.ones_like(rewards, dtype=bool), Advantage(credit=credit))
        assert found[0, :, 0].tolist() == [1.0, -1.0]


def test_sections_past_the_end_are_empty_and_the_last_reaches_the_end():
    places = np.array([[[4.0, 8.0, 16.0]]])
    length = np.array([[3.0, 8.0, 11.0, 20.0]])
    tokens = section_tokens(places, np.ones((1, 1, 3), dtype=bool), length)
    assert tokens[0].tolist() == [[3, 0, 0], [4, 4, 0], [4, 4, 3], [4, 4, 12]]


def test_batch_normalisation_weighs_tokens_and_leaves_silent_groups_alone():
    advantages = np.array([[[1.0], [-1.0]], [[0.0], [0.0]], [[2.0], [-2.0]]])
    tokens = np.array([[[3], [1]], [[5], [5]], [[1], [1]]])
    found = normalise_batch(advantages, tokens)
    # Trained tokens: 1, 1, 1, -1, 2, -2; mean 2/6, variance (4 + 8)/6 - 1/9.
    mean, deviation = 1 / 3, math.sqrt(2 - 1 / 9)
    expected = [[[1.0], [-1.0]], [[mean], [mean]], [[2.0], [-2.0]]]
    np.testing.assert_allclose(found, (np.array(expected) - mean) / deviation)
    # REINFORCE++: those of the silent group count as what they are, 0, and get less than the mean of 2 / 16.
    every = np.repeat(advantages.ravel(), tokens.ravel())
    counted = normalise_batch(advantages, tokens, "counted")
    np.testing.assert_allclose(counted, (advantages - 1 / 8) / every.std())
    assert not normalise_batch(np.zeros((1, 2, 1)), np.ones((1, 2, 1), dtype=int)).any()
    assert normalise_batch(np.full((1, 2, 1), 3.0), np.ones((1, 2, 1), dtype=int)).tolist() == [[[0], [0]]]


def test_nothing_is_trained_of_a_question_that_everybody_solves():
    rewards = np.ones((2, 4, 3)) * np.array([4.0, 6.0, 4.0])
    places = np.broadcast_to(np.array([4.0, 8.0, 16.0]), (2, 4, 3))
    present = np.ones((2, 4, 3), dtype=bool)
    found, tokens = advantages_of(rewards, places, present, np.full((2, 4), 9.0), Advantage())
    assert not found.any()
    assert not normalise_batch(found, tokens).any()


@pytest.mark.parametrize("credit", ["causal", "own"])
def test_reasoning_steps_are_normalised_among_those_that_have_them(credit):
    rewards = np.array([[[1.0, 2.0], [0.0, 7.0]]])
    present = np.array([[[True, True], [True, False]]])
    found = section_advantages(rewards, present, Advantage(credit=credit))
    assert found[0].tolist() == [[1.0, 0.0], [-1.0, 0.0]]


def test_a_reasoning_step_that_others_lack_is_compared_with_nothing_earned():
    """A lone second step has no advantage, unless rollouts without one count as 0; theirs is nobody's token."""
    rewards = np.array([[[1.0, 2.0], [0.0, 7.0]]])
    present = np.array([[[True, True], [True, False]]])
    found = section_advantages(rewards, present, Advantage(credit="own", absent="zero"))
    assert found[0].tolist() == [[1.0, 1.0], [-1.0, 0.0]]


def test_a_bound_cuts_the_sum_of_a_rewards_parts():
    value = Constant(value=0)
    parts = (Part(value=value), Part(value=value, weight=0.5, on="prefix"))
    values = np.array([[[1.0, 3.0], [-1.0, 1.0]]])
    # z-scores of two are 1 and -1: 1 + 0.5 on the prefix, 1 after it.
    for bound, prefix, rest in ((None, 1.5, 1.0), (1.2, 1.2, 1.0), (0.5, 0.5, 0.5)):
        rule = Advantage(bound=bound)
        found = advantages_of_parts(normalise_parts(values, parts, rule), parts, rule)
        assert found.tolist() == [[[prefix, rest, rest], [-prefix, -rest, -rest]]]


DIET = """reward diet(weight: number = 0.5, longest: tokens = 128 tokens) {
  let p        = mean(correct(z) for z in group)
  let over(a)  = max(len(a) - ((1 - p - 0.05) * longest if p < 1 else 0 tokens), 0 tokens)
  let mu       = mean(over(z) for z in group)
  let sd       = std(over(z) for z in group)
  let short(a) = (mu - over(a)) / sd if correct(a) and sd > 0 tokens else 0
  track warm   = min(1, (step + 1 step) / 100 steps)
  z(correct(y)) SIGN weight * p * warm * z(short(y))
}
"""


def diet(group, weight, std):
    """One question by the words of DIET: its length term is normalised, and then weighed by difficulty and warm-up."""
    right, length = [float(c) for _, c in group], [n for n, _ in group]
    p = sum(right) / len(group)
    over = [max(n - (0.95 - p) * 128 * (p < 1), 0) for n in length]
    mu, sd = np.mean(over), np.std(over)
    short = [(mu - each) / sd if c and sd > 1e-9 else 0 for each, c in zip(over, right, strict=True)]

    def z(values):
        spread = np.std(values, ddof=1 if std == "sample" else 0)
        return (np.array(values) - np.mean(values)) / spread if spread > 1e-9 else np.zeros(len(values))

    return z(right) + weight * p * z(short)


def diet_reward(folder, sign="+"):
    path = folder / "diet.reo"
    path.write_text(DIET.replace("SIGN", sign))
    return choose_reward(str(path), None).reward


def asked_at(groups, warm):
    return [
        ResponseGroup(str(at), tuple(RewardedResponse(n, c) for n, c in group), tracks={"warm": warm})
        for at, group in enumerate(groups)
    ]


def trained(reward, groups, warm, std="population"):
    """The advantages of a step, [questions, rollouts]."""
    step = arrays(asked_at(groups, warm), [[(128,)] * len(group) for group in groups])
    inputs = replace(step.inputs, tracks={"warm": warm})
    values = vectorise(reward, inputs, step.forced.look_up, step.bare.look_up)
    return normalise_parts(values, reward.parts, Advantage(std=std)).sum(axis=2)


RESPONSES = st.lists(st.tuples(st.integers(1, 128), st.booleans()), min_size=4, max_size=4)


@settings(max_examples=30, deadline=None)
@given(
    st.lists(RESPONSES, min_size=1, max_size=3),
    st.sampled_from("+-"),
    st.sampled_from(["population", "sample"]),
    st.sampled_from([0.0, 0.01, 1.0]),
)
def test_a_weight_may_be_a_track_and_a_value_of_the_group(tmp_path_factory, groups, sign, std, warm):
    reward = diet_reward(tmp_path_factory.getbasetemp(), sign)
    wanted = [diet(group, (0.5 if sign == "+" else -0.5) * warm, std) for group in groups]
    np.testing.assert_allclose(trained(reward, groups, warm, std), wanted, atol=1e-9)
    for group, row in zip(asked_at(groups, warm), wanted, strict=True):
        tried = try_reward(reward, Advantage(std=std), group, [()] * len(group.rollouts))
        np.testing.assert_allclose([each.advantages[2] for each in tried], row, atol=1e-9)
        assert {each.weights for each in tried} == {(1.0, tried[0].weights[1])}


THINKLESS = """reward thinkless(at: budgets, alpha: number = 1e-3) {
  let worth(z) = (1 if thinking(z) <= 1 token else 0.5) if correct(z) else -1
  let n        = mean(len(z) for z in batch) / 1 token
  dense L in at: (worth(y) - mean(worth(z) for z in group)) * (alpha * n if L <= 1 token else n / max(n - 1, 1))
}
"""
ARM = """reward arm(total: steps in 1 step..1M steps) {
  track done  = min(1, step / total)
  let long(z) = 4 if matches(z, "^<LONG_COT>") else 0
  let form(z) = 1 if matches(z, "^<ANSWER>") else 2 if matches(z, "^<COT>") else 3 if matches(z, "^<CODE>") else long(z)
  let same    = count(z for z in group if form(z) == form(y))
  correct(y) * (1 + (count(z for z in group) / max(same, 1) - 1) / 2 * (1 + cos(pi * done))) if form(y) > 0 else 0
}
"""


def test_a_first_token_has_a_loss_of_its_own(tmp_path):
    """Gradients are those of Thinkless: alpha times a mean over first tokens, and a mean over all others."""
    (tmp_path / "own.reo").write_text(THINKLESS)
    rule = choose_reward(
        f"{tmp_path}/own.reo", "thinkless(at: explicit([1 token], to: 9 tokens), alpha: 0.01)"
    ).reward
    lengths, thought, right = [[3, 9], [1, 5]], [[1, 4], [1, 5]], [[True, False], [False, True]]
    groups = [
        ResponseGroup(
            str(q),
            tuple(
                RewardedResponse(n, c, features={"thinking": float(k)}) for n, k, c in zip(*own, strict=True)
            ),
        )
        for q, own in enumerate(zip(lengths, thought, right, strict=True))
    ]
    made = arrays(groups, [[(1, 9)] * 2] * 2).inputs
    values = vectorise(rule, made, None, None)
    own, tokens = advantages_of(
        values, made.split_tokens, made.present, made.length, Advantage(credit="own", normalise="none")
    )
    count, first, others = 18, 4, 14
    for q, worth in enumerate(([1, -1], [-1, 0.5])):
        for k, n in enumerate(lengths[q]):
            gain = worth[k] - sum(worth) / 2
            assert own[q, k, 0] / count == pytest.approx(0.01 * gain / first)
            assert tokens[q, k].tolist() == [1, n - 1]
            if n > 1:
                assert own[q, k, 1] / count == pytest.approx(gain / others)


@pytest.mark.parametrize("done", [0, 0.25, 1])
def test_a_right_answer_in_a_rare_form_earns_more(tmp_path, done):
    (tmp_path / "own.reo").write_text(ARM)
    rule = choose_reward(f"{tmp_path}/own.reo", "arm(total: 8 steps)").reward
    marks = ("^<ANSWER>", "^<COT>", "^<CODE>", "^<LONG_COT>")
    forms = ["^<COT>", "^<COT>", "^<LONG_COT>", None, "^<COT>"]
    numbers = [{f'matches(y, "{mark}")': float(mark == form) for mark in marks} for form in forms]
    right = (True, False, True, True, True)
    rollouts = tuple(RewardedResponse(5, c, features=each) for c, each in zip(right, numbers, strict=True))
    group = ResponseGroup("q", rollouts, tracks={"done": done})
    for k, form in enumerate(forms):
        decay = 0.5 * (5 / forms.count(form) - 1) * (1 + math.cos(math.pi * done))
        assert interpret(rule, group, k) == pytest.approx([(1 + decay) * right[k] if form else 0])


def test_a_warm_up_trains_otherwise_at_its_end(tmp_path):
    reward, groups = diet_reward(tmp_path), [[(20, True), (120, True), (90, True), (100, False)]]
    begun, done = (trained(reward, groups, warm) for warm in (0.01, 1.0))
    assert np.abs(begun - done).max() > 0.3


@pytest.mark.parametrize("std", ["population", "sample"])
@pytest.mark.parametrize("rollouts", [2, 8, 16])
def test_the_largest_z_score_is_that_of_one_that_differs_from_all_others(rollouts, std):
    """sqrt(n - 1), and (n - 1) / sqrt(n) for the sample's deviation, as W0523 tells."""
    rewards = np.zeros((1, rollouts, 1))
    rewards[0, 0] = 1
    found = section_advantages(rewards, np.ones_like(rewards, dtype=bool), Advantage(std=std)).max()
    most = {"population": math.sqrt(rollouts - 1), "sample": (rollouts - 1) / math.sqrt(rollouts)}[std]
    assert found == pytest.approx(most)
