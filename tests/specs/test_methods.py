"""Rewards of the library against numbers worked out by hand from their papers' equations, nobody correct included."""

from __future__ import annotations

import math
import random
from dataclasses import replace
from itertools import combinations
from pathlib import Path

import numpy as np
import polars as pl
import pytest
import torch

from reodsl.ir.reward import ResponseGroup, Reward, RewardedResponse
from reodsl.ir.reward_text import expression_text
from reodsl.ir.training import Advantage, FromTraining, Ppo
from reodsl.language import compile_file
from reodsl.language.chosen_reward import choose_reward
from runners.rewards.interpret import interpret
from runners.rewards.tracks import track_values
from runners.rewards.vectorise import vectorise
from runners.train.advantages import advantages_of
from tests.plan.test_growth import plan
from tests.rewards.reward_groups import arrays

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


def test_length_group_norm_on_few_and_on_no_correct_responses(tmp_path: Path) -> None:
    rule = reward("length_group_norm(alpha: 0.4)", tmp_path)
    assert outcomes(rule, group((5, False), (9, False))) == [0, 0]
    assert outcomes(rule, group((5, True), (9, False))) == pytest.approx([1 - 0.4 * 0.5, 0])
    # Lengths 4 and 8: mean 6, deviation 2.
    low, high = (1 / (1 + math.exp(x)) for x in (1, -1))
    assert outcomes(rule, group((4, True), (8, True), (30, False))) == pytest.approx(
        [1 - 0.4 * low, 1 - 0.4 * high, 0]
    )


def test_length_harmonizing_against_the_reference(tmp_path: Path) -> None:
    rule = reward("length_harmonizing(gamma: 2)", tmp_path)
    asked = group((5, True), (20, False), reference=((8, True), (12, False)))
    assert outcomes(rule, asked) == pytest.approx([10 / 5 - 1 + 2 * 0.5, 10 / 20 - 1 - 2 * 0.5])


def test_l1_exact_and_max(tmp_path: Path) -> None:
    asked = group((90, True), (120, True), (120, False), (400, True), budget=100)
    assert outcomes(reward("l1_exact(alpha: 0.001)", tmp_path), asked) == pytest.approx(
        [1 - 0.01, 1 - 0.02, -0.02, 1 - 0.3]
    )
    assert outcomes(reward("l1_max(alpha: 0.01, delta: 0.5)", tmp_path), asked) == pytest.approx(
        [0.6, 0.3, 0, 0]
    )


def test_kimi_over_the_group(tmp_path: Path) -> None:
    rule = reward("kimi_length(weight: 1)", tmp_path)
    asked = group((10, True), (20, True), (30, True), (10, False), (30, False))
    assert outcomes(rule, asked) == pytest.approx([1.5, 1, 0.5, 0, -0.5])
    assert outcomes(rule, group((10, True), (10, False))) == [1, 0]


def test_soft_overlong_is_linear_inside_its_buffer(tmp_path: Path) -> None:
    rule = reward("soft_overlong(longest: 20 tokens, buffer: 4 tokens)", tmp_path)
    asked = group((12, True), (16, True), (18, True), (20, False))
    assert outcomes(rule, asked) == pytest.approx([1, 1, 0.5, -1])


def test_tokens_cost_more_where_more_are_right(tmp_path: Path) -> None:
    """ALP: p = 3/4 of four, so 0.1 n / 100 3/4; where nobody is right 1/K takes the place of p."""
    rule = reward("alp(beta: 0.1, scale: 100 tokens)", tmp_path)
    asked = group((20, True), (40, True), (80, True), (40, False))
    assert outcomes(rule, asked) == pytest.approx([1 - 0.015, 1 - 0.03, 1 - 0.06, -0.03])
    assert outcomes(rule, group((40, False), (80, False))) == pytest.approx([-0.02, -0.04])


def test_the_shortest_right_response_is_aimed_at(tmp_path: Path) -> None:
    """ShorterBetter: 30 is the shortest right one; where none is right it is the mean, 50, from both sides."""
    rule = reward("shorter_better(alpha: 2, beta: 0.01)", tmp_path)
    asked = group((10, False), (30, True), (70, True), (90, False))
    assert outcomes(rule, asked) == pytest.approx([-0.2, 2, 2 - 0.4, -0.6])
    assert outcomes(rule, group((20, False), (80, False))) == pytest.approx([-0.3, -0.3])


def test_half_a_cosine_between_two_lengths(tmp_path: Path) -> None:
    """At a third of the limit cos is 1/2, at half 0, at two thirds -1/2; the limit itself is past it."""
    values = "right_short: 2, right_long: 1, wrong_short: -8, wrong_long: 0, exceeded: -10"
    rule = reward(f"cosine_length(longest: 60 tokens, {values})", tmp_path)
    asked = group((20, True), (30, True), (40, True), (20, False), (30, False), (60, True))
    assert outcomes(rule, asked) == pytest.approx([1.75, 1.5, 1.25, -6, -4, -10])


SERIAL = """
reward serial(at: budgets) {
  dense L in at: correct(answer(y[:L])) / 2 ^ (count(M for M in splits if M <= L and correct(answer(y[:M]))) - 1)
}
"""


def test_a_reward_that_halves_with_each_right_exit(tmp_path: Path) -> None:
    """S-GRPO (Dai et al. 2025): exits that are wrong, right, right, wrong, right earn 0, 1, 1/2, 0, 1/4."""
    path = tmp_path / "spec.reo"
    spec = SPEC.replace("from std.rewards import NAME", SERIAL).replace("WORDINGS", "[within]")
    path.write_text(spec.replace("CALL", "serial(at: [2, 4, 6, 8, 10 tokens])"))
    compiled = compile_file(path).spec
    assert compiled is not None
    rule = compiled.study.arm("it").checkpoint.experiment.stages[0].method.reward  # type: ignore[union-attr]
    places = (2, 4, 6, 8, 10)
    verdicts = dict(zip(places, (False, True, True, False, True), strict=True))
    asked = ResponseGroup(
        "q",
        (
            RewardedResponse(12, True, verdicts),
            RewardedResponse(5, False, {2: True, 4: False}),
            RewardedResponse(3, True, {2: False}),
        ),
    )
    # A response that has ended is graded as it is: its own verdict stands at every later exit.
    expected = [[0, 1, 0.5, 0, 0.25], [1, 0, 0, 0, 0], [0, 1, 0.5, 0.25, 0.125]]
    assert [interpret(rule, asked, index, places) for index in range(3)] == expected
    made = arrays([asked], [[places] * 3])
    np.testing.assert_allclose(
        vectorise(rule, made.inputs, made.forced.look_up, made.bare.look_up)[0], expected
    )


def test_pruned_past_the_limit(tmp_path: Path) -> None:
    assert outcomes(reward("pruned(limit: 8 tokens)", tmp_path), group((8, True), (9, True))) == [1, 0]


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


def test_leash_prices_tokens_past_the_target(tmp_path: Path) -> None:
    """The price is 0.2, then rises by 0.5 (30 / 20 - 1), then falls to 0 at most."""
    rule, lengths = (
        library("leash(target: 20 tokens, rate: 0.5)", tmp_path),
        [(30, 0.45), (2, 0.0), (20, 0.0)],
    )
    asked = group((10, True), (50, True), (90, False))
    values = track_values(rule, 0, [], None)
    assert outcomes(rule, replace(asked, tracks=values)) == pytest.approx([1, 1 - 0.2 * 1.5, -0.2 * 3.5])
    for step, (length, price) in enumerate(lengths, 1):
        rows = {
            "rollout": [0, 1],
            "tokens": [length] * 2,
            "correct": [True] * 2,
            "mode": None,
            "budget": None,
        }
        values = track_values(rule, step, [pl.DataFrame(rows)], None, previous=values)
        assert values == {"price": pytest.approx(price)}
    assert outcomes(rule, replace(asked, tracks={"price": 0.9})) == pytest.approx([1, 1 - 0.9 * 1.5, -1])


def test_laconic_prices_tokens_past_the_budget_and_being_cut_off(tmp_path: Path) -> None:
    """Liu et al. 2026: r - min(lambda max(0, L / B - 1), cap), lambda + eta (mean L / B - 1) in [0, ceiling], from 0.

    Their code takes 0.1 more from a response as long as the limit.
    """
    rule = library("laconic(budget: 20 tokens, rate: 0.1)", tmp_path)
    values, price = track_values(rule, 0, [], None), 0.0
    for step, lengths in enumerate(((30, 50), (21, 23), (9, 10), (4, 90), (90, 90)), 1):
        verdicts, ends = [length % 2 == 0 for length in lengths], [length < 90 for length in lengths]
        asked = ResponseGroup(
            "q",
            tuple(
                RewardedResponse(length, right, features={"ended": float(ended)})
                for length, right, ended in zip(lengths, verdicts, ends, strict=True)
            ),
            tracks=values,
        )
        assert outcomes(rule, asked) == pytest.approx(
            [
                right - min(price * max(0, (length - 20) / 20), 0.4) - 0.1 * (not ended)
                for length, right, ended in zip(lengths, verdicts, ends, strict=True)
            ]
        )
        rows = {"rollout": [0, 1], "tokens": list(lengths), "correct": verdicts, "mode": None, "budget": None}
        values = track_values(rule, step, [pl.DataFrame(rows)], None, previous=values)
        price = min(max(price + 0.1 * (sum(lengths) / 2 / 20 - 1), 0), 0.1)
        assert values == {"price": pytest.approx(price)}
    assert price == 0.1


def test_a_dlp_prices_tokens_while_accuracy_is_above_the_reference(tmp_path: Path) -> None:
    """Su and Cardie 2025: I(right) - lambda len(y), and lambda + eta (accuracy - reference), not below 0."""
    rule, asked = library("a_dlp(reference: 0.6, rate: 0.01)", tmp_path), group((10, True), (50, False))
    values = track_values(rule, 0, [], None)
    assert outcomes(rule, replace(asked, tracks=values)) == pytest.approx([1 - 0.01, -0.05])
    for step, (right, price) in enumerate((((1, 1), 0.005), ((1, 0), 0.004), ((0, 0), 0)), 1):
        rows = {"rollout": [0, 1], "tokens": [9, 9], "correct": [bool(each) for each in right]}
        table = pl.DataFrame(rows | {"mode": None, "budget": None})
        values = track_values(rule, step, [table], None, previous=values)
        assert values == {"price": pytest.approx(price)}


def test_hapo_rewards_what_is_shorter_than_before(tmp_path: Path) -> None:
    """The shortest right one had 20 tokens; before any was right only the verdict counts."""
    rule, asked = (
        library("hapo()", tmp_path),
        group((10, True), (30, True), (80, True), (10, False), (40, False)),
    )
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


def test_jet_pays_right_answers_by_their_place_between_the_shortest_and_the_longest(tmp_path: Path) -> None:
    def slow(group: list[RewardedResponse]) -> list[float]:
        """As their reward adds it up."""
        lengths = [one.length for one in group if one.correct]
        earned = []
        for one in group:
            earned.append(0.9 * one.correct + 0.1 * one.features["answered"])
            if one.correct:
                span = max(lengths) - min(lengths) + 1e-8
                earned[-1] += (1.2 * (max(lengths) - one.length) / span) * 0.95 + 0.05
        return earned

    rule = library("jet()", tmp_path)
    for verdicts in ([1, 1, 0, 1], [1, 0, 0, 0], [0, 0, 0, 0], [1, 1, 1, 1]):
        group = [
            RewardedResponse(n, bool(right), features={"answered": float(right or n > 9)})
            for n, right in zip((40, 9, 3, 60), verdicts, strict=True)
        ]
        assert outcomes(rule, ResponseGroup("q", tuple(group))) == pytest.approx(slow(group))


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


def test_rent_pays_confidence(tmp_path: Path) -> None:
    """Prabhudesai et al. 2025: r = 1/T sum_t sum_v p_t(v) log p_t(v)."""
    rule = library("rent()", tmp_path)
    assert [expression_text(node) for node in rule.tokens] == ["mean(entropy(t) for t in y)"]
    assert outcomes(rule, asked(rule, (0.5,), (2.0,), right=(True, False))) == [-0.5, -2]


def test_drpo_has_the_gradient_of_its_authors_loss(tmp_path: Path) -> None:
    """Li et al. 2025: the weighted mean of right scores less tau log sum e^(s/tau) of wrong ones."""
    rule, lengths = (
        library("drpo(longest: 100 tokens, lambda: 0.5, tau: 0.25)", tmp_path),
        (20, 60, 90, 40, 70),
    )
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
