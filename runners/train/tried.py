"""Try a reward on one group of responses: the values that it computes, and the advantages that PPO would learn from."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from reodsl.ir.reward import Reward
from reodsl.ir.rollout import Group
from reodsl.ir.training import Advantage
from reodsl.ir.trial import Tried
from runners.rewards.inputs import Floats, pad_places
from runners.rewards.interpret import interpret, measure
from runners.train.advantages import advantages_of, batch_normalised, normalised


def try_reward(
    reward: Reward, rule: Advantage, group: Group, places: Sequence[Sequence[int]]
) -> tuple[Tried, ...]:
    """What each response of a group earns. `places` are each response's splits in tokens; none for an outcome.

    `batch` normalises over this group alone. The advantages of parts are two: of a prefix, and of the rest.
    """
    size = len(group.rollouts)
    own = [list(each) for each in places] if reward.dense is not None else [[]] * size
    values = [interpret(reward, group, index, own[index]) for index in range(size)]
    length = np.array([[float(each.length) for each in group.rollouts]])
    width = max(map(len, values))
    rewards = np.array([[[*each, *[0.0] * (width - len(each))] for each in values]])
    # What is no number is shown as such.
    with np.errstate(invalid="ignore"):
        if reward.parts:
            advantages = _of_parts(reward, rule, rewards)
            tokens = np.zeros(advantages.shape, dtype=np.int64)
        elif reward.dense is not None:
            advantages, tokens = advantages_of(rewards, *pad_places([own]), length, rule)
        else:
            present = np.ones(rewards.shape, dtype=np.bool_)
            advantages, tokens = advantages_of(rewards, length[:, :, None], present, length, rule)
        if rule.batch and not reward.parts:
            advantages = batch_normalised(advantages, tokens)
    return tuple(
        Tried(
            lets=_lets(reward, group, index),
            rewards=tuple(values[index]),
            places=tuple(own[index]),
            advantages=tuple(advantages[0, index, : 2 if reward.parts else len(values[index])].tolist()),
            tokens=() if reward.parts else tuple(tokens[0, index, : len(values[index])].tolist()),
        )
        for index in range(size)
    )


def _of_parts(reward: Reward, rule: Advantage, values: Floats) -> Floats:
    """The advantage of a prefix's tokens, which all parts give, and of the others, [questions, rollouts, 2]."""
    weights = np.array([part.weight for part in reward.parts])
    everywhere = np.array([part.on == "response" for part in reward.parts])
    scored = normalised(values, np.ones(values.shape, dtype=np.bool_), rule.normalise, rule.std) * weights
    return np.stack((scored.sum(axis=2), scored[:, :, everywhere].sum(axis=2)), axis=2)


def _lets(reward: Reward, group: Group, index: int) -> tuple[float, ...]:
    """The values of a reward's lets for one response."""
    numbers: dict[str, float] = {}
    for let in reward.lets:
        numbers[let.name] = measure(reward.name, let.value, group, {"y": group.rollouts[index]}, numbers)
    return tuple(numbers.values())
