"""Score rounds of rollouts, and make a step's batch, numbers and table of them.

Without resampling there is one round. With it, questions whose responses give no gradient, because all earn the same,
are replaced from further rounds, as DAPO's dynamic sampling does (Yu et al. 2025).
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
"""Numbers of a step that add up over its rounds; all others are means."""
METRIC_COLUMN_PREFIX = "metric_"
"""The start of the names of columns of `metrics.parquet` for a reward's own metrics."""
WEIGHTS = {"entropy": "tokens", "forced_accuracy": "forced_answers"}
"""Means over something that rounds have unlike amounts of, and its number."""


@dataclass(frozen=True, slots=True)
class StepData:
    """A step's batch. `metrics` and `table` are about all responses that were sampled, trained on or not."""

    batch: TrainBatch
    metrics: Mapping[str, float]
    table: pl.DataFrame
    seconds: Mapping[str, float]


@dataclass(frozen=True, slots=True)
class ScoredStep:
    """A graded step with its rewards, [questions, rollouts, splits], 0 for an absent split, and its advantages.

    `advantages` are those of sections, [questions, rollouts, sections], before any normalisation over the batch;
    `sections` has the tokens of each section, a trained prefix first. `equal_groups` is the share of questions without
    any advantage. `logprobs` are the engine's of all tokens, response after response.
    """

    graded: GradedStep
    rewards: Floats
    advantages: Floats
    sections: Ints
    equal_groups: float
    logprobs: Floats = field(init=False)

    def __post_init__(self) -> None:
        """Read the numbers once: a large step has tens of millions of them, and every GPU waits."""
        logprobs = _join([rollout.response.logprobs for rollout in self.graded.rollouts])
        object.__setattr__(self, "logprobs", logprobs)


@dataclass(frozen=True, slots=True)
class Round:
    """The batch of a draw of questions, with its sections' advantages and tokens, [questions, rollouts, sections]."""

    batch: TrainBatch
    advantages: Floats
    sections: Ints

    def select(self, questions: Sequence[int]) -> Round:
        """Return the round with some questions alone."""
        if len(questions) == len(self.advantages):
            return self
        size, chosen = self.advantages.shape[1], list(questions)
        rows = [question * size + rollout for question in chosen for rollout in range(size)]
        return Round(self.batch.select(rows), self.advantages[chosen], self.sections[chosen])


def make_step(
    sample: Callable[[int], GradedStep], method: Ppo, number: int, own: AdvantageFunction | None = None
) -> StepData:
    """Sample and score rounds of questions until the step's batch is full.

    Rounds are numbered so that no two rounds of any steps share a number. The batch has `batch.prompts` questions with
    a gradient, or those that `resample` further rounds gave; without any, it is the first round as it is.

    Args:
        sample: A function that makes the k-th draw of questions and their graded responses.
        method: The settings.
        number: The step, counted from 0.
        own: The user's function of advantages, if the method names one.
    """
    draws, missing, questions_before = 1 + method.resample, method.batch.prompts, 0
    rounds: list[Round] = []
    rows: list[Mapping[str, float]] = []
    tables: list[pl.DataFrame] = []
    seconds: list[Mapping[str, float]] = []
    while missing and len(rounds) < draws:
        # Nothing else holds on to a round: of many, only what is learnt from stays in memory.
        scored = score(sample(number * draws + len(rounds)), method, own)
        everything = Round(batch_of(scored, method.loss), scored.advantages, scored.sections)
        if not rounds:
            first = everything
        questions = find_trainable(scored)[:missing]
        rounds.append(everything.select(questions))
        rows.append({**step_metrics(scored), **reward_metrics(scored.graded, method.reward)})
        columns = rollout_columns(scored, number + 1, questions_before)
        tables.append(pl.DataFrame(columns, schema=rollouts_schema(method)))
        questions_before += len(scored.rewards)
        seconds.append(scored.graded.seconds)
        missing -= len(questions)
    if not method.resample or not any(len(round_.batch) for round_ in rounds):
        rounds = [first]
    metrics = combine_rounds(rows)
    if method.resample:
        metrics |= {"rounds": float(len(rows)), "groups_short": float(missing)}
    batch = join_rounds(rounds, method.advantage)
    return StepData(batch, metrics, pl.concat(tables), combine_rounds(seconds, tuple(seconds[0])))


def score(graded: GradedStep, method: Ppo, own: AdvantageFunction | None = None) -> ScoredStep:
    """Return the step with its rewards and advantages. Raises E0920 for a reward that is not finite.

    A response at which the user's function fails has the least reward: failing gains nothing, whatever the sign of its
    term.
    """
    inputs, length = graded.inputs, graded.inputs.length
    rewards = vectorise(method.reward, inputs, graded.forced.look_up, graded.unforced_verdicts.look_up)
    unpaid = [any(why.startswith(REWARD) for why in reasons) for reasons in graded.unsettled]
    if any(unpaid):
        failed = np.reshape(unpaid, (*length.shape, 1))
        if method.reward.parts:
            # What weighs parts is no reward.
            failed = failed & (np.arange(rewards.shape[2]) < len(method.reward.parts))
        rewards = np.where(failed, np.fmin.reduce(rewards, axis=(0, 1)), rewards)
    prefixes = np.array([rollout.question.trained_prefix for rollout in graded.rollouts], dtype=np.int64)
    prefixes = prefixes.reshape(length.shape)
    if method.reward.parts:
        return _score_parts(graded, method, rewards, prefixes)
    dense = method.reward.dense is not None
    places = inputs.split_tokens if dense else length[:, :, None]
    present = np.broadcast_to(inputs.present if dense else np.True_, rewards.shape)
    rule = method.advantage
    advantages, sections = advantages_of(rewards, places, present, length, rule, own, inputs.correct)
    # A prefix that is trained earns what the first section does.
    sections[:, :, 0] += prefixes
    if method.loss.ending_tokens == "policy":
        _add_endings(graded, sections, prefixes)
    return ScoredStep(graded, np.where(present, rewards, 0.0), advantages, sections, _equal_share(advantages))


def _score_parts(graded: GradedStep, method: Ppo, values: Floats, prefixes: Ints) -> ScoredStep:
    """Sum the parts' normalised values to the advantages of a prefix (or first token), the thinking, and the solution.

    Parts on the prefix count for its tokens alone, parts on the thinking or the solution for the tokens of that phase.
    """
    parts, length = method.reward.parts, graded.inputs.length
    scored = normalise_parts(values, parts, method.advantage)
    starts = np.maximum(prefixes, 1)
    if method.rollout.solution is None:
        advantages = advantages_of_parts(scored, parts, method.advantage)[:, :, [0, 2]]
        ends = [starts, length + prefixes]
    else:
        thought = graded.inputs.features[THINKING]
        first = np.where(prefixes > 0, 0, np.where(thought > 0, 1, 2))
        advantages = advantages_of_parts(scored, parts, method.advantage, first)
        ends = [starts, np.maximum(starts, prefixes + thought), length + prefixes]
    sections = np.diff(np.stack(ends, axis=2), axis=2, prepend=0).astype(np.int64)
    if method.loss.ending_tokens == "policy":
        _add_endings(graded, sections, prefixes)
    earned = values[:, :, : len(parts)] * part_weights(values, parts)
    return ScoredStep(graded, earned, advantages, sections, _equal_share(scored))


def _add_endings(graded: GradedStep, sections: Ints, prefixes: Ints) -> None:
    """Add the inserted ending of a response's thinking to the section that has the last token of the thinking."""
    places = np.ndindex(prefixes.shape)
    for index, rollout in zip(places, graded.rollouts, strict=True):
        for ending in rollout.response.inserted:
            section = int(np.searchsorted(sections[index].cumsum(), ending.after + prefixes[index]))
            sections[(*index, section)] += len(ending.tokens)


def _equal_share(advantages: Floats) -> float:
    """Return the share of questions without a response that has an advantage."""
    return 1.0 - float((advantages != 0).any(axis=(1, 2)).mean())


def find_trainable(scored: ScoredStep) -> list[int]:
    """Return the indices of the questions that have a token with an advantage."""
    moved = ((scored.advantages != 0) & (scored.sections > 0)).any(axis=(1, 2))
    return [int(i) for i in np.flatnonzero(moved)]


def batch_of(scored: ScoredStep, form: Loss = PLAIN) -> TrainBatch:
    """Return the batch of scored rollouts, with the engine's log-probabilities; a trained prefix counts to the response."""
    rollouts = scored.graded.rollouts
    triples = [(r.request.prompt, r.response, r.question.trained_prefix) for r in rollouts]
    endings = form.ending_tokens == "policy"
    batch = TrainBatch.of(
        [prompt[: len(prompt) - lead] for prompt, _, lead in triples],
        [prompt[len(prompt) - lead :] + response.sequence() for prompt, response, lead in triples],
        None if endings else [response.gaps(lead) for _, response, lead in triples],
        [r.question.teacher_prompt for r in rollouts] if rollouts[0].question.teacher_prompt else (),
    )
    inserted = [[(0, lead), *(r.gaps(lead) if endings else ())] for _, r, lead in triples]
    mask = _sampled_mask(inserted, batch.num_trained.tolist())
    logprobs = _fill(scored.logprobs, mask)
    sampling = _join([r.response.sampling_logprobs for r in rollouts])
    same = all(r.response.sampling_logprobs is r.response.logprobs for r in rollouts)
    return replace(
        batch,
        sampled_mask=mask,
        engine_logprobs=logprobs,
        sampling_logprobs=logprobs if same else _fill(sampling, mask),
        advantages=expand_to_tokens(scored.advantages, scored.sections),
    )


def _sampled_mask(inserted: Sequence[Sequence[tuple[int, int]]], trained: Sequence[int]) -> torch.Tensor:
    """Return which trained tokens the engine sampled: all but the `inserted` spans of rows, (first, count)."""
    mask = np.ones(sum(trained), dtype=np.bool_)
    for begin, row in zip(np.cumsum([0, *trained]).tolist(), inserted, strict=False):
        for first, count in row:
            mask[begin + first : begin + first + count] = False
    return torch.from_numpy(mask)


def expand_to_tokens(advantages: Floats, sections: Ints) -> torch.Tensor:
    """Return the advantage of every token, response after response.

    Args:
        advantages: Advantages of sections, [questions, rollouts, sections].
        sections: Tokens of sections, [questions, rollouts, sections].

    Returns:
        Advantages of tokens in float32, [trained tokens].
    """
    return torch.from_numpy(np.repeat(advantages.astype(np.float32).ravel(), sections.ravel()))


def _join(values: Sequence[Sequence[float]]) -> Floats:
    """Concatenate the numbers of all responses."""
    return np.concatenate([np.asarray(row, np.float64) for row in values])


def _fill(values: Floats, mask: torch.Tensor) -> torch.Tensor:
    """Return the engine's numbers of sampled tokens, and 0 for other tokens."""
    numbers = torch.from_numpy(values).float()
    if len(numbers) == len(mask):
        return numbers
    column = torch.zeros(len(mask))
    column[mask] = numbers
    return column


def join_rounds(rounds: Sequence[Round], rule: Advantage) -> TrainBatch:
    """Concatenate the batches of all rounds; with `batch` their advantages are z-scored together."""
    batch = TrainBatch.concat([round_.batch for round_ in rounds])
    if not rule.batch:
        return batch
    # Rounds may have unlike numbers of reasoning steps: what is added has no tokens.
    width = max(round_.sections.shape[2] for round_ in rounds)

    def pad(array: Any) -> Any:
        return np.pad(array, ((0, 0), (0, 0), (0, width - array.shape[2])))

    sections = np.concatenate([pad(round_.sections) for round_ in rounds])
    advantages = finish_batch(np.concatenate([pad(round_.advantages) for round_ in rounds]), sections, rule)
    return replace(batch, advantages=expand_to_tokens(advantages, sections))


def step_metrics(scored: ScoredStep) -> dict[str, float]:
    """Return a step's metrics before its update: means over responses, and the share of questions without a signal.

    `entropy` is the mean of minus the log-probability of sampled tokens, in nats: its expectation at temperature 1.

    Returns:
        Numbers by the names of columns.
    """
    graded, inputs = scored.graded, scored.graded.inputs
    responses = [rollout.response for rollout in graded.rollouts]
    rewards = scored.rewards.sum(axis=2)
    spreads = statistic("std", rewards, np.full(rewards.shape, True), np.array(rewards.shape[1]), axis=1)
    counts = Counter(why.partition(":")[0] for reasons in graded.unsettled for why in reasons)
    metrics = {
        "reward": float(rewards.mean()),
        "reward_std": float(spreads.mean()),
        "accuracy": float(inputs.correct.mean()),
        "length": float(inputs.length.mean()),
        "unfinished": float(np.mean([r.finish == "length" for r in responses])),
        "answered": graded.answered,
        "entropy": float(-scored.logprobs.mean()),
        "equal_groups": scored.equal_groups,
        "tokens": float(inputs.length.sum()),
        "verifier_timeouts": float(counts["timeout"]),
        "verifier_failures": float(counts["failed"]),
    }
    for name, column in _phase_columns(graded).items():
        metrics[name] = float(np.mean(column))
    if counts[REWARD]:
        metrics["reward_failures"] = float(counts[REWARD])
    if len(graded.forced.values):
        metrics["forced_answers"] = float(len(graded.forced.values))
        metrics["forced_accuracy"] = float(graded.forced.values.mean())
    return metrics


def reward_metrics(graded: GradedStep, reward: Reward) -> dict[str, float]:
    """Return the reward's metrics, each the mean over the responses that have a number for it; absent if none has.

    Returns:
        Numbers by the names of columns.
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
"""`rollouts.parquet`: `group` counts the questions of a step in the order of their draws; two of them may be the same
question. `forced[k]` is the verdict on the answer forced at `cuts[k]` tokens. The unforced prefix's verdict is
`bare[k]` from `bare_cuts[k]` tokens on until the next cut, and false before the first. `weight_versions` counts the
stage's steps that the engine's weights had behind them. `mode` is the index of the response's wording and `budget` the
budget in its prompt, both null without a wording. `text` is null past `MAX_TEXT_CHARS`. `unsettled` has a reason for
each answer of the response that was not judged, and for each function of the reward that failed at it; it is null
without any. `parts` are the reward's, one for each split, and `advantages` those of the sections that have tokens,
before any normalisation over the batch; both are null if `text` is, so that a large step keeps a sample of them.
"""
PHASE_COLUMNS: dict[str, Any] = {"thinking": pl.Int64, "thinking_ended": pl.Boolean}
"""Columns if thinking is counted: the tokens of a response's thinking, and whether it was ended by force."""


def rollouts_schema(method: Ppo) -> dict[str, Any]:
    """Return the columns of `rollouts.parquet`. A reward that reads whether a response has an answer adds a column."""
    graded = {node.field: pl.Boolean for node in values_of(method.reward, Attribute) if node.field in ANSWERS}
    return ROLLOUT_COLUMNS | (PHASE_COLUMNS if method.counts_thinking else {}) | graded


def rollout_columns(scored: ScoredStep, number: int, before: int = 0) -> Mapping[str, Sequence[object]]:
    """Return the rows of `rollouts.parquet` of a round; `before` is how many questions the step drew before it."""
    graded, rollouts = scored.graded, scored.graded.rollouts
    size, features = graded.inputs.length.shape[1], graded.inputs.features
    nulls = [None] * len(rollouts)
    keep = [text is not None for text in graded.texts or nulls]
    rewards, advantages, sections = (
        array.reshape(len(rollouts), -1) for array in (scored.rewards, scored.advantages, scored.sections)
    )
    forced: list[tuple[list[int], list[bool]]] = [([], []) for _ in rollouts]
    for key, value in zip(graded.forced.keys.tolist(), graded.forced.values.tolist(), strict=True):
        cuts, verdicts = forced[key // graded.forced.width]
        cuts.append(key % graded.forced.width)
        verdicts.append(value)
    return {
        "step": [number] * len(rollouts),
        "question": [rollout.question.id for rollout in rollouts],
        "group": [before + i // size for i in range(len(rollouts))],
        "rollout": [i % size for i in range(len(rollouts))],
        "tokens": [len(rollout.response.tokens) for rollout in rollouts],
        "finish": [rollout.response.finish for rollout in rollouts],
        "weight_versions": [list(rollout.response.weight_versions) for rollout in rollouts],
        # Only wordings give a mode, and a budget with it.
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
        "parts": [row.tolist() if keeps else None for row, keeps in zip(rewards, keep, strict=True)],
        "advantages": [
            row[tokens > 0].tolist() if keeps else None
            for row, tokens, keeps in zip(advantages, sections, keep, strict=True)
        ],
    }


def _phase_columns(graded: GradedStep) -> dict[str, list[Any]]:
    """Return the columns of `PHASE_COLUMNS`; none if thinking is not counted."""
    thought = graded.inputs.features.get(THINKING)
    if thought is None:
        return {}
    forced = [bool(rollout.response.inserted) for rollout in graded.rollouts]
    return {"thinking": thought.ravel().astype(int).tolist(), "thinking_ended": forced}


def combine_rounds(rows: Sequence[Mapping[str, float]], sums: Sequence[str] = SUMS) -> dict[str, float]:
    """Combine a step's rounds: sum the names in `sums`, and average the rest over the rounds that have them.

    Returns:
        Numbers by the names of columns.
    """
    merged: dict[str, float] = {}
    for name in dict.fromkeys(name for row in rows for name in row):
        with_it = [row for row in rows if name in row]
        if name in sums:
            merged[name] = sum(row[name] for row in with_it)
        else:
            weights = [row[WEIGHTS[name]] if name in WEIGHTS else 1.0 for row in with_it]
            weighted = zip(with_it, weights, strict=True)
            merged[name] = sum(row[name] * weight for row, weight in weighted) / sum(weights)
    return merged
