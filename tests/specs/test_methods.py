"""Rewards of the library against numbers worked out by hand from their papers' equations, nobody correct included."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from dataclasses import replace
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
import torch

from reodsl.ir.expression import TokenRun
from reodsl.ir.reward import ResponseGroup, Reward, RewardedResponse
from reodsl.ir.reward_text import expression_text
from reodsl.ir.training import Advantage, FromTraining, Ppo
from reodsl.language import compile_file
from reodsl.language.chosen_reward import choose_reward
from runners.rewards.interpret import interpret, measure
from runners.rewards.tracks import track_values
from runners.rewards.vectorise import vectorise
from runners.train.advantages import advantages_of
from tests.plan.test_growth import plan
from tests.rewards.reward_groups import arrays
from tests.specs.test_library_rewards import groups_of

SPEC = """
from std.miniature import overthinker, chain_train, chain_suite, chain_forcing
from std.recipes import ppo
from std.rewards import NAME

wording think { prefix = "hmm" }
wording brief { prefix = "</think>" }
wording within { question = "{question}", budget = [8 tokens] }

recipe frame = ppo {
  base       = checkpoint(overthinker)
  data       = chain_train
  forcing    = chain_forcing
  rollout    { max_tokens = 128 tokens, wordings = WORDINGS }
  max_prompt = 32 tokens
  reference_samples = 2
  steps      = 1 steps
  eval       = chain_suite
}

experiment it = frame { reward = CALL }
"""


def reward(call: str, tmp: Path) -> Reward:
    """A reward of the library with its arguments, as a spec has it."""
    wordings = "[think, brief]" if call.startswith("hgpo") else "[within]"
    name = call.split("(")[0]
    path = tmp / "spec.reo"
    path.write_text(SPEC.replace("NAME", name).replace("CALL", call).replace("WORDINGS", wordings))
    found = compile_file(path)
    assert found.spec is not None, [each.message for each in found.diagnostics]
    start = found.spec.study.arm("it").checkpoint
    assert isinstance(start, FromTraining)
    method = start.experiment.stages[0].method
    assert isinstance(method, Ppo)
    return method.reward


def group(
    *responses: tuple[int, bool], reference: tuple[tuple[int, bool], ...] = (), **given: float
) -> ResponseGroup:
    own = tuple(RewardedResponse(length, right, features=given) for length, right in responses)
    return ResponseGroup("q", own, tuple(RewardedResponse(*each) for each in reference))


def outcomes(rule: Reward, asked: ResponseGroup) -> list[float]:
    return [interpret(rule, asked, index)[0] for index in range(len(asked.rollouts))]


def test_mrt_gives_each_step_what_it_gained_and_a_share_of_the_outcome(tmp_path: Path) -> None:
    """Forced at 0: wrong, after step 1: wrong, after step 2: right, in the end: right; then one that loses it again."""
    rule = reward('mrt(at: steps(separator: ".", keywords: ["wait"]), alpha: 0.2)', tmp_path)
    gains = RewardedResponse(12, True, {0: False, 4: False, 9: True})
    loses = RewardedResponse(12, False, {0: True, 4: True, 9: False})
    asked = ResponseGroup("q", (gains, loses))
    places = (4, 9, 12)
    assert interpret(rule, asked, 0, places) == pytest.approx([0.2, 1.2, 0.2])
    assert interpret(rule, asked, 1, places) == pytest.approx([0, -1, 0])
    made = arrays([asked], [[places, places]])
    values = vectorise(rule, made.inputs, made.forced.look_up, made.bare.look_up)
    own, tokens = advantages_of(
        values,
        made.inputs.split_tokens,
        made.inputs.present,
        made.inputs.length,
        Advantage(credit="own", normalise="none"),
    )
    assert own[0].tolist() == [pytest.approx([0.2, 1.2, 0.2]), pytest.approx([0, -1, 0])]
    assert tokens[0].tolist() == [[4, 5, 3], [4, 5, 3]]


def test_hgpo_gives_not_thinking_a_margin(tmp_path: Path) -> None:
    rule = reward("hgpo(alpha: 1, delta: 0.2)", tmp_path)

    def inter(*responses: tuple[int, int]) -> list[float]:
        rollouts = tuple(
            RewardedResponse(5, bool(right), features={"mode": float(mode)}) for mode, right in responses
        )
        return [interpret(rule, ResponseGroup("q", rollouts), index)[1] for index in range(len(rollouts))]

    # Thinking is right in 1 of 2, not thinking in 1 of 2: 0.5 < 0.5 + 0.2.
    assert inter((0, 1), (1, 1), (0, 0), (1, 0)) == [0, 1, 0, 1]
    # 1 against 0.5 + 0.2, and 1 against 1 + 0.2.
    assert inter((0, 1), (1, 1), (0, 1), (1, 0)) == [1, 0, 1, 0]
    assert inter((0, 1), (1, 1), (0, 1), (1, 1)) == [0, 1, 0, 1]
    # Nobody is right: 0 against 0.2.
    assert inter((0, 0), (1, 0)) == [0, 1]


COSINE = "right_short: 2, right_long: 1, wrong_short: -8, wrong_long: 0, exceeded: -10"
BY_HAND = [
    ("length_group_norm(alpha: 0.4)", "5- 9-", [0, 0]),
    ("length_group_norm(alpha: 0.4)", "5+ 9-", [1 - 0.4 * 0.5, 0]),
    # Lengths 4 and 8: mean 6, deviation 2.
    ("length_group_norm(alpha: 0.4)", "4+ 8+ 30-", [1 - 0.4 / (1 + math.e), 1 - 0.4 / (1 + 1 / math.e), 0]),
    ("length_harmonizing(gamma: 2)", "5+ 20-", [10 / 5 - 1 + 2 * 0.5, 10 / 20 - 1 - 2 * 0.5]),
    ("l1_exact(alpha: 0.001)", "90+ 120+ 120- 400+", [1 - 0.01, 1 - 0.02, -0.02, 1 - 0.3]),
    ("l1_max(alpha: 0.01, delta: 0.5)", "90+ 120+ 120- 400+", [0.6, 0.3, 0, 0]),
    ("kimi_length(weight: 1)", "10+ 20+ 30+ 10- 30-", [1.5, 1, 0.5, 0, -0.5]),
    ("kimi_length(weight: 1)", "10+ 10-", [1, 0]),
    # Linear inside the buffer.
    ("soft_overlong(longest: 20 tokens, buffer: 4 tokens)", "12+ 16+ 18+ 20-", [1, 1, 0.5, -1]),
    # p = 3/4 of four, so 0.1 n / 100 3/4; where nobody is right 1/K takes the place of p.
    ("alp(beta: 0.1, scale: 100 tokens)", "20+ 40+ 80+ 40-", [1 - 0.015, 1 - 0.03, 1 - 0.06, -0.03]),
    ("alp(beta: 0.1, scale: 100 tokens)", "40- 80-", [-0.02, -0.04]),
    # 30 is the shortest right one; where none is right it is the mean, 50, from both sides.
    ("shorter_better(alpha: 2, beta: 0.01)", "10- 30+ 70+ 90-", [-0.2, 2, 2 - 0.4, -0.6]),
    ("shorter_better(alpha: 2, beta: 0.01)", "20- 80-", [-0.3, -0.3]),
    # At a third of the limit cos is 1/2, at half 0, at two thirds -1/2; the limit itself is past it.
    (
        f"cosine_length(longest: 60 tokens, {COSINE})",
        "20+ 30+ 40+ 20- 30- 60+",
        [1.75, 1.5, 1.25, -6, -4, -10],
    ),
    ("pruned(limit: 8 tokens)", "8+ 9+", [1, 0]),
]


@pytest.mark.parametrize(("call", "responses", "expected"), BY_HAND)
def test_a_reward_by_hand(call: str, responses: str, expected: list[float], tmp_path: Path) -> None:
    """Of lengths with + where right. The budget is 100, and the reference has 8 tokens, right, and 12, wrong."""
    own = [(int(each[:-1]), each[-1] == "+") for each in responses.split()]
    asked = group(*own, reference=((8, True), (12, False)), budget=100)
    assert outcomes(reward(call, tmp_path), asked) == pytest.approx(expected)


def anytime(own: list[bool], others: list[list[bool]]) -> list[float]:
    """BRPO's advantages of one response from its code's terms: r_j of it and of all of its group, j from 0."""
    prior = [j / 10 for j in (1, 2, 3, 4)]
    found = []
    for s in range(4):
        returned = sum(prior[j] * own[j] for j in range(s, 4))
        weights = [2.0**j for j in range(s)]
        before = sum(w * own[j] for j, w in enumerate(weights)) / sum(weights) if s else 0.0
        v1 = before * sum(prior[s:])
        v2 = sum(sum(prior[j] * r[j] for j in range(s, 4)) for r in others) / len(others)
        found.append(returned - (s * v1 + (4 - s) * v2) / 4)
    return found


def test_brpo_term_by_term(tmp_path: Path) -> None:
    rule = reward("brpo(at: [2, 4, 6, 8 tokens], part: 2 tokens)", tmp_path)
    places = (2, 4, 6, 8)
    # By hand: right from the second budget on, beside one that never is. R_0 = .9, V2 = .45; R_1 - (0 + 3 .45) / 4;
    # R_2 = .7, V1 = 2/3 .7, V2 = .35; R_3 = .4, V1 = 6/7 .4, V2 = .2.
    late = RewardedResponse(9, True, {2: False, 4: True, 6: True, 8: True})
    never = RewardedResponse(9, False, dict.fromkeys(places, False))
    by_hand = [0.45, 0.9 - 1.35 / 4, 0.7 - (2 * 1.4 / 3 + 0.7) / 4, 0.4 - (3 * 2.4 / 7 + 0.2) / 4]
    assert interpret(rule, ResponseGroup("q", (late, never)), 0, places) == pytest.approx(by_hand)
    draw = random.Random(5)
    groups = []
    for number in range(6):
        rollouts = []
        for _ in range(4):
            length, whole = draw.randint(1, 12), draw.random() < 0.5
            rollouts.append(
                RewardedResponse(length, whole, {cut: draw.random() < 0.5 for cut in places if cut < length})
            )
        groups.append(ResponseGroup(f"q{number}", tuple(rollouts)))
    made = arrays(groups, [[places] * 4] * 6)
    values = vectorise(rule, made.inputs, made.forced.look_up, made.bare.look_up)
    for number, asked in enumerate(groups):
        answers = [[r.forced.get(cut, r.correct) for cut in places] for r in asked.rollouts]
        for index in range(4):
            expected = anytime(answers[index], answers)
            assert interpret(rule, asked, index, places) == pytest.approx(expected)
            np.testing.assert_allclose(values[number, index], expected, atol=1e-12)


def test_coefficients_of_dense_rewards(tmp_path: Path) -> None:
    right = dict.fromkeys(range(12), True)
    asked = ResponseGroup("q", (RewardedResponse(12, True, right, right),))
    brpo = reward("brpo_linear(at: [2, 4, 6, 8 tokens], longest: 8 tokens, n: 3)", tmp_path)
    assert interpret(brpo, asked, 0, (2, 4, 6, 8)) == pytest.approx([0.1, 0.2, 0.3, 0.4])
    printed = reward("reo_as_printed(at: [3, 10 tokens])", tmp_path)
    assert interpret(printed, asked, 0, (3, 10)) == [1.5, 3.5]
    own = reward("reo(at: [3, 10 tokens])", tmp_path)
    assert interpret(own, asked, 0, (3, 10)) == [5, 3.5]
    hard = reward("first_budget_alone(at: [3, 10 tokens])", tmp_path)
    assert interpret(hard, asked, 0, (3, 10)) == [1, 0]


def test_one_methods_split_with_anothers_modes_and_a_third_ones_reward() -> None:
    """Steps as in MRT, modes as in HGPO, lengths of the correct and of the reference: it says so and is graded alike."""
    found = compile_file(Path(__file__).with_name("mixed.reo"))
    assert found.spec is not None, [each.message for each in found.diagnostics]
    method = found.spec.study.arm("mixed").checkpoint.experiment.stages[0].method  # type: ignore[union-attr]
    draw = random.Random(7)
    groups, places = [], []
    for number in range(5):
        own = []
        cuts = []
        for index in range(4):
            length = draw.randint(6, 40)
            cut = sorted(draw.sample(range(1, length), 3))
            forced = {each: draw.random() < 0.5 for each in (0, *cut)}
            own.append(RewardedResponse(length, draw.random() < 0.5, forced, {}, {"mode": float(index % 2)}))
            cuts.append((*cut, length))
        reference = tuple(RewardedResponse(draw.randint(5, 50), True) for _ in range(2))
        groups.append(ResponseGroup(f"q{number}", tuple(own), reference))
        places.append(cuts)
    made = arrays(groups, places)
    values = vectorise(method.reward, made.inputs, made.forced.look_up, made.bare.look_up)
    for number, each in enumerate(groups):
        for index in range(4):
            expected = interpret(method.reward, each, index, places[number][index])
            np.testing.assert_allclose(values[number, index], expected, rtol=1e-12)


def library(call: str, tmp: Path) -> Reward:
    """A reward of `std.methods` with its arguments."""
    path = tmp / "own.reo"
    path.write_text("reward any { correct(y) }\n")
    found = choose_reward(str(path), f"std.methods.{call}")
    assert found.reward is not None, found.diagnostics
    return found.reward


@pytest.mark.parametrize("right", range(7))
@pytest.mark.parametrize("k", [1, 2, 4])
def test_pass_at_k_is_the_mean_over_all_draws_with_a_response(right: int, k: int, tmp_path: Path) -> None:
    """Chen et al. 2025: each draw of k is worth 1 where one is right, z-scored over all draws, and shared by its members."""
    verdicts = [index < right for index in range(6)]
    found = outcomes(library(f"pass_at_k(k: {k})", tmp_path), group(*((9, each) for each in verdicts)))
    draws = list(combinations(range(6), k))
    worth = [float(any(verdicts[each] for each in draw)) for draw in draws]
    mean, sigma = np.mean(worth), np.std(worth)
    for index in range(6):
        own = [value for draw, value in zip(draws, worth, strict=True) if index in draw]
        assert found[index] == pytest.approx((np.mean(own) - mean) / sigma if sigma > 1e-9 else 0)


@pytest.mark.parametrize(
    ("call", "value", "moved"),
    [
        ("leash(target: 20 tokens, rate: 0.5)", 0.2, lambda p, r, n: min(max(p + 0.5 * (n / 20 - 1), 0), 1)),
        (
            "laconic(budget: 20 tokens, rate: 0.1)",
            0,
            lambda p, r, n: min(max(p + 0.1 * (n / 20 - 1), 0), 0.1),
        ),
        ("a_dlp(reference: 0.6, rate: 0.01)", 1e-3, lambda p, r, n: max(p + 0.01 * (r - 0.6), 0)),
        ("deep_compress(keep: 0.9)", 1, lambda p, r, n: 0.9 * p + 0.1 * r),
    ],
)
def test_a_track_follows_the_steps(call: str, value: float, moved: Any, tmp_path: Path) -> None:
    """By a step's share of right answers, and its mean length."""
    rule = library(call, tmp_path)
    values = track_values(rule, 0, [], None)
    for step, lengths in enumerate(((30, 50), (21, 23), (9, 10), (3, 91), (90, 90)), 1):
        assert list(values.values()) == [pytest.approx(value)]
        right = [length % 2 == 0 for length in lengths]
        rows = {"rollout": [0, 1], "tokens": list(lengths), "correct": right, "mode": None, "budget": None}
        values = track_values(rule, step, [pl.DataFrame(rows)], None, previous=values)
        value = moved(value, sum(right) / 2, sum(lengths) / 2)


Group = Sequence[RewardedResponse]


def share_of(group: Group) -> float:
    return sum(each.correct for each in group) / len(group)


def mean(values: Sequence[float]) -> float:
    return sum(values) / len(values) if values else 0.0


def deviation(values: Sequence[float]) -> float:
    return math.sqrt(mean([(value - mean(values)) ** 2 for value in values]))


def entropies(one: RewardedResponse) -> list[float]:
    """An entropy for each token, which the response's length decides."""
    return [abs(math.sin(one.length + token)) for token in range(one.length)]


def slow_leash(index: int, group: Group, step: Sequence[Group]) -> float:
    """Li et al. 2025: r - price max(0, n / L - 1), within -1 and 1."""
    return min(max(group[index].correct - 0.3 * max(group[index].length / 20 - 1, 0), -1), 1)


def slow_laconic(index: int, group: Group, step: Sequence[Group]) -> float:
    """Liu et al. 2026: r - min(lambda max(0, L / B - 1), cap); their code takes 0.1 more at the limit."""
    one = group[index]
    return one.correct - min(0.3 * max(0, (one.length - 20) / 20), 0.4) - 0.1 * (not one.features["ended"])


def slow_jet(index: int, group: Group, step: Sequence[Group]) -> float:
    """Han et al. 2025, as their reward adds it up."""
    one, lengths = group[index], [each.length for each in group if each.correct]
    earned = 0.9 * one.correct + 0.1 * one.features["answered"]
    if one.correct:
        span = max(lengths) - min(lengths) + 1e-8
        earned += (1.2 * (max(lengths) - one.length) / span) * 0.95 + 0.05
    return earned


def slow_max_rl(index: int, group: Group, step: Sequence[Group]) -> float:
    """Tajwar et al. 2026: (r - mean) / mean, and nothing where no answer is right."""
    return (group[index].correct - share_of(group)) / share_of(group) if share_of(group) else 0.0


def slow_dgpo(index: int, group: Group, step: Sequence[Group]) -> float:
    """Dai et al. 2026, eq. 4 to 6; the loss of all tokens is made a mean over those of valid questions."""
    valid = [each for each in step if 0 < share_of(each) < 1]
    if group not in valid:
        return 0.0
    spread = mean([abs(each.correct - share_of(group)) for each in group])
    softmax = math.exp(-share_of(group) / 2) / sum(math.exp(-share_of(each) / 2) for each in valid)
    tokens = [sum(one.length for each in groups for one in each) for groups in (step, valid)]
    return len(valid) * softmax * (group[index].correct - share_of(group)) / spread * tokens[0] / tokens[1]


def slow_real(index: int, group: Group, step: Sequence[Group]) -> float:
    """Zhai et al. 2026: the slope of the question's loss by a response's score, where all scores are 0."""
    scores = torch.zeros(len(group), dtype=torch.float64, requires_grad=True)
    right = torch.tensor([each.correct for each in group])
    loss = (1 + torch.exp(-scores[right] / 0.5).sum()).log() + (
        1 + torch.exp(scores[~right] / 0.5).sum()
    ).log()
    loss.backward()
    return -len(group) * float(scores.grad[index])


def slow_pear(index: int, group: Group, step: Sequence[Group]) -> float:
    """Huang et al. 2025: min(1, s - max(0, H_think - alpha H_answer)), k the place of the mark, or of the last token."""
    one = group[index]
    found, k = entropies(one), int(one.features["thinking"])
    return min(1, 1 - max(0, mean(found[: k - 1]) - mean(found[k:]))) if one.correct else 0.0


def slow_cpas(index: int, group: Group, step: Sequence[Group]) -> list[float]:
    """Xu et al. 2026: (z + delta) w, w = |o|^-beta over the sum, here over the mean; ten times the first token."""
    one, spread = group[index], deviation([each.correct for each in group])
    advantage = (one.correct - share_of(group)) / spread if spread else 0.0
    if one.correct and one.features["thinking"] <= 1:
        advantage += 0.05
    weight = one.length**-0.4 / mean([each.length**-0.4 for each in group])
    return [10 * weight * advantage, weight * advantage]


def slow_smart_thinker(index: int, group: Group, step: Sequence[Group]) -> float:
    """Hu et al. 2026: lengths past the most likely one of two normal distributions, times p_err / (max - mean)."""
    lengths, right = [each.length for each in group], [each.length for each in group if each.correct]
    all_of, own = deviation(lengths) ** 2, deviation(right) ** 2
    best = (all_of * mean(right) - own * mean(lengths)) / (all_of - own) if own < all_of else min(lengths)
    best = max(min(lengths), min(max(lengths), best))
    past = [max(each.length - best, 0) if each.correct else 0 for each in group]
    room = max(past) - mean(past)
    return group[index].correct - (past[index] * (1 - share_of(group)) / room if room else 0)


def slow_deep_compress(index: int, group: Group, step: Sequence[Group]) -> float:
    """Liang et al. 2025: R_o = 1 or -1, and alpha / (1 + e^(beta z)) for right ones, beta = P_g - P_b."""
    lengths = [each.length for each in group]
    beta = share_of(group) - (0.99 * 0.3 + 0.01 * mean([share_of(each) for each in step]))
    z = (group[index].length - mean(lengths)) / (deviation(lengths) + 1e-12)
    return 1 + 0.2 / (1 + math.exp(beta * z)) if group[index].correct else -1.0


@pytest.mark.parametrize(
    ("call", "slow"),
    [
        ("leash(target: 20 tokens)", slow_leash),
        ("laconic(budget: 20 tokens)", slow_laconic),
        (
            "a_dlp(reference: 0.6)",
            lambda index, group, step: group[index].correct - 0.3 * group[index].length,
        ),
        ("jet()", slow_jet),
        # Prabhudesai et al. 2025: 1/T sum_t sum_v p_t(v) log p_t(v).
        ("rent()", lambda index, group, step: -mean(entropies(group[index]))),
        ("max_rl()", slow_max_rl),
        ("dgpo()", slow_dgpo),
        ("real()", slow_real),
        ("pear()", slow_pear),
        ("cpas(at: [1, 128 tokens], delta: 0.05)", slow_cpas),
        ("smart_thinker()", slow_smart_thinker),
        ("deep_compress()", slow_deep_compress),
    ],
)
def test_a_reward_is_a_slow_loop_of_its_paper_s_equations(call: str, slow: Any, tmp_path: Path) -> None:
    """Where nobody, everybody and some are right, lengths are equal or not, and tracks are 0.3."""
    rule, step = library(call, tmp_path), list[ResponseGroup]()
    assert all("(entropy(t) for t in y" in expression_text(node) for node in rule.tokens)
    reads = {"mean": mean, "sum": sum}
    for group in groups_of(random.Random(3)):
        told = [
            {
                node: {cut: reads[node.fn](entropies(one)[:cut]) for cut in range(one.length + 1)}
                for node in rule.tokens
            }
            for one in group.rollouts
        ]
        rollouts = [replace(one, tokens=each) for one, each in zip(group.rollouts, told, strict=True)]
        step.append(replace(group, rollouts=tuple(rollouts)))
    tracks = {track.name: 0.3 for track in rule.tracks}
    for group in step:
        whole = replace(group, batch=tuple(step), tracks=tracks)
        for index in range(len(group.rollouts)):
            expected = slow(index, group.rollouts, [each.rollouts for each in step])
            assert interpret(rule, whole, index, (1, 128)) == pytest.approx(np.atleast_1d(expected))


def test_skywork_or1_weighs_entropy_where_it_is_low(tmp_path: Path) -> None:
    """He et al. 2025: c_(k+1) = c_k + or - delta, a_k = c_k 1[e_k <= target], e_k the mean over a step's tokens."""
    rule = library("skywork_or1(target: 0.64, delta: 0.2, most: 0.5)", tmp_path)

    def told(one: RewardedResponse) -> dict[TokenRun, dict[int, float]]:
        return {node: {one.length: sum(entropies(one))} for node in rule.tokens}

    values, c, weights = dict[str, float](), 0.0, []
    for step in range(12):
        values = track_values(rule, step, [], None, previous=values)
        assert values == {"weight": pytest.approx(c)}
        step_groups = [
            replace(each, rollouts=tuple(replace(one, tokens=told(one)) for one in each.rollouts))
            for each in groups_of(random.Random(step))[:2]
        ]
        e = mean([each for group in step_groups for one in group.rollouts for each in entropies(one)])
        whole, numbers = replace(step_groups[0], batch=tuple(step_groups)), {"track.weight": c}
        for line in (*rule.lets, *rule.metrics):
            numbers[line.name] = measure("", line.value, whole, {"y": whole.rollouts[0]}, numbers)
        weights.append(c if e <= 0.64 else 0.0)
        assert (numbers["nats"], numbers["bonus"]) == pytest.approx((e, weights[-1]))
        c = min(max(c + (0.2 if e < 0.64 else -0.2), 0), 0.5)
        values["metric.nats"] = numbers["nats"]
    assert len(set(weights)) > 2


def test_adaptive_kl_moves_its_weight_towards_the_target(tmp_path: Path) -> None:
    """Ziegler et al. 2019: beta (1 + K clip((d - target) / target, -0.2, 0.2))."""
    rule = library("adaptive_kl()", tmp_path)
    (far,) = rule.tokens
    assert expression_text(far) == "sum(logprob(t) - logprob(t, under: teacher) for t in y)"
    values, beta = dict[str, float](), 0.2
    for step, found in enumerate((0, 5.5, 6, 7, 60, 60)):
        values = track_values(rule, step, [], None, previous=values)
        assert values == {"beta": pytest.approx(beta)}
        beta *= 1 + 0.1 * min(max(found / 6 - 1, -0.2), 0.2)
        values["metric.far"] = found


DIET = """reward diet {
  track pressure = 0.25 * (1 + cos(pi * step / 100 steps))
  let least = min(len(z) for z in group if correct(z), empty: 0 tokens)
  let most  = max(len(z) for z in group if correct(z), empty: 0 tokens)
  let brief = 0.5 - (len(y) - least) / (most - least) if correct(y) and most > least else 0
  z(correct(y)) + pressure * mean(correct(z) for z in group) * z(brief)
}
"""


def test_diet_lowers_the_weight_of_length_along_a_cosine(tmp_path: Path) -> None:
    """Chen et al. 2025, as their code: w p (cos(pi k / 100) + 1) / 2 times the length's part, 0.5 - its rank by length."""
    (tmp_path / "own.reo").write_text(DIET)
    rule = choose_reward(str(tmp_path / "own.reo"), None).reward
    assert rule is not None
    for step, asked in enumerate(groups_of(random.Random(1))):
        values = track_values(rule, 25 * step, [], None)
        lengths = [one.length for one in asked.rollouts if one.correct]
        for index, one in enumerate(asked.rollouts):
            brief = 0.0
            if one.correct and max(lengths) > min(lengths):
                brief = 0.5 - (one.length - min(lengths)) / (max(lengths) - min(lengths))
            weight = 0.5 * share_of(asked.rollouts) * (math.cos(math.pi * step / 4) + 1) / 2
            found = interpret(rule, replace(asked, tracks=values), index)
            assert found == pytest.approx([float(one.correct), brief, weight])


@pytest.mark.parametrize(
    "shape", ["1 - 0.4 * min(1, step / 400 steps)", "0.8 + 0.2 * cos(pi * min(1, step / 400 steps))"]
)
def test_dss_grpo_cools_from_1_to_06_in_400_steps(shape: str, tmp_path: Path) -> None:
    """Tian and Liu 2026, as their code: T_k = end + (start - end) f(k / 400), f a line or half a cosine."""
    (tmp_path / "own.reo").write_text(
        f"reward dss {{\n  track heat = {shape}\n  metric now = heat\n  correct(y)\n}}\n"
    )
    rule = choose_reward(str(tmp_path / "own.reo"), None).reward
    assert rule is not None
    for step in (0, 100, 200, 399, 400, 900):
        share = min(step / 400, 1.0)
        fallen = 1 - share if "cos" not in shape else (1 + math.cos(math.pi * share)) / 2
        assert track_values(rule, step, [], None) == {"heat": pytest.approx(0.6 + 0.4 * fallen)}


def test_hapo_rewards_what_is_shorter_than_before(tmp_path: Path) -> None:
    """The shortest right one had 20 tokens; before any was right only the verdict counts."""
    rule = library("hapo()", tmp_path)
    asked = group((10, True), (30, True), (80, True), (10, False), (40, False))
    assert outcomes(rule, replace(asked, history=(RewardedResponse(5, False),))) == [1, 1, 1, 0, 0]
    earlier = (RewardedResponse(60, True), RewardedResponse(5, False), RewardedResponse(20, True))
    half = math.cos(math.pi / 4)
    assert outcomes(rule, replace(asked, history=earlier)) == pytest.approx(
        [1 + half, 1 - 0.7, 1 - 0.7, 0, -1]
    )


def slow_saber(one: RewardedResponse, start: float) -> float:
    """Their reward: -1 for thinking that does not end; else the verdict, the budget of the tier, and the start's thinking.

    Thinking has the tokens between its marks, of which ours counts the last as well.
    """
    thought, mode = one.features["thinking"] - 1, int(one.features["mode"])
    if one.features["thinking"] == one.length:
        return -1.0
    earned = float(one.correct)
    if thought > {2: 128, 3: 4096, 4: 16384}.get(mode, math.inf):
        earned -= 0.4
    if mode and not 0.2 * start <= thought <= 1.2 * start:
        earned -= 0.4
    return earned


@pytest.mark.parametrize(
    ("start", "mode"), [(100, 2), (128, 2), (3000, 3), (9000, 4), (30_000, 5), (500, 1), (70, 0)]
)
def test_saber_minds_the_budget_of_a_question_and_the_start_s_thinking(
    start: int, mode: int, tmp_path: Path
) -> None:
    thoughts = {round(start * share) + more for share in (0.2, 1, 1.2) for more in (-1, 0, 1)}
    thoughts |= {128, 129, 4096, 4097, 16384, 16385}
    rollouts = tuple(
        RewardedResponse(thought + 1 + rest, right, features={"mode": float(mode), "thinking": thought + 1.0})
        for thought in (sorted(thoughts) if mode else [-1])
        for right in (True, False)
        for rest in (0, 40)
        if thought + 1 + rest > 0
    )
    reference = tuple(
        RewardedResponse(99_999, right, features={"thinking": start + 1.0 + more})
        for right, more in ((True, -50), (False, 50))
    )
    group_of = ResponseGroup("q", rollouts, reference)
    expected = [slow_saber(each, start) for each in rollouts]
    assert outcomes(library("saber()", tmp_path), group_of) == pytest.approx(expected)
    assert len(set(expected)) > (4 if 1 < mode < 5 else 3 if mode else 1)


def asked(rule: Reward, *numbers: tuple[float, ...], right: tuple[bool, ...]) -> ResponseGroup:
    """Responses with what models think of them, in the order of the reward's statistics."""
    rollouts = [
        RewardedResponse(
            9,
            verdict,
            features={"answered": 1.0},
            tokens={node: {0: each, 9: each} for node, each in zip(rule.tokens, told, strict=True)},
        )
        for told, verdict in zip(numbers, right, strict=True)
    ]
    return ResponseGroup("q", tuple(rollouts))


def test_rlpr_pays_what_reasoning_adds_to_the_reference_answer(tmp_path: Path) -> None:
    """Yu et al. 2025: r = clip(mean p with the reasoning - mean p without it, 0, 1); a verdict has no part."""
    rule = library("rlpr()", tmp_path)
    assert [expression_text(node) for node in rule.tokens] == [
        "mean(prob(t) for t in truth(y))",
        "mean(prob(t) for t in truth(y[:0 tokens]))",
    ]
    told = asked(rule, (0.9, 0.2), (0.1, 0.2), (0.2, 0.2), right=(False, True, False))
    assert outcomes(rule, replace(told, tracks={"least": 0})) == pytest.approx([0.7, 0, 0])
    # They spread by 0.33: with a bar above that the question is dropped.
    for least, found in ((0.32, 0.7), (0.34, 0)):
        assert outcomes(rule, replace(told, tracks={"least": least}))[0] == pytest.approx(found)


def test_rlpr_drops_questions_by_a_moving_average_of_spreads(tmp_path: Path) -> None:
    """As their code does: from step 11 on, against the mean of steps 6 to 10, which then moves by a hundredth a step."""
    rule, values, spreads = library("rlpr()", tmp_path), dict[str, float](), [0.1 * n for n in range(1, 15)]
    for step, spread in enumerate(spreads):
        values = track_values(rule, step, [], None, previous=values)
        # Step n of their count has n - 1 steps done.
        expected = float(np.mean(spreads[5:10])) if step >= 10 else 0
        for each in spreads[10:step]:
            expected = 0.99 * expected + 0.01 * each
        assert values["least"] == pytest.approx(0.5 * expected)
        values |= {"metric.spread": spread}


def test_drpo_has_the_gradient_of_its_authors_loss(tmp_path: Path) -> None:
    """Li et al. 2025: the weighted mean of right scores less tau log sum e^(s/tau) of wrong ones."""
    rule = library("drpo(longest: 100 tokens, lambda: 0.5, tau: 0.25)", tmp_path)
    lengths = (20, 60, 90, 40, 70)
    right, scores = (True, True, False, False, False), (-0.2, -0.5, -0.1, -0.9, -0.4)
    told = asked(rule, *((each,) for each in scores), right=right)
    told = replace(
        told,
        rollouts=tuple(
            replace(each, length=n, tokens={node: {n: found[9]} for node, found in each.tokens.items()})
            for each, n in zip(told.rollouts, lengths, strict=True)
        ),
    )
    s = torch.tensor(scores, dtype=torch.float64, requires_grad=True)
    weights = torch.tensor([math.exp((1 - n / 100) / 0.5) for n in lengths[:2]])
    objective = (weights * s[:2]).sum() / weights.sum() - 0.25 * (s[2:] / 0.25).logsumexp(0)
    objective.backward()
    # A response's score is the mean over its tokens, and a step's loss is a mean over the question's five responses.
    assert [each / 5 for each in outcomes(rule, told)] == pytest.approx(s.grad.tolist())
    alike = replace(told, rollouts=tuple(replace(each, correct=True) for each in told.rollouts))
    assert outcomes(rule, alike) == [0] * 5


def test_grpo_care_pays_right_answers_that_their_reasoning_makes_likely(tmp_path: Path) -> None:
    """Of the right ones 0.8 and 0.4 have a mean of 0.6; a wrong one gets nothing however likely, nor does it count."""
    rule = library("grpo_care(margin: 0.1, form: 0)", tmp_path)
    assert [expression_text(node) for node in rule.tokens] == [
        "mean(logprob(t, under: teacher) for t in answer(y), empty: -100)"
    ]
    logs = [(math.log(each),) for each in (0.8, 0.4, 0.99, 0.55)]
    told = asked(rule, *logs[:3], right=(True, True, False))
    assert outcomes(rule, told) == pytest.approx([1.5, 1, 0])
    # With 0.55 the mean is 0.583, and 0.1 less than that is enough.
    assert outcomes(rule, asked(rule, *logs, right=(True, True, False, True))) == pytest.approx(
        [1.5, 1, 0, 1.5]
    )
    assert outcomes(rule, asked(rule, *logs, right=(False,) * 4)) == [0] * 4
    # The authors' values: likelihoods count as 0.95 at most, so that of two near 1 neither is ahead, and 0.01 is allowed.
    # An answer earns 1 more, right or wrong.
    rule = library("grpo_care()", tmp_path)
    for likely, found in (
        ((0.999, 0.951), [2.5, 2.5]),
        ((0.95, 0.931), [2.5, 2.5]),
        ((0.95, 0.929), [2.5, 2]),
        # What no token of an answer was found for, because it has several boxes, is not the most likely one.
        ((0.6, math.exp(rule.tokens[0].empty.value)), [2.5, 2]),
    ):
        told = asked(rule, *((math.log(each),) for each in likely), right=(True, True))
        assert outcomes(rule, told) == pytest.approx(found)


def test_a_plan_tells_what_is_remembered(tmp_path: Path) -> None:
    path = tmp_path / "spec.reo"
    text = SPEC.replace("std.rewards import NAME", "std.methods import hapo").replace("CALL", "hapo()")
    path.write_text(text.replace("WORDINGS", "[within]"))
    assert "rewards of it remember at most 1,024 earlier responses of each question" in plan(path)
