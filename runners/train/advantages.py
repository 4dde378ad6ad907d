"""Advantages of sections and tokens, from rewards at splits.

Arrays are [questions, rollouts, splits]; section i of a response is its tokens L_{i-1} to L_i, L_0 = 0, and the
last section reaches to the response's end. Following the paper's Return_i = sum over j >= i of c_j R(answer(y[:L_j]))
with group normalisation for each i; weights c_j are part of the rewards.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal

import numpy as np
import polars as pl

from reodsl.ir.expression import STEP, TRACK
from reodsl.ir.reward import Earner, Part, ResponseGroup, Reward, TriedResponse
from reodsl.ir.training import Advantage
from runners.rewards.inputs import Bools, Floats, Ints, pad_places
from runners.rewards.interpret import interpret, measure
from runners.rewards.tracks import track_values
from runners.rewards.vectorise import are_equal


def section_advantages(rewards: Floats, present: Bools, rule: Advantage) -> Floats:
    """Return the advantage of each section's tokens before any normalisation over the batch.

    A split is a position, in tokens, at which a response is divided into sections. Section i ends at split i.
    `credit = own` credits a section with the reward at its split only. Otherwise it is credited with Return_i, the sum of
    the rewards at its split and at all later splits. `credit = as_printed` then moves Return_i to the section after split
    i, so the first section earns nothing; with a single split nothing is moved. With `absent = zero`, a rollout that
    lacks a split enters the split's mean and deviation with the value 0.

    Args:
        rewards: Rewards at splits, already multiplied by the weights c_j, [questions, rollouts, splits].
        present: Whether a response has the split, [questions, rollouts, splits].
        rule: The settings of the advantage.

    Returns:
        Advantages, [questions, rollouts, splits]; 0 for an absent section.

    Source: REO, Return_i; group normalisation: Shao et al. 2024, DeepSeekMath (GRPO).
    """
    earned = np.where(present, rewards, 0.0)
    credit = earned if rule.credit == "own" else np.flip(np.flip(earned, 2).cumsum(axis=2), 2)
    mask = np.ones_like(present) if rule.absent == "zero" else present
    normalised = normalise_group(np.where(present, credit, 0.0), mask, rule.normalise, rule.std)
    if rule.credit == "as_printed" and rewards.shape[2] > 1:
        shifted = np.zeros_like(normalised)
        shifted[:, :, 1:] = normalised[:, :, :-1]
        normalised = shifted
    return np.where(present, normalised, 0.0)


def normalise_group(
    values: Floats,
    present: Bools,
    normalise: Literal["group", "center", "leave_one_out", "none"],
    std: Literal["population", "sample"],
) -> Floats:
    """Normalise the values at each split over the rollouts of a question that have the split.

    Values that are equal except for rounding, and a single value, become 0 (unless `normalise` is `none`).

    Args:
        values: Values at splits, [questions, rollouts, splits].
        present: Whether a response has the split, so that its value counts, [questions, rollouts, splits].
        normalise: `group` gives z-scores; `center` subtracts the mean; `leave_one_out` subtracts the mean of the other
            n - 1 values, i.e. multiplies centred values by n / (n - 1); `none` changes no value.
        std: Whether the standard deviation divides by n (`population`) or by n - 1 (`sample`).

    Returns:
        Normalised values, [questions, rollouts, splits]; 0 if absent.
    """
    if normalise == "none":
        return np.where(present, values, 0.0)
    count = present.sum(axis=1, keepdims=True)
    valid = np.where(present, values, 0.0)
    centred = np.where(present, valid - valid.sum(axis=1, keepdims=True) / np.maximum(count, 1), 0.0)
    equal = are_equal(centred, valid, axis=1)
    centred = np.where(equal, 0.0, centred)
    if normalise == "center":
        return centred
    if normalise == "leave_one_out":
        return centred * count / np.maximum(count - 1, 1)
    freedom = count - 1 if std == "sample" else count
    variance = (centred * centred).sum(axis=1, keepdims=True) / np.maximum(freedom, 1)
    return np.where(equal, 0.0, centred / np.where(variance > 0, np.sqrt(variance), 1.0))


def section_tokens(split_tokens: Floats, present: Bools, length: Floats) -> Ints:
    """Return how many tokens each section has; the counts of a response add up to its length.

    Args:
        split_tokens: The end of each section, in tokens from the start, [questions, rollouts, splits].
        present: Whether a response has the split, [questions, rollouts, splits].
        length: Tokens of each response, [questions, rollouts].

    Returns:
        Tokens, [questions, rollouts, splits]; 0 for sections after the end of a response.
    """
    shape = (*length.shape, split_tokens.shape[2])
    ends = np.minimum(np.broadcast_to(split_tokens, shape), length[:, :, None])
    mask = np.broadcast_to(present, shape)
    # The last section of a response reaches to the response's end, even past the last split.
    is_last = mask & ~np.concatenate((mask[:, :, 1:], np.zeros((*length.shape, 1), dtype=np.bool_)), axis=2)
    ends = np.where(is_last, length[:, :, None], np.where(mask, ends, 0))
    ends = np.maximum.accumulate(ends, axis=2)
    return np.diff(ends, axis=2, prepend=0).astype(np.int64)


def normalise_batch(
    advantages: Floats, tokens: Ints, equal: Literal["left_out", "counted"] = "left_out"
) -> Floats:
    """Return z-scores of the advantages over all tokens of the step, with equal weights and the population deviation.

    A section has no gradient if its advantage is 0 for all rollouts of a question, i.e. if their rewards are equal. If
    all advantages are equal, the result is 0. Without tokens the advantages are returned unchanged.

    Args:
        advantages: Advantages of sections, [questions, rollouts, sections].
        tokens: The number of tokens of each section, [questions, rollouts, sections].
        equal: Whether sections without a gradient stay at 0 and out of the mean and deviation (`left_out`), or are
            normalised like the others (`counted`).

    Returns:
        Advantages, [questions, rollouts, sections].
    """
    has_difference = (advantages != 0).any(axis=1, keepdims=True) | (equal == "counted")
    trained = np.broadcast_to(has_difference, advantages.shape)
    weight = np.where(trained, tokens, 0)
    total = weight.sum()
    if total == 0:
        return advantages
    centred = np.where(weight > 0, advantages - (weight * advantages).sum() / total, 0.0)
    if are_equal(centred, np.where(weight > 0, advantages, 0.0), axis=None).item():
        return np.zeros_like(advantages)
    return centred / np.sqrt((weight * centred**2).sum() / total)


AdvantageFunction = Callable[[Sequence[Mapping[str, Any]]], list[list[list[float]]]]
"""A user's function: it takes a mapping per question (as in `TRIAL_GROUPS`), and returns advantages by question, response
and section."""


def advantages_of(
    rewards: Floats,
    split_tokens: Floats,
    present: Bools,
    length: Floats,
    rule: Advantage,
    user_function: AdvantageFunction | None = None,
    correct: Floats | None = None,
) -> tuple[Floats, Ints]:
    """Return each section's advantage, bounded but not yet normalised over the batch, and its number of tokens.

    If `rule.batch` is set, the advantages are not bounded here: `finish_batch` normalises and then bounds them.

    Args:
        rewards: Rewards at splits, [questions, rollouts, splits].
        split_tokens: The end of each section, in tokens, of the shape of `rewards` or a shape that broadcasts to it.
        present: Whether a response has the split, of the shape of `rewards` or a shape that broadcasts to it.
        length: Tokens of each response, [questions, rollouts].
        rule: The settings of the advantage.
        user_function: The user's function that computes advantages instead of the rule; None to apply the rule.
        correct: Verdicts, 1 or 0, [questions, rollouts]; only the user's function reads them. None counts as all wrong.

    Returns:
        Advantages and numbers of tokens, both [questions, rollouts, splits].
    """
    present = np.broadcast_to(present, rewards.shape)
    tokens = section_tokens(split_tokens, present, length)
    if user_function is None:
        advantages = section_advantages(rewards, present, rule)
    else:
        present_rewards = np.where(present, rewards, 0.0)
        lengths, is_correct = length.astype(int), np.zeros_like(length) if correct is None else correct
        columns = (present_rewards, tokens, lengths, is_correct.astype(bool))
        groups = zip(*(column.tolist() for column in columns), strict=True)
        rows = [dict(zip(("rewards", "sections", "lengths", "correct"), row, strict=True)) for row in groups]
        advantages = np.where(present, np.array(user_function(rows)), 0.0)
    return _bound_unnormalised(advantages, rule), tokens


TRIAL_GROUPS = (
    {
        "rewards": [[1.0], [0.0], [0.5]],
        "sections": [[7], [3], [1]],
        "lengths": [7, 3, 1],
        "correct": [True, False, True],
    },
    {
        "rewards": [[1.0], [1.0], [1.0]],
        "sections": [[2], [5], [1]],
        "lengths": [2, 5, 1],
        "correct": [True, True, True],
    },
)
"""Two questions on which a user's function is tried before a stage begins; the second question has equal rewards."""


def part_weights(values: Floats, parts: Sequence[Part]) -> Floats:
    """Return the weight of each part of a reward for each response.

    A part's weight is a constant, or an expression that was computed for each response.

    Args:
        values: The values of all parts, followed by the values of computed weights, [questions, rollouts, values].
        parts: The parts of the reward: the terms of its sum, each with a constant or a computed weight.

    Returns:
        Weights, [questions, rollouts, parts].
    """
    indices = iter(range(len(parts), values.shape[2]))
    first = values[:, :, 0]
    columns = [
        np.full_like(first, part.weight) if isinstance(part.weight, float) else values[:, :, next(indices)]
        for part in parts
    ]
    return np.stack(columns, axis=2)


def normalise_parts(values: Floats, parts: Sequence[Part], rule: Advantage) -> Floats:
    """Normalise each part of a reward over the question's rollouts, and multiply it by its weight.

    Args:
        values: The values of all parts, followed by the values of computed weights, [questions, rollouts, values].
        parts: The parts of the reward: the terms of its sum.
        rule: The settings of the advantage.

    Returns:
        Normalised and weighted values, [questions, rollouts, parts].
    """
    terms = values[:, :, : len(parts)]
    normalised = normalise_group(terms, np.ones(terms.shape, dtype=np.bool_), rule.normalise, rule.std)
    return normalised * part_weights(values, parts)


def advantages_of_parts(
    weighted_values: Floats, parts: Sequence[Part], rule: Advantage, first_token_kind: Ints | None = None
) -> Floats:
    """Return the advantages of a prefix's tokens, of thinking tokens, and of solution tokens.

    Args:
        weighted_values: The values of `normalise_parts`, [questions, rollouts, parts].
        parts: The parts of the reward; `part.on` says which tokens earn a part.
        rule: The settings of the advantage.
        first_token_kind: What the first section of a response is, [questions, rollouts]: 0 for a prefix; without a
            prefix it is the first token, 1 for a token of thinking, 2 for a token of the solution. Such a token earns
            the prefix's parts and those of its kind. None counts as 0 for all responses.

    Returns:
        Advantages of prefix, thinking and solution, [questions, rollouts, 3].
    """

    def sum_parts(*on: Earner) -> Floats:
        """Return the sum of the parts that are earned by all tokens or by the kinds of tokens `on`."""
        total: Floats = weighted_values[:, :, [part.on in ("response", *on) for part in parts]].sum(axis=2)
        return total

    prefix = sum_parts("prefix")
    if first_token_kind is not None:
        prefix = np.choose(
            first_token_kind, (prefix, sum_parts("prefix", "thinking"), sum_parts("prefix", "solution"))
        )
    return _bound_unnormalised(np.stack((prefix, sum_parts("thinking"), sum_parts("solution")), axis=2), rule)


def finish_batch(advantages: Floats, tokens: Ints, rule: Advantage) -> Floats:
    """Normalise advantages over the step's tokens and then bound them, if `rule.batch` is set; else change nothing.

    Args:
        advantages: Advantages, [questions, rollouts, sections].
        tokens: The number of tokens of each section, [questions, rollouts, sections].
        rule: The settings of the advantage.

    Returns:
        Advantages, [questions, rollouts, sections].
    """
    if not rule.batch:
        return advantages
    return bound_advantages(normalise_batch(advantages, tokens, rule.equal), rule.bound)


def bound_advantages(advantages: Floats, bound: float | None) -> Floats:
    """Return advantages, of any shape, clipped to [-bound, bound]; None as bound clips nothing."""
    return advantages if bound is None else np.clip(advantages, -bound, bound)


def _bound_unnormalised(advantages: Floats, rule: Advantage) -> Floats:
    """Return bounded advantages; unchanged if `rule.batch` is set, because `finish_batch` then bounds them later."""
    return advantages if rule.batch else bound_advantages(advantages, rule.bound)


def try_reward(
    reward: Reward, rule: Advantage, group: ResponseGroup, split_tokens: Sequence[Sequence[int]]
) -> tuple[TriedResponse, ...]:
    """Compute a reward and its advantages for one group of responses, as a trial without training.

    The group counts as the only group of the step. Batch normalisation and tracks (statistics that a reward keeps across
    steps) are computed from it alone. `group.tracks` may give values of tracks, and the number of the step (else 0).
    Batch normalisation is left out if a part is earned by only some tokens, e.g. by thinking, because the number of
    these tokens is unknown. A user's function of advantages is not run; the advantages are then NaN.

    Args:
        reward: The reward.
        rule: The settings of the advantage.
        group: The responses to a question.
        split_tokens: For each response, the positions in tokens at which it is divided; ignored if the reward has no
            splits.

    Returns:
        The values of each response, in the order of the group. A reward with parts has three advantages: of prefix,
        thinking and solution.
    """
    size = len(group.rollouts)
    if reward.tracks:
        table = _make_rollout_table(group)
        step = int(group.tracks.get(STEP, 0))
        group = replace(group, tracks=track_values(reward, step, [table], table, group.tracks))
    splits = [list(row) for row in split_tokens] if reward.splits is not None else [[]] * size
    values = [interpret(reward, group, index, splits[index]) for index in range(size)]
    length = np.array([[float(row.length) for row in group.rollouts]])
    width = max(map(len, values))
    rewards = np.array([[[*row, *[0.0] * (width - len(row))] for row in values]])
    # A value that is no number stays NaN without a warning, and is shown as NaN.
    weights = np.zeros((1, size, 0))
    with np.errstate(invalid="ignore"):
        if reward.parts:
            weights = part_weights(rewards, reward.parts)
            advantages = advantages_of_parts(normalise_parts(rewards, reward.parts, rule), reward.parts, rule)
            tokens = np.zeros(advantages.shape, dtype=np.int64)
            if all(part.on == "response" for part in reward.parts):
                tokens[:, :, 2] = length
        elif reward.dense is not None:
            advantages, tokens = advantages_of(rewards, *pad_places([splits]), length, rule)
        else:
            present = np.ones(rewards.shape, dtype=np.bool_)
            advantages, tokens = advantages_of(rewards, length[:, :, None], present, length, rule)
        if tokens.any():
            advantages = finish_batch(advantages, tokens, rule)
        if rule.own is not None:
            advantages = np.full(advantages.shape, np.nan)
    return tuple(
        TriedResponse(
            lets=_evaluate_lets(reward, group, index, splits[index])[: len(reward.lets)],
            metrics=_evaluate_lets(reward, group, index, splits[index])[len(reward.lets) :],
            rewards=tuple(values[index][: len(reward.parts) or None]),
            places=tuple(splits[index]),
            advantages=tuple(advantages[0, index, : 3 if reward.parts else len(values[index])].tolist()),
            tokens=() if reward.parts else tuple(tokens[0, index, : len(values[index])].tolist()),
            tracks=tuple(group.tracks[track.name] for track in reward.tracks),
            weights=tuple(weights[0, index].tolist()),
        )
        for index in range(size)
    )


def _make_rollout_table(group: ResponseGroup) -> pl.DataFrame:
    """Return a group as a table like the table of a step's rollouts, with the columns that tracks read."""
    rollouts = group.rollouts
    return pl.DataFrame(
        {
            "rollout": range(len(rollouts)),
            "tokens": [rollout.length for rollout in rollouts],
            "correct": [rollout.correct for rollout in rollouts],
            **{name: [rollout.features.get(name) for rollout in rollouts] for name in ("mode", "budget")},
        }
    )


def _evaluate_lets(
    reward: Reward, group: ResponseGroup, index: int, split_tokens: Sequence[int]
) -> tuple[float, ...]:
    """Return the values of a reward's `let` definitions for a response, then the values of its metrics.

    Args:
        reward: The reward.
        group: The responses to the question.
        index: The index of the response in the group.
        split_tokens: The splits of the response, in tokens.
    """
    numbers = {f"{TRACK}{name}": value for name, value in group.tracks.items()}
    values: list[float] = []
    reader = f"the reward `{reward.name}`"
    for let in reward.lets:
        values.append(measure(reader, let.value, group, {"y": group.rollouts[index]}, numbers, split_tokens))
        numbers[let.name] = values[-1]
    bindings = {"y": group.rollouts[index]}
    values += [
        measure(reader, metric.value, group, bindings, numbers, split_tokens) for metric in reward.metrics
    ]
    return tuple(values)
