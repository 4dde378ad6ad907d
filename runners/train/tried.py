"""Try a reward on one group of responses: the values that it computes, and the advantages that PPO would learn from."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import polars as pl

from reodsl.ir.expression import STEP, TRACK
from reodsl.ir.reward import Group, Reward, Tried
from reodsl.ir.training import Advantage
from runners.rewards.inputs import pad_places
from runners.rewards.interpret import interpret, measure
from runners.rewards.tracks import track_values
from runners.train.advantages import advantages_of, advantages_of_parts, normalised_parts, over_batch


def try_reward(
    reward: Reward, rule: Advantage, group: Group, places: Sequence[Sequence[int]]
) -> tuple[Tried, ...]:
    """Return the earnings of each response of a group.

    `places` are each response's splits in tokens; none for a reward without.

    A track is found from this group alone, unless the group has its value; no step is done, unless it says so. One that
    reads itself is one step past its start then. `batch` normalises over this group alone. The advantages of parts are two:
    of a prefix, and of the rest.
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
    with np.errstate(invalid="ignore"):
        if reward.parts:
            advantages = advantages_of_parts(
                normalised_parts(rewards, reward.parts, rule), reward.parts, rule
            )
            tokens = np.zeros(advantages.shape, dtype=np.int64)
        elif reward.dense is not None:
            advantages, tokens = advantages_of(rewards, *pad_places([splits]), length, rule)
        else:
            present = np.ones(rewards.shape, dtype=np.bool_)
            advantages, tokens = advantages_of(rewards, length[:, :, None], present, length, rule)
        if not reward.parts:
            advantages = over_batch(advantages, tokens, rule)
    return tuple(
        Tried(
            lets=_measured(reward, group, index, splits[index])[: len(reward.lets)],
            metrics=_measured(reward, group, index, splits[index])[len(reward.lets) :],
            rewards=tuple(values[index]),
            places=tuple(splits[index]),
            advantages=tuple(advantages[0, index, : 2 if reward.parts else len(values[index])].tolist()),
            tokens=() if reward.parts else tuple(tokens[0, index, : len(values[index])].tolist()),
            tracks=tuple(group.tracks[track.name] for track in reward.tracks),
        )
        for index in range(size)
    )


def _table(group: Group) -> pl.DataFrame:
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


def _measured(reward: Reward, group: Group, index: int, places: Sequence[int]) -> tuple[float, ...]:
    """Return the values of a reward's lets for one response, then those of its metrics."""
    numbers = {f"{TRACK}{name}": value for name, value in group.tracks.items()}
    values: list[float] = []
    for let in reward.lets:
        values.append(measure(reward.name, let.value, group, {"y": group.rollouts[index]}, numbers, places))
        numbers[let.name] = values[-1]
    of = {"y": group.rollouts[index]}
    values += [measure(reward.name, each.value, group, of, numbers, places) for each in reward.metrics]
    return tuple(values)
