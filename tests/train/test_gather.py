"""Gathering a batch: rounds that replace questions without a gradient, against a loop that says so question by question."""

from __future__ import annotations

import re
import weakref
from dataclasses import replace
from pathlib import Path

import numpy as np
import polars as pl
import pytest
import torch

import runners.train
from reodsl.ir.expression import Aggregate, Correct, Infix, Length
from reodsl.ir.reward import Metric, Part, Reward
from reodsl.ir.training import Advantage, Batch, Ppo
from runners.engine.protocol import Insertion
from runners.rewards.inputs import CutVerdicts
from runners.train import gather as module
from runners.train import rollouts as rollouts_module
from runners.train.batch import TrainBatch, make_padded
from runners.train.gather import ScoredStep, batch_of, combine_rounds, make_step, score, step_metrics
from runners.train.rollouts import REWARD, GradedStep, limit_texts
from tests.train.models import small_model
from tests.train.test_update import (
    QUESTIONS,
    ROLLOUTS,
    experience,
    method,
    responses_of,
    with_prefixes,
    with_responses,
)

VERDICTS = {
    0: [[1, 0, 1, 0], [1, 1, 1, 1], [0, 0, 0, 0]],  # one question of three gives a gradient
    1: [[1, 1, 1, 1], [1, 1, 1, 1], [0, 0, 0, 0]],  # none
    2: [[0, 0, 0, 0], [0, 0, 1, 0], [1, 0, 0, 0]],  # two
    3: [[1, 0, 0, 0], [1, 0, 0, 0], [1, 0, 0, 0]],  # all
}


class Draws:
    """Rounds with these verdicts in turn; which draws were asked for is kept."""

    def __init__(self, order: list[int], seconds: float = 1.5) -> None:
        self.base = experience(small_model())
        self.order = order
        self.asked: list[int] = []
        self.seconds = seconds

    def __call__(self, draw: int) -> GradedStep:
        round_ = self.order[len(self.asked)]
        self.asked.append(draw)
        inputs = replace(self.base.inputs, correct=np.array(VERDICTS[round_], dtype=float))
        names = tuple(f"draw{draw}-q{i}" for i in range(QUESTIONS))
        shifted = [
            replace(one, tokens=tuple((t + round_) % 20 + 2 for t in one.tokens))
            for one in responses_of(self.base)
        ]
        return replace(
            with_responses(self.base, shifted),
            inputs=replace(inputs, questions=names),
            seconds={"seconds_generate": self.seconds},
        )


def rows_of(batch: TrainBatch) -> list[tuple[int, ...]]:
    """The trained tokens of each row."""
    ends = zip(batch.offsets.tolist()[1:], batch.num_trained.tolist(), strict=True)
    return [tuple(batch.tokens[end - count : end].tolist()) for end, count in ends]


def advantages_of(batch: TrainBatch) -> tuple[torch.Tensor, ...]:
    return batch.advantages.split(batch.num_trained.tolist())


def slowly(order: list[int], resample: int) -> tuple[int, list[tuple[int, ...]], list[float]]:
    """Rounds used, the tokens of every response that is learnt, and its first advantage."""
    draws = Draws(order)
    tokens: list[tuple[int, ...]] = []
    firsts: list[float] = []
    used = groups = 0
    while used <= resample and groups < QUESTIONS:
        found = draws(used)
        used += 1
        for q, right in enumerate(found.inputs.correct):
            if groups == QUESTIONS or right.std() == 0:
                continue
            groups += 1
            for r in range(ROLLOUTS):
                tokens.append(found.rollouts[q * ROLLOUTS + r].response.tokens)
                firsts.append((right[r] - right.mean()) / right.std())
    return used, tokens, firsts


@pytest.mark.parametrize(
    ("order", "resample"),
    [([0, 2], 5), ([0, 1, 3], 5), ([3], 5), ([0, 1], 1), ([0, 1, 2], 2), ([1, 1, 2], 2), ([2, 3], 4)],
)
def test_rounds_replace_questions_without_a_gradient(order: list[int], resample: int) -> None:
    draws = Draws(order)
    found = make_step(draws, method(resample=resample), 7)
    used, tokens, firsts = slowly(order, resample)
    assert draws.asked == [7 * (1 + resample) + k for k in range(used)]
    assert rows_of(found.batch) == tokens
    assert [float(own[0]) for own in advantages_of(found.batch)] == pytest.approx(firsts, rel=1e-5)
    for column in (found.batch.sampled_mask, found.batch.engine_logprobs, found.batch.sampling_logprobs):
        assert len(column) == sum(len(own) for own in tokens)
    assert (found.metrics["rounds"], found.metrics["groups_short"]) == (
        used,
        QUESTIONS - len(tokens) // ROLLOUTS,
    )
    assert found.seconds["seconds_generate"] == 1.5 * used
    right = np.mean([VERDICTS[k] for k in order[:used]])
    assert found.metrics["accuracy"] == pytest.approx(right)
    assert found.metrics["tokens"] == used * sum(len(r.tokens) for r in responses_of(draws.base))
    assert found.table.height == used * QUESTIONS * ROLLOUTS
    assert set(found.table["step"]) == {8}


def test_rollouts_with_a_text_keep_their_parts_and_advantages() -> None:
    draws = Draws([0])
    count = QUESTIONS * ROLLOUTS
    texts = tuple("so" if at % 2 == 0 else None for at in range(count))
    found = make_step(lambda number: replace(draws(number), texts=texts), method(), 0)
    for at, row in enumerate(found.table.iter_rows(named=True)):
        if at % 2:
            assert row["parts"] is row["advantages"] is None
        else:
            assert sum(row["parts"]) == pytest.approx(row["reward"])
            (own,) = row["advantages"]
            assert advantages_of(found.batch)[at].tolist() == pytest.approx([own] * row["tokens"])


@pytest.mark.parametrize(
    ("order", "resample"), [([3], 0), ([0], 0), ([0, 2], 5), ([2, 3], 4), ([0, 1, 2], 2)]
)
def test_a_batch_of_several_rounds_is_normalised_as_one(order: list[int], resample: int) -> None:
    """Over the trained tokens of all questions that are learnt from, whichever round they came with, and of no others."""
    rule = method(resample=resample, advantage=Advantage(batch=True))
    batch = make_step(Draws(order), rule, 7).batch
    plain = make_step(Draws(order), method(resample=resample), 7).batch
    assert rows_of(batch) == rows_of(plain)
    before = [own.numpy() for own in advantages_of(plain)]
    groups = [before[at : at + ROLLOUTS] for at in range(0, len(before), ROLLOUTS)]
    trained = [own for group in groups if any(each.any() for each in group) for own in group]
    every = np.concatenate(trained).astype(float)
    expected = [
        (own - every.mean()) / every.std() if any(own is each for each in trained) else own * 0
        for own in before
    ]
    for own, wanted in zip(advantages_of(batch), expected, strict=True):
        np.testing.assert_allclose(own, wanted, rtol=1e-5, atol=1e-6)
    # A bound cuts what the batch's z-scores are, and not what goes into them.
    bounded = method(resample=resample, advantage=Advantage(batch=True, bound=0.9))
    cut = make_step(Draws(order), bounded, 7).batch.advantages
    np.testing.assert_allclose(cut, batch.advantages.clamp(-0.9, 0.9), rtol=1e-6)


def test_rounds_with_unlike_numbers_of_sections_are_normalised_as_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As those are that have the most reasoning steps of any response of their round."""
    made = []
    for number, sections in enumerate(([[[2.0], [-2.0]]], [[[1.0, 4.0], [-1.0, 0.0]]])):
        tokens = [[[3], [1]]] if number == 0 else [[[1, 2], [4, 0]]]
        made.append((np.zeros((1, 2, 1)), np.array(sections), np.array(tokens), 0.0))
    waiting = iter(made)
    monkeypatch.setattr(module, "score", lambda graded, rule, own: ScoredStep(graded, *next(waiting)))
    base = experience(small_model())
    few = tuple(
        replace(
            one,
            tokens=one.tokens[:1] * n,
            logprobs=one.logprobs[:1] * n,
            sampling_logprobs=one.sampling_logprobs[:1] * n,
        )
        for one, n in zip(responses_of(base), (3, 1), strict=False)
    )
    inputs = replace(base.inputs, length=np.array([[3.0, 1.0]]), correct=np.zeros((1, 2)))
    two = replace(base, rollouts=base.rollouts[:2], inputs=inputs, prefix_answers=((), ()))
    pair = with_responses(two, few)
    rule = method(resample=1, batch=Batch(prompts=2, rollouts=2), advantage=Advantage(batch=True))
    found = make_step(lambda draw: pair, rule, 0).batch
    every = np.array([2, 2, 2, -2, 1, 4, 4, -1, -1, -1, -1])
    np.testing.assert_allclose(found.advantages.numpy(), (every - every.mean()) / every.std(), rtol=1e-6)


def test_of_a_round_only_what_is_learnt_from_stays_in_memory() -> None:
    """Ten rounds of long responses would be tens of gigabytes."""
    draws = Draws([1, 1, 1, 2, 3])
    made: list[weakref.ref[np.ndarray]] = []
    most = 0

    def watched(draw: int) -> GradedStep:
        nonlocal most
        found = draws(draw)
        made.append(weakref.ref(found.inputs.correct))
        most = max(most, sum(each() is not None for each in made))
        return found

    make_step(watched, method(resample=4), 0)
    assert len(draws.asked) == 5
    # The one that is made, and the one before it.
    assert most <= 2


def test_nothing_with_a_gradient_leaves_the_first_round() -> None:
    found = make_step(Draws([1, 1]), method(resample=1), 0)
    assert len(found.batch) == QUESTIONS * ROLLOUTS
    assert not found.batch.advantages.any()
    assert found.metrics["groups_short"] == QUESTIONS


def test_without_resampling_a_step_is_one_draw_as_it_is() -> None:
    draws = Draws([0])
    rule: Ppo = method()
    found = make_step(draws, rule, 7)
    assert draws.asked == [7]
    scored = score(Draws([0])(7), rule)
    assert rows_of(found.batch) == rows_of(batch_of(scored))
    assert found.metrics == step_metrics(scored)


def test_means_over_tokens_and_forced_answers_count_each_of_them_once() -> None:
    """Rounds have unlike numbers of both."""
    draws, made = Draws([0, 2]), list[GradedStep]()

    def of_other_lengths(draw: int) -> GradedStep:
        found = draws(draw)
        kept = [i % (1 + len(made)) == 0 for i in range(6)]
        forced = CutVerdicts.of([(i, 0, i % 4 == 0) for i, own in enumerate(kept) if own], found.forced.width)
        responses = [
            replace(r, logprobs=tuple(x * (1 + len(made)) for x in r.logprobs)) for r in responses_of(found)
        ]
        if made:
            responses = [replace(r, tokens=r.tokens[:2], logprobs=r.logprobs[:2]) for r in responses]
        length = np.array([len(r.tokens) for r in responses], dtype=float).reshape(found.inputs.length.shape)
        inputs = replace(found.inputs, length=length)
        made.append(replace(with_responses(found, responses), forced=forced, inputs=inputs))
        return made[-1]

    nothing = np.zeros((QUESTIONS, ROLLOUTS, 1))
    rows = [
        step_metrics(ScoredStep(of_other_lengths(draw), nothing, nothing, nothing.astype(int), 0.0))
        for draw in range(2)
    ]
    found = combine_rounds(rows)
    logprobs = np.concatenate([r.logprobs for one in made for r in responses_of(one)])
    assert len(logprobs) == found["tokens"]
    assert found["entropy"] == pytest.approx(-logprobs.mean())
    assert found["entropy"] != pytest.approx((rows[0]["entropy"] + rows[1]["entropy"]) / 2)
    verdicts = np.concatenate([one.forced.values for one in made])
    assert found["forced_accuracy"] == pytest.approx(verdicts.mean())
    assert found["forced_accuracy"] != pytest.approx(
        (rows[0]["forced_accuracy"] + rows[1]["forced_accuracy"]) / 2
    )
    assert found["length"] == pytest.approx((rows[0]["length"] + rows[1]["length"]) / 2)


@pytest.mark.parametrize(("round_", "share"), [(0, 2 / 3), (1, 1), (2, 1 / 3), (3, 0)])
def test_questions_without_any_advantage_are_counted(round_: int, share: float) -> None:
    assert make_step(Draws([round_]), method(), 0).metrics["equal_groups"] == pytest.approx(share)


def test_a_step_says_how_rewards_spread_within_questions_and_what_no_verifier_settled() -> None:
    rewards = np.array([[[0.0], [4.0]], [[1.0], [1.0]], [[0.0], [2.0]]]).repeat(ROLLOUTS // 2, axis=1)
    base = experience(small_model())
    scored = ScoredStep(replace(base, unsettled=()), rewards, rewards, np.ones_like(rewards, dtype=int), 0.0)
    row = step_metrics(scored)
    # Half of a question's rewards are at each end: their distance to the mean is 2, 0 and 1.
    assert (row["reward"], row["reward_std"]) == pytest.approx((8 / 6, 1))
    assert (row["verifier_timeouts"], row["verifier_failures"]) == (0, 0)
    row = step_metrics(
        replace(
            scored, graded=replace(base, unsettled=(("timeout", "failed: x"), ("timeout", *["failed"] * 2)))
        )
    )
    assert (row["verifier_timeouts"], row["verifier_failures"]) == (2, 3)


def test_parts_of_a_reward_are_credited_to_a_prefix_and_its_response_together() -> None:
    parts = (Part(value=Correct(of="y")), Part(value=Length(of="y"), weight=0.5, on="prefix"))
    rule = method(reward=Reward(name="r", parts=parts))
    base = experience(small_model())
    found = score(with_prefixes(base, 2), rule)
    lengths = [len(one.tokens) for one in responses_of(base)]
    assert found.sections.reshape(-1, 2).tolist() == [[2, length] for length in lengths]


def test_metrics_of_a_reward_are_logged() -> None:
    """Beside its numbers, over all rounds: the mean over the responses that have one."""
    draws = Draws([0, 2])
    share = Infix(
        fn="/", left=Length(of="y"), right=Aggregate(fn="max", var="z", over="group", value=Length(of="z"))
    )
    right = Aggregate(fn="mean", var="z", over="group", where=Correct(of="z"), value=Length(of="z"))
    rule = method(resample=1)
    reward = rule.reward.model_copy(
        update={"metrics": (Metric(name="share", value=share), Metric(name="right", value=right))}
    )
    row = make_step(draws, rule.model_copy(update={"reward": reward}), 0).metrics
    length = draws.base.inputs.length
    assert row["metric_share"] == pytest.approx((length / length.max(axis=1, keepdims=True)).mean())
    means = []
    for round_ in (0, 2):
        solved = np.array(VERDICTS[round_], dtype=bool)
        # Questions that nobody solves have no length of right responses, and count nowhere.
        means.append(np.mean([of[ok].mean() for of, ok in zip(length, solved, strict=True) if ok.any()]))
    assert row["metric_right"] == pytest.approx(np.mean(means))
    assert "metric_right" not in make_step(Draws([1]), method(), 0).metrics


def test_what_ends_thinking_is_read_after_a_prefix_and_not_learnt_from() -> None:
    """The tokens of a row that are predicted are its prefix's last and the response's own, in order."""
    base = with_prefixes(experience(small_model()), 2)
    ended = [(Insertion(1, (20,)),), (Insertion(2, (21, 21)),)]
    responses = [replace(one, inserted=ended[len(one.tokens) > 1]) for one in responses_of(base)]
    found: GradedStep = with_responses(base, responses)
    batch = batch_of(score(found, method()))
    inputs = make_padded(batch, torch.device("cpu"))
    own = [(*one.request.prompt[-2:], *one.response.tokens) for one in found.rollouts]
    assert inputs.targets.tolist() == [token for row in own for token in row]
    assert batch.num_trained.tolist() == [len(row) for row in own]
    read = inputs.ids.flatten()[inputs.positions].tolist()
    wanted = []
    for request, one in [(rollout.request, rollout.response) for rollout in found.rollouts]:
        before = [*request.prompt[:-2]]
        for place, token in enumerate((*request.prompt[-2:], *one.tokens)):
            before += [each for part in one.inserted if part.after == place - 2 for each in part.tokens]
            wanted.append(before[-1])
            before.append(token)
    assert read == wanted


def test_one_response_drawn_from_other_numbers_is_enough_to_keep_them_all() -> None:
    base = experience(small_model())
    first, *rest = (replace(one, sampling_logprobs=one.logprobs) for one in responses_of(base))
    other = replace(first, sampling_logprobs=tuple(each - 0.5 for each in first.logprobs))
    batch = batch_of(score(with_responses(base, [other, *rest]), method()))
    wanted = [each for one in (other, *rest) for each in one.sampling_logprobs]
    assert batch.sampling_logprobs.tolist() == pytest.approx(wanted)
    assert batch.engine_logprobs.tolist() == pytest.approx(
        [each for one in (first, *rest) for each in one.logprobs]
    )


def test_the_text_of_responses_is_kept_as_far_as_it_fits(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every question's first response comes before any second one."""
    texts = [f"{question}{rollout}" * 5 for question in "abc" for rollout in range(4)]
    assert limit_texts(texts.__getitem__, 12, 4) == tuple(texts)
    monkeypatch.setattr(rollouts_module, "MAX_TEXT_CHARS", 10 * 4)
    first = tuple(text if at in (0, 1, 4, 8) else None for at, text in enumerate(texts))
    assert limit_texts(texts.__getitem__, 12, 4) == first
    monkeypatch.setattr(rollouts_module, "MAX_TEXT_CHARS", 10 * 4 + 9)
    decoded = []
    kept = limit_texts(lambda at: decoded.append(at) or texts[at], 12, 4)  # type: ignore[func-returns-value]
    assert decoded == [0, 4, 8, 1, 5], "the first that does not fit is the last that is decoded"
    assert [at for at, text in enumerate(kept) if text is not None] == [0, 1, 4, 8]
    assert kept[4] == "b0" * 5


def test_rollouts_say_how_each_response_was_asked() -> None:
    draws = Draws([0])
    shape = (QUESTIONS, ROLLOUTS)
    modes = np.tile([0.0, 1.0, 0.0, 1.0], (QUESTIONS, 1))
    budgets = np.repeat([[16.0], [32.0], [64.0]], ROLLOUTS, axis=1)
    assert modes.shape == budgets.shape == shape

    def asked(draw: int) -> GradedStep:
        found = draws(draw)
        inputs = replace(found.inputs, features={"mode": modes, "budget": budgets, "level": budgets})
        return replace(found, inputs=inputs)

    rows = make_step(asked, method(), 0).table
    assert rows["mode"].to_list() == [0, 1, 0, 1] * QUESTIONS
    assert rows["budget"].to_list() == [16] * 4 + [32] * 4 + [64] * 4
    # A question's own number is no wording's.
    bare = make_step(
        lambda draw: replace(draws.base, inputs=replace(draws.base.inputs, features={"budget": budgets})),
        method(),
        0,
    )
    assert bare.table.select(pl.col("mode", "budget").is_null().all()).row(0) == (True, True)


def test_the_types_from_a_rollout_to_the_loss_are_few_and_where_the_package_says() -> None:
    root = Path(runners.train.__file__).parents[1]
    names: list[str] = []
    for part in re.findall(r"((?:`\w+`[ ,\nand]*)+)\(`([\w/]+\.py)`\)", str(runners.train.__doc__)):
        for name in re.findall(r"`(\w+)`", part[0]):
            assert f"\nclass {name}" in (root / part[1]).read_text(), (name, part[1])
            names.append(name)
    assert len(names) == 9


def test_a_response_at_which_a_function_failed_is_paid_least_and_weighs_parts_as_the_others():
    """Its value is the least of the step, and the weight of the part is of the group."""
    solved = Aggregate(fn="mean", var="z", over="group", value=Correct(of="z"))
    reward = Reward(name="r", parts=(Part(value=Correct(of="y")), Part(value=Length(of="y"), weight=solved)))
    graded = experience(small_model())
    failed = replace(graded, unsettled=((f"{REWARD}: mine",), *[()] * (len(graded.rollouts) - 1)))
    scored = score(failed, method(reward=reward))
    right, length = graded.inputs.correct.copy(), graded.inputs.length.copy()
    right[0, 0], length[0, 0] = right.min(), length.min()

    def z(values):
        spread = values.std(axis=1, keepdims=True)
        return np.where(
            spread > 1e-9, (values - values.mean(axis=1, keepdims=True)) / np.maximum(spread, 1e-9), 0
        )

    share = graded.inputs.correct.mean(axis=1, keepdims=True)
    wanted = z(right) + share * z(length)
    np.testing.assert_allclose(scored.advantages[:, :, 1], wanted, atol=1e-9)
    np.testing.assert_allclose(scored.rewards[:, :, 1], share * length, atol=1e-9)
