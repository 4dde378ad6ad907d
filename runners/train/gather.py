"""Score rounds of rollouts, and turn them into a step's batch, metrics and table.

A round is one draw of questions with their graded responses. With `resample`, questions whose responses all earn the
same reward, and so give no gradient, are replaced by questions of further rounds, as in DAPO's dynamic sampling (Yu et
al. 2025). Else a step has one round.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import polars as pl
import torch

from reodsl.ir.base import values_of
from reodsl.ir.expression import Attribute
from reodsl.ir.reward import Reward
from reodsl.ir.training import Advantage, Loss, Ppo
from runners.rewards.inputs import Floats, Ints
from runners.rewards.vectorise import statistic, vectorise, vectorise_metrics
from runners.train.advantages import (
    AdvantageFunction,
    advantages_of,
    advantages_of_parts,
    finish_batch,
    normalise_parts,
    part_weights,
)
from runners.train.batch import TrainBatch
from runners.train.losses import PLAIN
from runners.train.rollouts import ANSWERS, REWARD, THINKING, GradedStep

SUMS = ("tokens", "forced_answers", "verifier_timeouts", "verifier_failures", "reward_failures")
"""Metrics that are summed over the rounds of a step; other metrics are averaged."""
METRIC_COLUMN_PREFIX = "metric_"
"""The start of the names of columns of `metrics.parquet` for a reward's own metrics."""
WEIGHTS = {"entropy": "tokens", "forced_accuracy": "forced_answers"}
"""Metrics that are averaged over rounds with weights, and the metric that is the weight."""


@dataclass(frozen=True, slots=True)
class StepData:
    """A step's batch; `metrics`, `table` and `seconds` also cover sampled responses that are not in the batch."""

    batch: TrainBatch
    metrics: Mapping[str, float]
    table: pl.DataFrame
    seconds: Mapping[str, float]


@dataclass(frozen=True, slots=True)
class ScoredStep:
    """A graded step with the rewards and advantages of its responses.

    `rewards` are [questions, rollouts, splits], 0 for an absent split. `advantages` of sections are [questions,
    rollouts, sections], before any normalisation over the batch; `sections` has the tokens of each section, including a
    trained prefix in the first section. `equal_groups` is the share of questions whose advantages are all 0. `logprobs`
    are the engine's log-probabilities of all tokens, response after response.
    """

    graded: GradedStep
    rewards: Floats
    advantages: Floats
    sections: Ints
    equal_groups: float
    logprobs: Floats = field(init=False)

    def __post_init__(self) -> None:
        """Concatenate the engine's log-probabilities once, because a large step has tens of millions of tokens."""
        logprobs = _concat([rollout.response.logprobs for rollout in self.graded.rollouts])
        object.__setattr__(self, "logprobs", logprobs)


@dataclass(frozen=True, slots=True)
class Round:
    """The batch of a draw of questions, with its sections' advantages and tokens, [questions, rollouts, sections]."""

    batch: TrainBatch
    advantages: Floats
    sections: Ints

    def select(self, questions: Sequence[int]) -> Round:
        """Return a round with only the questions of these increasing indices; the round itself if all are chosen."""
        if len(questions) == len(self.advantages):
            return self
        group_size, chosen = self.advantages.shape[1], list(questions)
        rows = [question * group_size + rollout for question in chosen for rollout in range(group_size)]
        return Round(self.batch.select(rows), self.advantages[chosen], self.sections[chosen])


def make_step(
    sample: Callable[[int], GradedStep],
    method: Ppo,
    step: int,
    user_function: AdvantageFunction | None = None,
) -> StepData:
    """Sample and score rounds of questions until the step's batch is full.

    A round is one sample of questions with their graded responses. A question has a gradient if some token of its
    responses has a nonzero advantage.

    With `resample = 0` there is one round, and the batch has all its questions. Otherwise further rounds are sampled,
    at most `resample`, until `batch.prompts` questions have a gradient. The batch has only these questions, perhaps
    fewer than `batch.prompts`. If no question of any round has a gradient, the batch is the first round.

    Args:
        sample: Returns the graded responses to a sample of questions, given the number of the sample. Every round of
            every step has another number.
        method: The settings.
        step: The step, counted from 0.
        user_function: The user's function of advantages; None if the method names none.

    Returns:
        The batch; and the metrics, the table of rollouts and the seconds, which cover all sampled responses.
    """
    max_rounds, missing, questions_before = 1 + method.resample, method.batch.prompts, 0
    rounds: list[Round] = []
    rows: list[Mapping[str, float]] = []
    tables: list[pl.DataFrame] = []
    seconds: list[Mapping[str, float]] = []
    while missing and len(rounds) < max_rounds:
        # No other variable keeps a round, so that memory holds only the questions to train on.
        scored = score(sample(step * max_rounds + len(rounds)), method, user_function)
        everything = Round(batch_of(scored, method.loss), scored.advantages, scored.sections)
        if not rounds:
            first_round = everything
        questions = find_trainable(scored)[:missing]
        rounds.append(everything.select(questions))
        rows.append({**step_metrics(scored), **reward_metrics(scored.graded, method.reward)})
        columns = rollout_columns(scored, step + 1, questions_before)
        tables.append(pl.DataFrame(columns, schema=rollouts_schema(method)))
        questions_before += len(scored.rewards)
        seconds.append(scored.graded.seconds)
        missing -= len(questions)
    if not method.resample or not any(len(round_.batch) for round_ in rounds):
        rounds = [first_round]
    metrics = combine_rounds(rows)
    if method.resample:
        metrics |= {"rounds": float(len(rows)), "groups_short": float(missing)}
    batch = join_rounds(rounds, method.advantage)
    return StepData(batch, metrics, pl.concat(tables), combine_rounds(seconds, tuple(seconds[0])))


def score(graded: GradedStep, method: Ppo, user_function: AdvantageFunction | None = None) -> ScoredStep:
    """Compute the rewards and advantages of a step's responses.

    If a user's Python function in the reward fails for a response, each of the response's rewards becomes the lowest
    reward of the step at this split or part. A policy therefore cannot gain by causing failures, even if the function's
    value is subtracted.

    Args:
        graded: The step's responses with their verdicts.
        method: The settings.
        user_function: The user's function of advantages; None if the method names none.

    Raises:
        Problem: E0920, if a reward is not finite.
    """
    inputs, length = graded.inputs, graded.inputs.length
    rewards = vectorise(method.reward, inputs, graded.forced.look_up, graded.unforced_verdicts.look_up)
    has_failed = [any(reason.startswith(REWARD) for reason in reasons) for reasons in graded.unsettled]
    if any(has_failed):
        failed = np.reshape(has_failed, (*length.shape, 1))
        if method.reward.parts:
            # Only the parts' values are rewards; computed weights of parts follow them.
            failed = failed & (np.arange(rewards.shape[2]) < len(method.reward.parts))
        rewards = np.where(failed, np.fmin.reduce(rewards, axis=(0, 1)), rewards)
    prefixes = np.array([rollout.question.trained_prefix for rollout in graded.rollouts], dtype=np.int64)
    prefixes = prefixes.reshape(length.shape)
    if method.reward.parts:
        return _score_parts(graded, method, rewards, prefixes)
    dense = method.reward.dense is not None
    ends = inputs.split_tokens if dense else length[:, :, None]
    present = np.broadcast_to(inputs.present if dense else np.True_, rewards.shape)
    rule = method.advantage
    advantages, sections = advantages_of(rewards, ends, present, length, rule, user_function, inputs.correct)
    # The tokens of a trained prefix belong to the first section.
    sections[:, :, 0] += prefixes
    if method.loss.ending_tokens == "policy":
        _add_endings(graded, sections, prefixes)
    return ScoredStep(graded, np.where(present, rewards, 0.0), advantages, sections, _equal_share(advantages))


def _score_parts(graded: GradedStep, method: Ppo, values: Floats, prefix_lengths: Ints) -> ScoredStep:
    """Score a step whose reward has parts: terms that are normalised separately, each credited to a kind of tokens.

    The first section of a response is its trained prefix, or its first token if there is no prefix. If the method sets
    `rollout.solution`, the other sections are thinking and solution. Otherwise the second section has all other tokens.

    Args:
        graded: The step's responses with their verdicts.
        method: The settings.
        values: The values of all parts, followed by the values of computed weights, [questions, rollouts, values].
        prefix_lengths: Tokens of the trained prefix of each response, [questions, rollouts].
    """
    parts, length = method.reward.parts, graded.inputs.length
    normalised = normalise_parts(values, parts, method.advantage)
    starts = np.maximum(prefix_lengths, 1)
    if method.rollout.solution is None:
        advantages = advantages_of_parts(normalised, parts, method.advantage)[:, :, [0, 2]]
        ends = [starts, length + prefix_lengths]
    else:
        thinking_tokens = graded.inputs.features[THINKING]
        first_token_kind = np.where(prefix_lengths > 0, 0, np.where(thinking_tokens > 0, 1, 2))
        advantages = advantages_of_parts(normalised, parts, method.advantage, first_token_kind)
        ends = [starts, np.maximum(starts, prefix_lengths + thinking_tokens), length + prefix_lengths]
    sections = np.diff(np.stack(ends, axis=2), axis=2, prepend=0).astype(np.int64)
    if method.loss.ending_tokens == "policy":
        _add_endings(graded, sections, prefix_lengths)
    weighted = values[:, :, : len(parts)] * part_weights(values, parts)
    return ScoredStep(graded, weighted, advantages, sections, _equal_share(normalised))


def _add_endings(graded: GradedStep, sections: Ints, prefix_lengths: Ints) -> None:
    """Add the inserted tokens that end a response's thinking to the counts of sections, in place.

    They count in the section of the last token before them. They are trained like sampled tokens if
    `loss.ending_tokens` is `policy`.

    Args:
        graded: The step's responses.
        sections: Tokens of sections, [questions, rollouts, sections]; changed in place.
        prefix_lengths: Tokens of the trained prefix of each response, [questions, rollouts].
    """
    indices = np.ndindex(prefix_lengths.shape)
    for index, rollout in zip(indices, graded.rollouts, strict=True):
        for ending in rollout.response.inserted:
            section = int(np.searchsorted(sections[index].cumsum(), ending.after + prefix_lengths[index]))
            sections[(*index, section)] += len(ending.tokens)


def _equal_share(advantages: Floats) -> float:
    """Return the share of questions whose advantages, [questions, rollouts, sections], are all 0."""
    return 1.0 - float((advantages != 0).any(axis=(1, 2)).mean())


def find_trainable(scored: ScoredStep) -> list[int]:
    """Return the indices of the questions with a gradient: a token of some response has a nonzero advantage."""
    has_gradient = ((scored.advantages != 0) & (scored.sections > 0)).any(axis=(1, 2))
    return [int(i) for i in np.flatnonzero(has_gradient)]


def batch_of(scored: ScoredStep, loss: Loss = PLAIN) -> TrainBatch:
    """Return the training batch of scored rollouts, with the engine's log-probabilities and tokens' advantages.

    A trained prefix is the last tokens of a prompt, which are trained although the engine did not sample them. In the
    batch they belong to the response.

    Args:
        scored: The scored rollouts.
        loss: The settings of the loss; with `ending_tokens = policy` the inserted ends of thinking are trained too.
    """
    rollouts = scored.graded.rollouts
    triples = [(r.request.prompt, r.response, r.question.trained_prefix) for r in rollouts]
    trains_endings = loss.ending_tokens == "policy"
    batch = TrainBatch.of(
        [prompt[: len(prompt) - prefix] for prompt, _, prefix in triples],
        [prompt[len(prompt) - prefix :] + response.sequence() for prompt, response, prefix in triples],
        None if trains_endings else [response.gaps(prefix) for _, response, prefix in triples],
        [r.question.teacher_prompt for r in rollouts] if rollouts[0].question.teacher_prompt else (),
    )
    inserted = [[(0, prefix), *(r.gaps(prefix) if trains_endings else ())] for _, r, prefix in triples]
    mask = _sampled_mask(inserted, batch.num_trained.tolist())
    logprobs = _spread_to_trained(scored.logprobs, mask)
    sampling = _concat([r.response.sampling_logprobs for r in rollouts])
    same_logprobs = all(r.response.sampling_logprobs is r.response.logprobs for r in rollouts)
    return replace(
        batch,
        sampled_mask=mask,
        engine_logprobs=logprobs,
        sampling_logprobs=logprobs if same_logprobs else _spread_to_trained(sampling, mask),
        advantages=expand_to_tokens(scored.advantages, scored.sections),
    )


def _sampled_mask(inserted: Sequence[Sequence[tuple[int, int]]], num_trained: Sequence[int]) -> torch.Tensor:
    """Return a mask of all trained tokens that is true for tokens that the engine sampled, [trained tokens].

    Args:
        inserted: For each row, the spans of trained tokens that were inserted, as (index of the first token, number of
            tokens).
        num_trained: The number of trained tokens of each row.
    """
    mask = np.ones(sum(num_trained), dtype=np.bool_)
    for begin, row in zip(np.cumsum([0, *num_trained]).tolist(), inserted, strict=False):
        for first, count in row:
            mask[begin + first : begin + first + count] = False
    return torch.from_numpy(mask)


def expand_to_tokens(advantages: Floats, sections: Ints) -> torch.Tensor:
    """Repeat the advantage of each section for each of its tokens, response after response.

    Args:
        advantages: Advantages of sections, [questions, rollouts, sections].
        sections: Tokens of sections, [questions, rollouts, sections].

    Returns:
        Advantages of tokens in float32, [trained tokens].
    """
    return torch.from_numpy(np.repeat(advantages.astype(np.float32).ravel(), sections.ravel()))


def _concat(values: Sequence[Sequence[float]]) -> Floats:
    """Return the values of the tokens of all responses as one array, [tokens]."""
    return np.concatenate([np.asarray(row, np.float64) for row in values])


def _spread_to_trained(sampled_values: Floats, mask: torch.Tensor) -> torch.Tensor:
    """Return a column of trained tokens with the given values at sampled tokens and 0 elsewhere.

    Args:
        sampled_values: Values of sampled tokens, [sampled tokens].
        mask: Whether the engine sampled each trained token, [trained tokens].

    Returns:
        Values in float32, [trained tokens].
    """
    numbers = torch.from_numpy(sampled_values).float()
    if len(numbers) == len(mask):
        return numbers
    column = torch.zeros(len(mask))
    column[mask] = numbers
    return column


def join_rounds(rounds: Sequence[Round], rule: Advantage) -> TrainBatch:
    """Concatenate the batches of a step's rounds; if `rule.batch` is set, normalise and bound all advantages together.

    Without `rule.batch` the advantages of the rounds are final already, and stay unchanged.
    """
    batch = TrainBatch.concat([round_.batch for round_ in rounds])
    if not rule.batch:
        return batch
    # Rounds may differ in their number of sections: padding sections have no tokens.
    width = max(round_.sections.shape[2] for round_ in rounds)

    def pad(array: Any) -> Any:
        """Pad the last axis of an array with zeros to the largest number of sections."""
        return np.pad(array, ((0, 0), (0, 0), (0, width - array.shape[2])))

    sections = np.concatenate([pad(round_.sections) for round_ in rounds])
    advantages = finish_batch(np.concatenate([pad(round_.advantages) for round_ in rounds]), sections, rule)
    return replace(batch, advantages=expand_to_tokens(advantages, sections))


def step_metrics(scored: ScoredStep) -> dict[str, float]:
    """Return the metrics of a step that are known before its update, by column name.

    `tokens`, `forced_answers` and the failures are totals; `entropy` is over tokens, `equal_groups` over questions, and
    most others are means over responses. `entropy` is the mean of minus the engine's log-probability of sampled tokens,
    in nats: an estimate of the entropy at temperature 1. Metrics of thinking, reward failures and forced answers are
    absent if the step has none.
    """
    graded, inputs = scored.graded, scored.graded.inputs
    responses = [rollout.response for rollout in graded.rollouts]
    rewards = scored.rewards.sum(axis=2)
    deviations = statistic("std", rewards, np.full(rewards.shape, True), np.array(rewards.shape[1]), axis=1)
    failure_counts = Counter(reason.partition(":")[0] for reasons in graded.unsettled for reason in reasons)
    metrics = {
        "reward": float(rewards.mean()),
        "reward_std": float(deviations.mean()),
        "accuracy": float(inputs.correct.mean()),
        "length": float(inputs.length.mean()),
        "unfinished": float(np.mean([r.finish == "length" for r in responses])),
        "answered": graded.answered,
        "entropy": float(-scored.logprobs.mean()),
        "equal_groups": scored.equal_groups,
        "tokens": float(inputs.length.sum()),
        "verifier_timeouts": float(failure_counts["timeout"]),
        "verifier_failures": float(failure_counts["failed"]),
    }
    for name, column in _phase_columns(graded).items():
        metrics[name] = float(np.mean(column))
    if failure_counts[REWARD]:
        metrics["reward_failures"] = float(failure_counts[REWARD])
    if len(graded.forced.values):
        metrics["forced_answers"] = float(len(graded.forced.values))
        metrics["forced_accuracy"] = float(graded.forced.values.mean())
    return metrics


def reward_metrics(graded: GradedStep, reward: Reward) -> dict[str, float]:
    """Return the mean of each metric that the reward defines, by column name.

    The mean is over the responses with a finite value. A metric is left out if no response has a finite value.
    """
    values = vectorise_metrics(reward, graded.inputs, graded.forced.look_up, graded.unforced_verdicts.look_up)
    return {
        f"{METRIC_COLUMN_PREFIX}{name}": float(column[np.isfinite(column)].mean())
        for name, column in values.items()
        if np.isfinite(column).any()
    }


ROLLOUT_COLUMNS: dict[str, Any] = {
    "step": pl.Int64,
    "question": pl.String,
    "group": pl.Int64,
    "rollout": pl.Int64,
    "tokens": pl.Int64,
    "finish": pl.String,
    "weight_versions": pl.List(pl.Int64),
    "mode": pl.Int64,
    "budget": pl.Int64,
    "correct": pl.Boolean,
    "reward": pl.Float64,
    "cuts": pl.List(pl.Int64),
    "forced": pl.List(pl.Boolean),
    "bare_cuts": pl.List(pl.Int64),
    "bare": pl.List(pl.Boolean),
    "text": pl.String,
    "unsettled": pl.List(pl.String),
    "parts": pl.List(pl.Float32),
    "advantages": pl.List(pl.Float32),
}
"""The columns of `rollouts.parquet`.

- `group` counts the questions of a step in the order of their draws; a question may be drawn twice.
- `forced[k]` is the verdict on the answer forced at `cuts[k]` tokens.
- `bare[k]` is the verdict on an unforced prefix of `bare_cuts[k]` tokens or more, up to the next cut; a prefix shorter
  than the first cut is false.
- `weight_versions` are the engine's weights that sampled the response, by the number of the stage's steps before them.
- `mode` is the index of the response's wording and `budget` the budget in its prompt; null without a wording.
- `text` is null for responses beyond `MAX_TEXT_CHARS` of a step.
- `unsettled` has a reason for each answer that was not judged, and for each function of the reward that failed; else null.
- `parts` are the reward's values at splits or parts; `advantages` are those of the sections with tokens, before any
  normalisation over the batch. Columns are null if `text` is null, so that a large step stores a sample.
"""
PHASE_COLUMNS: dict[str, Any] = {"thinking": pl.Int64, "thinking_ended": pl.Boolean}
"""Columns if thinking is counted: the number of thinking tokens, and whether the thinking was ended by force."""


def rollouts_schema(method: Ppo) -> dict[str, Any]:
    """Return the names and types of the columns of `rollouts.parquet`.

    Columns are added if thinking is counted, and if the reward reads whether a response has an answer.
    """
    answers = {
        node.field: pl.Boolean for node in values_of(method.reward, Attribute) if node.field in ANSWERS
    }
    return ROLLOUT_COLUMNS | (PHASE_COLUMNS if method.counts_thinking else {}) | answers


def rollout_columns(
    scored: ScoredStep, step: int, questions_before: int = 0
) -> Mapping[str, Sequence[object]]:
    """Return the rows of `rollouts.parquet` for a round, as columns in the order of responses.

    Args:
        scored: The scored round.
        step: The step, counted from 1.
        questions_before: The number of questions in the step's earlier rounds.
    """
    graded, rollouts = scored.graded, scored.graded.rollouts
    size, features = graded.inputs.length.shape[1], graded.inputs.features
    nulls = [None] * len(rollouts)
    has_text = [text is not None for text in graded.texts or nulls]
    rewards, advantages, sections = (
        array.reshape(len(rollouts), -1) for array in (scored.rewards, scored.advantages, scored.sections)
    )
    forced: list[tuple[list[int], list[bool]]] = [([], []) for _ in rollouts]
    for key, value in zip(graded.forced.keys.tolist(), graded.forced.values.tolist(), strict=True):
        cuts, verdicts = forced[key // graded.forced.width]
        cuts.append(key % graded.forced.width)
        verdicts.append(value)
    return {
        "step": [step] * len(rollouts),
        "question": [rollout.question.id for rollout in rollouts],
        "group": [questions_before + i // size for i in range(len(rollouts))],
        "rollout": [i % size for i in range(len(rollouts))],
        "tokens": [len(rollout.response.tokens) for rollout in rollouts],
        "finish": [rollout.response.finish for rollout in rollouts],
        "weight_versions": [list(rollout.response.weight_versions) for rollout in rollouts],
        # A response has a mode, and a budget, only if the method has several wordings.
        **{
            name: features[name].ravel().astype(int).tolist() if {"mode", name} <= features.keys() else nulls
            for name in ("mode", "budget")
        },
        "correct": [bool(c) for c in graded.inputs.correct.ravel()],
        "reward": scored.rewards.sum(axis=2).ravel().tolist(),
        "cuts": [cuts for cuts, _ in forced],
        "forced": [verdicts for _, verdicts in forced],
        "bare_cuts": [[i for i, _ in answers] for answers in graded.prefix_answers],
        "bare": [[correct for _, correct in answers] for answers in graded.prefix_answers],
        "text": graded.texts or nulls,
        "unsettled": [list(reasons) or None for reasons in graded.unsettled] or nulls,
        **_phase_columns(graded),
        **{name: features[name].ravel() != 0 for name in ANSWERS if name in features},
        "parts": [row.tolist() if keeps else None for row, keeps in zip(rewards, has_text, strict=True)],
        "advantages": [
            row[tokens > 0].tolist() if keeps else None
            for row, tokens, keeps in zip(advantages, sections, has_text, strict=True)
        ],
    }


def _phase_columns(graded: GradedStep) -> dict[str, list[Any]]:
    """Return the columns of `PHASE_COLUMNS`; no columns if thinking is not counted."""
    thinking_tokens = graded.inputs.features.get(THINKING)
    if thinking_tokens is None:
        return {}
    ended_by_force = [bool(rollout.response.inserted) for rollout in graded.rollouts]
    return {"thinking": thinking_tokens.ravel().astype(int).tolist(), "thinking_ended": ended_by_force}


def combine_rounds(rounds: Sequence[Mapping[str, float]], sums: Sequence[str] = SUMS) -> dict[str, float]:
    """Combine the metrics of a step's rounds: add up the metrics in `sums`, and average the others.

    Args:
        rounds: For each round, its metrics by column name; a round may lack a metric.
        sums: The metrics to sum.

    Returns:
        Metrics by column name; an average is over the rounds that have the metric, with the weights of `WEIGHTS`.
    """
    merged: dict[str, float] = {}
    for name in dict.fromkeys(name for row in rounds for name in row):
        with_it = [row for row in rounds if name in row]
        if name in sums:
            merged[name] = sum(row[name] for row in with_it)
        else:
            weights = [row[WEIGHTS[name]] if name in WEIGHTS else 1.0 for row in with_it]
            weighted = zip(with_it, weights, strict=True)
            merged[name] = sum(row[name] * weight for row, weight in weighted) / sum(weights)
    return merged
