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
from reodsl.ir.reward import Earner, Part, ResponseGroup, Reward, Tried
from reodsl.ir.training import Advantage
from runners.rewards.inputs import Bools, Floats, Ints, pad_places
from runners.rewards.interpret import interpret, measure
from runners.rewards.tracks import track_values
from runners.rewards.vectorise import are_equal


def section_advantages(rewards: Floats, present: Bools, rule: Advantage) -> Floats:
    """Return the advantage of each section's tokens before any normalisation over the batch; 0 for an absent section.

    `rewards` and `present` have one shape. With `absent = zero` a rollout counts with 0 in the mean and deviation of a
    split that it lacks. A reward with one split (an outcome) is credited to the whole response under every rule.
    `as_printed` gives Return_i to the section after L_i, so the first earns nothing.
    """
    earned = np.where(present, rewards, 0.0)
    credit = earned if rule.credit == "own" else np.flip(np.flip(earned, 2).cumsum(axis=2), 2)
    counted = np.ones_like(present) if rule.absent == "zero" else present
    scored = normalised(np.where(present, credit, 0.0), counted, rule.normalise, rule.std)
    if rule.credit == "as_printed" and rewards.shape[2] > 1:
        shifted = np.zeros_like(scored)
        shifted[:, :, 1:] = scored[:, :, :-1]
        scored = shifted
    return np.where(present, scored, 0.0)


def normalised(
    values: Floats,
    present: Bools,
    normalise: Literal["group", "center", "leave_one_out", "none"],
    std: Literal["population", "sample"],
) -> Floats:
    """Return each split over the question's rollouts that have it: z-scores, centred values, or as they are.

    A value less the mean of the n - 1 others is n / (n - 1) times the centred one. Values that are all equal have a z-score
    of 0, and so has a lone one.
    """
    if normalise == "none":
        return np.where(present, values, 0.0)
    count = present.sum(axis=1, keepdims=True)
    kept = np.where(present, values, 0.0)
    centred = np.where(present, kept - kept.sum(axis=1, keepdims=True) / np.maximum(count, 1), 0.0)
    equal = are_equal(centred, kept, axis=1)
    centred = np.where(equal, 0.0, centred)
    if normalise == "center":
        return centred
    if normalise == "leave_one_out":
        return centred * count / np.maximum(count - 1, 1)
    freedom = count - 1 if std == "sample" else count
    variance = (centred * centred).sum(axis=1, keepdims=True) / np.maximum(freedom, 1)
    return np.where(equal, 0.0, centred / np.where(variance > 0, np.sqrt(variance), 1.0))


def section_tokens(places: Floats, present: Bools, length: Floats) -> Ints:
    """Return how many tokens each section has; a response's sections together are the whole of it.

    `places` and `present` [questions, rollouts, splits], `length` [questions, rollouts]. Sections past the end are empty.
    """
    shape = (*length.shape, places.shape[2])
    ends = np.minimum(np.broadcast_to(places, shape), length[:, :, None])
    there = np.broadcast_to(present, shape)
    # The last section that a response has reaches to its end, even past the last place.
    last = there & ~np.concatenate((there[:, :, 1:], np.zeros((*length.shape, 1), dtype=np.bool_)), axis=2)
    ends = np.where(last, length[:, :, None], np.where(there, ends, 0))
    ends = np.maximum.accumulate(ends, axis=2)
    return np.diff(ends, axis=2, prepend=0).astype(np.int64)


def batch_normalised(
    advantages: Floats, tokens: Ints, equal: Literal["left_out", "counted"] = "left_out"
) -> Floats:
    """Normalise advantages over the trained tokens of the step, each counting as one (population deviation).

    Trained are the sections whose advantages differ among a question's rollouts from 0; where all are 0, a section
    gives no gradient, stays at 0 and does not count, unless `equal` ones are counted too.
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
"""A function of the user's: of each question's rewards and responses to advantages, [responses, sections]."""


def advantages_of(
    rewards: Floats,
    places: Floats,
    present: Bools,
    length: Floats,
    rule: Advantage,
    own: AdvantageFunction | None = None,
    correct: Floats | None = None,
) -> tuple[Floats, Ints]:
    """Return each section's advantage before any normalisation over the batch, and how many tokens it has.

    An `own` function makes them in the place of the rule; it reads too which responses are `correct`.
    """
    present = np.broadcast_to(present, rewards.shape)
    tokens = section_tokens(places, present, length)
    if own is None:
        scored = section_advantages(rewards, present, rule)
    else:
        earned = np.where(present, rewards, 0.0)
        lengths, right = length.astype(int), np.zeros_like(length) if correct is None else correct
        columns = (earned, tokens, lengths, right.astype(bool))
        groups = zip(*(each.tolist() for each in columns), strict=True)
        rows = [dict(zip(("rewards", "sections", "lengths", "correct"), one, strict=True)) for one in groups]
        scored = np.where(present, np.array(own(rows)), 0.0)
    return _bounded_alone(scored, rule), tokens


TRIED = (
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
"""Questions that a function of advantages is tried on before a stage spends anything: one with equal rewards."""


def part_weights(values: Floats, parts: Sequence[Part]) -> Floats:
    """Return the weight of each part for each response, [questions, rollouts, parts].

    `values` [questions, rollouts, values] are those of parts, then of their weights that are no numbers, as `Reward.values`.
    """
    moving = iter(range(len(parts), values.shape[2]))
    plain = values[:, :, 0]
    columns = [
        np.full_like(plain, part.weight) if isinstance(part.weight, float) else values[:, :, next(moving)]
        for part in parts
    ]
    return np.stack(columns, axis=2)


def normalised_parts(values: Floats, parts: Sequence[Part], rule: Advantage) -> Floats:
    """Return each part over the question's rollouts, times its weight, [questions, rollouts, parts].

    `values` are as `part_weights` has them.
    """
    own = values[:, :, : len(parts)]
    scored = normalised(own, np.ones(own.shape, dtype=np.bool_), rule.normalise, rule.std)
    return scored * part_weights(values, parts)


def advantages_of_parts(
    scored: Floats, parts: Sequence[Part], rule: Advantage, first: Ints | None = None
) -> Floats:
    """Return the advantage of a prefix's tokens, of the thinking's, and of the others, [questions, rollouts, 3].

    Where a response has no prefix, its first token takes the place of one: `first` [questions, rollouts] is 1 where that is
    of the thinking, 2 where it is of the solution, and 0 for a prefix.
    """

    def earned(*on: Earner) -> Floats:
        total: Floats = scored[:, :, [part.on in ("response", *on) for part in parts]].sum(axis=2)
        return total

    begin = earned("prefix")
    if first is not None:
        begin = np.choose(first, (begin, earned("prefix", "thinking"), earned("prefix", "solution")))
    return _bounded_alone(np.stack((begin, earned("thinking"), earned("solution")), axis=2), rule)


def over_batch(advantages: Floats, tokens: Ints, rule: Advantage) -> Floats:
    """Normalise advantages over the step's tokens and bound them, if the rule has it."""
    if not rule.batch:
        return advantages
    return bounded(batch_normalised(advantages, tokens, rule.equal), rule.bound)


def bounded(advantages: Floats, bound: float | None) -> Floats:
    """Cut advantages at -bound and bound."""
    return advantages if bound is None else np.clip(advantages, -bound, bound)


def _bounded_alone(advantages: Floats, rule: Advantage) -> Floats:
    """Bound advantages, unless the batch is normalised first."""
    return advantages if rule.batch else bounded(advantages, rule.bound)


def try_reward(
    reward: Reward, rule: Advantage, group: ResponseGroup, places: Sequence[Sequence[int]]
) -> tuple[Tried, ...]:
    """Return the earnings of each response of a group.

    `places` are each response's splits in tokens; none for a reward without.

    A track is found from this group alone, unless the group has its value; no step is done, unless it says so. One that
    reads itself is one step past its start then. `batch` normalises over this group alone, unless parts are of some tokens,
    whose number is not known. The advantages of parts are three: of a prefix, of the thinking, and of the rest.
    """
    size = len(group.rollouts)
    if reward.tracks:
        # There is no other step: a track is of this group alone.
        table = _table(group)
        step = int(group.tracks.get(STEP, 0))
        group = replace(group, tracks=track_values(reward, step, [table], table, group.tracks))
    splits = [list(each) for each in places] if reward.splits is not None else [[]] * size
    values = [interpret(reward, group, index, splits[index]) for index in range(size)]
    length = np.array([[float(each.length) for each in group.rollouts]])
    width = max(map(len, values))
    rewards = np.array([[[*each, *[0.0] * (width - len(each))] for each in values]])
    # What is not a number is shown as such.
    weights = np.zeros((1, size, 0))
    with np.errstate(invalid="ignore"):
        if reward.parts:
            weights = part_weights(rewards, reward.parts)
            advantages = advantages_of_parts(
                normalised_parts(rewards, reward.parts, rule), reward.parts, rule
            )
            tokens = np.zeros(advantages.shape, dtype=np.int64)
            if all(part.on == "response" for part in reward.parts):
                tokens[:, :, 2] = length
        elif reward.dense is not None:
            advantages, tokens = advantages_of(rewards, *pad_places([splits]), length, rule)
        else:
            present = np.ones(rewards.shape, dtype=np.bool_)
            advantages, tokens = advantages_of(rewards, length[:, :, None], present, length, rule)
        if tokens.any():
            advantages = over_batch(advantages, tokens, rule)
        if rule.own is not None:
            # No Python of the user's is run here.
            advantages = np.full(advantages.shape, np.nan)
    return tuple(
        Tried(
            lets=_measured(reward, group, index, splits[index])[: len(reward.lets)],
            metrics=_measured(reward, group, index, splits[index])[len(reward.lets) :],
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
            "tokens": [each.length for each in rollouts],
            "correct": [each.correct for each in rollouts],
            **{name: [each.given.get(name) for each in rollouts] for name in ("mode", "budget")},
        }
    )


def _measured(reward: Reward, group: ResponseGroup, index: int, places: Sequence[int]) -> tuple[float, ...]:
    """Return the values of a reward's lets for one response, then those of its metrics."""
    numbers = {f"{TRACK}{name}": value for name, value in group.tracks.items()}
    values: list[float] = []
    asker = f"the reward `{reward.name}`"
    for let in reward.lets:
        values.append(measure(asker, let.value, group, {"y": group.rollouts[index]}, numbers, places))
        numbers[let.name] = values[-1]
    of = {"y": group.rollouts[index]}
    values += [measure(asker, each.value, group, of, numbers, places) for each in reward.metrics]
    return tuple(values)
