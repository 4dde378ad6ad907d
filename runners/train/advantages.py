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

    With `absent = zero` a rollout counts with 0 in the mean and deviation of a split that it lacks. An outcome, a
    reward with one split, is credited to the whole response under every rule. `as_printed` gives Return_i to the
    section after L_i, so the first section earns nothing.

    Args:
        rewards: Rewards at splits, weighted, [questions, rollouts, splits].
        present: Whether a response has the split, [questions, rollouts, splits].
        rule: The settings of the advantage.

    Returns:
        Advantages, [questions, rollouts, splits]; 0 for an absent section.

    Source: REO, Return_i; group normalisation: Shao et al. 2024, DeepSeekMath (GRPO).
    """
    earned = np.where(present, rewards, 0.0)
    credit = earned if rule.credit == "own" else np.flip(np.flip(earned, 2).cumsum(axis=2), 2)
    mask = np.ones_like(present) if rule.absent == "zero" else present
    scored = normalise_group(np.where(present, credit, 0.0), mask, rule.normalise, rule.std)
    if rule.credit == "as_printed" and rewards.shape[2] > 1:
        shifted = np.zeros_like(scored)
        shifted[:, :, 1:] = scored[:, :, :-1]
        scored = shifted
    return np.where(present, scored, 0.0)


def normalise_group(
    values: Floats,
    present: Bools,
    normalise: Literal["group", "center", "leave_one_out", "none"],
    std: Literal["population", "sample"],
) -> Floats:
    """Normalise each split over the question's rollouts that have it: z-scores, centred values, or the values as they are.

    A value less the mean of the other n - 1 values is n / (n - 1) times the centred value. Equal values have a z-score
    of 0, and so has a lone value.

    Args:
        values: Values at splits, [questions, rollouts, splits].
        present: Whether a value counts, [questions, rollouts, splits].
        normalise: The method.
        std: Whether a deviation divides by n or by n - 1.

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


def section_tokens(places: Floats, present: Bools, length: Floats) -> Ints:
    """Return how many tokens each section has; the sections of a response add up to the response.

    Args:
        places: The split at which each section ends, in tokens, [questions, rollouts, splits].
        present: Whether a response has the split, [questions, rollouts, splits].
        length: Tokens of each response, [questions, rollouts].

    Returns:
        Tokens, [questions, rollouts, splits]; 0 past the end of a response.
    """
    shape = (*length.shape, places.shape[2])
    ends = np.minimum(np.broadcast_to(places, shape), length[:, :, None])
    mask = np.broadcast_to(present, shape)
    # The last section that a response has reaches to its end, even past the last place.
    last = mask & ~np.concatenate((mask[:, :, 1:], np.zeros((*length.shape, 1), dtype=np.bool_)), axis=2)
    ends = np.where(last, length[:, :, None], np.where(mask, ends, 0))
    ends = np.maximum.accumulate(ends, axis=2)
    return np.diff(ends, axis=2, prepend=0).astype(np.int64)


def normalise_batch(
    advantages: Floats, tokens: Ints, equal: Literal["left_out", "counted"] = "left_out"
) -> Floats:
    """Normalise advantages over the trained tokens of the step, each with weight 1 (population deviation).

    A section is trained if its advantages among a question's rollouts are not all 0. Other sections have no gradient,
    stay at 0 and do not count, unless `equal` sections are counted too.

    Args:
        advantages: Advantages of sections, [questions, rollouts, sections].
        tokens: Tokens of sections, [questions, rollouts, sections].
        equal: Whether sections without a difference count.

    Returns:
        Advantages, [questions, rollouts, sections].
    """
    moved = (advantages != 0).any(axis=1, keepdims=True) | (equal == "counted")
    trained = np.broadcast_to(moved, advantages.shape)
    weight = np.where(trained, tokens, 0)
    total = weight.sum()
    if total == 0:
        return advantages
    centred = np.where(weight > 0, advantages - (weight * advantages).sum() / total, 0.0)
    if are_equal(centred, np.where(weight > 0, advantages, 0.0), axis=None).item():
        return np.zeros_like(advantages)
    return centred / np.sqrt((weight * centred**2).sum() / total)


AdvantageFunction = Callable[[Sequence[Mapping[str, Any]]], list[list[list[float]]]]
"""A function of the user's: from each question's rewards and responses to advantages, [responses, sections]."""


def advantages_of(
    rewards: Floats,
    places: Floats,
    present: Bools,
    length: Floats,
    rule: Advantage,
    own: AdvantageFunction | None = None,
    correct: Floats | None = None,
) -> tuple[Floats, Ints]:
    """Return the advantage of each section before any normalisation over the batch, and its tokens.

    Args:
        rewards: Rewards at splits, [questions, rollouts, splits].
        places: The split at which each section ends, in tokens, of the same shape or one that broadcasts to it.
        present: Whether a response has the split, likewise.
        length: Tokens of each response, [questions, rollouts].
        rule: The settings of the advantage.
        own: The user's function that replaces the rule.
        correct: Which responses are correct, [questions, rollouts], for the user's function.

    Returns:
        Advantages and tokens of sections, both [questions, rollouts, splits].
    """
    present = np.broadcast_to(present, rewards.shape)
    tokens = section_tokens(places, present, length)
    if own is None:
        scored = section_advantages(rewards, present, rule)
    else:
        earned = np.where(present, rewards, 0.0)
        lengths, right = length.astype(int), np.zeros_like(length) if correct is None else correct
        columns = (earned, tokens, lengths, right.astype(bool))
        groups = zip(*(column.tolist() for column in columns), strict=True)
        rows = [dict(zip(("rewards", "sections", "lengths", "correct"), row, strict=True)) for row in groups]
        scored = np.where(present, np.array(own(rows)), 0.0)
    return _bound_unnormalised(scored, rule), tokens


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
"""Questions that the user's function is tried on before a stage spends anything; one of them has equal rewards."""


def part_weights(values: Floats, parts: Sequence[Part]) -> Floats:
    """Return the weight of each part of a reward for each response.

    Args:
        values: The values of parts, then of those weights that are no constants, [questions, rollouts, values].
        parts: The parts of the reward.

    Returns:
        Weights, [questions, rollouts, parts].
    """
    indices = iter(range(len(parts), values.shape[2]))
    plain = values[:, :, 0]
    columns = [
        np.full_like(plain, part.weight) if isinstance(part.weight, float) else values[:, :, next(indices)]
        for part in parts
    ]
    return np.stack(columns, axis=2)


def normalise_parts(values: Floats, parts: Sequence[Part], rule: Advantage) -> Floats:
    """Normalise each part of a reward over the question's rollouts, and multiply it by its weight.

    Args:
        values: As for `part_weights`, [questions, rollouts, values].
        parts: The parts of the reward.
        rule: The settings of the advantage.

    Returns:
        Weighted values, [questions, rollouts, parts].
    """
    own = values[:, :, : len(parts)]
    scored = normalise_group(own, np.ones(own.shape, dtype=np.bool_), rule.normalise, rule.std)
    return scored * part_weights(values, parts)


def advantages_of_parts(
    scored: Floats, parts: Sequence[Part], rule: Advantage, first: Ints | None = None
) -> Floats:
    """Return the advantage of the tokens of a prefix, of the thinking, and of the solution.

    Args:
        scored: The values of `normalise_parts`, [questions, rollouts, parts].
        parts: The parts of the reward.
        rule: The settings of the advantage.
        first: What the first token is of, if a response has no prefix: 1 for the thinking, 2 for the solution, 0 for a
            prefix, [questions, rollouts].

    Returns:
        Advantages, [questions, rollouts, 3].
    """

    def earned(*on: Earner) -> Floats:
        total: Floats = scored[:, :, [part.on in ("response", *on) for part in parts]].sum(axis=2)
        return total

    begin = earned("prefix")
    if first is not None:
        begin = np.choose(first, (begin, earned("prefix", "thinking"), earned("prefix", "solution")))
    return _bound_unnormalised(np.stack((begin, earned("thinking"), earned("solution")), axis=2), rule)


def finish_batch(advantages: Floats, tokens: Ints, rule: Advantage) -> Floats:
    """Normalise advantages over the step's tokens and bound them, if the rule says so.

    Returns:
        Advantages, [questions, rollouts, sections], as the arguments.
    """
    if not rule.batch:
        return advantages
    return bound_advantages(normalise_batch(advantages, tokens, rule.equal), rule.bound)


def bound_advantages(advantages: Floats, bound: float | None) -> Floats:
    """Clip advantages at -bound and bound.

    Returns:
        Advantages of the same shape.
    """
    return advantages if bound is None else np.clip(advantages, -bound, bound)


def _bound_unnormalised(advantages: Floats, rule: Advantage) -> Floats:
    """Bound advantages, unless the batch is normalised first."""
    return advantages if rule.batch else bound_advantages(advantages, rule.bound)


def try_reward(
    reward: Reward, rule: Advantage, group: ResponseGroup, places: Sequence[Sequence[int]]
) -> tuple[TriedResponse, ...]:
    """Return what a reward and its advantage give each response of a group.

    A track is computed from this group alone, unless the group has its value. The step is 0 unless the group says it. A
    track that reads itself is one step past its start. `batch` normalises over this group alone, unless parts are of
    some tokens only, whose number is unknown. The advantages of parts are three: of a prefix, of the thinking, and of
    the solution.

    Args:
        reward: The reward.
        rule: The settings of the advantage.
        group: The responses to a question.
        places: The splits of each response, in tokens; not read for a reward without splits.

    Returns:
        The numbers of each response, in the order of the group.
    """
    size = len(group.rollouts)
    if reward.tracks:
        # There is no other step: a track is of this group alone.
        table = _table(group)
        step = int(group.tracks.get(STEP, 0))
        group = replace(group, tracks=track_values(reward, step, [table], table, group.tracks))
    splits = [list(row) for row in places] if reward.splits is not None else [[]] * size
    values = [interpret(reward, group, index, splits[index]) for index in range(size)]
    length = np.array([[float(row.length) for row in group.rollouts]])
    width = max(map(len, values))
    rewards = np.array([[[*row, *[0.0] * (width - len(row))] for row in values]])
    # What is not a number is shown as such.
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
            # No Python of the user's is run here.
            advantages = np.full(advantages.shape, np.nan)
    return tuple(
        TriedResponse(
            lets=_lets(reward, group, index, splits[index])[: len(reward.lets)],
            metrics=_lets(reward, group, index, splits[index])[len(reward.lets) :],
            rewards=tuple(values[index][: len(reward.parts) or None]),
            places=tuple(splits[index]),
            advantages=tuple(advantages[0, index, : 3 if reward.parts else len(values[index])].tolist()),
            tokens=() if reward.parts else tuple(tokens[0, index, : len(values[index])].tolist()),
            tracks=tuple(group.tracks[track.name] for track in reward.tracks),
            weights=tuple(weights[0, index].tolist()),
        )
        for index in range(size)
    )


def _table(group: ResponseGroup) -> pl.DataFrame:
    """Return the group as the table of a step's rollouts."""
    rollouts = group.rollouts
    return pl.DataFrame(
        {
            "rollout": range(len(rollouts)),
            "tokens": [rollout.length for rollout in rollouts],
            "correct": [rollout.correct for rollout in rollouts],
            **{name: [rollout.features.get(name) for rollout in rollouts] for name in ("mode", "budget")},
        }
    )


def _lets(reward: Reward, group: ResponseGroup, index: int, places: Sequence[int]) -> tuple[float, ...]:
    """Return the values of a reward's lets for a response, then the values of its metrics."""
    numbers = {f"{TRACK}{name}": value for name, value in group.tracks.items()}
    values: list[float] = []
    asker = f"the reward `{reward.name}`"
    for let in reward.lets:
        values.append(measure(asker, let.value, group, {"y": group.rollouts[index]}, numbers, places))
        numbers[let.name] = values[-1]
    of = {"y": group.rollouts[index]}
    values += [measure(asker, metric.value, group, of, numbers, places) for metric in reward.metrics]
    return tuple(values)
