"""Every reward of the library on random groups: the interpreter and the vectorised path give the same numbers."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from reodsl.ir.expression import TokenRun
from reodsl.ir.reward import Budgets, ResponseGroup, Reward, RewardedResponse
from reodsl.ir.training import FromTraining, Ppo
from reodsl.language import compile_file
from reodsl.start import MODELS, starting_spec
from runners.rewards.interpret import interpret
from runners.rewards.vectorise import vectorise
from tests.rewards.reward_groups import arrays

GROUPS, ROLLOUTS, LONGEST = 12, 6, 128
SELECTED = {"shortest", "two_modes", "shortest_against_longest", "dast", "dast_by_margin"}
TAUGHT = {"opd", "gkd", "opsdc", "opsd"}
"""Methods without a reward: they learn from a teacher."""
REWARDED = [method for method in MODELS["miniature"].methods if method not in SELECTED | TAUGHT]


def reward_of(method: str, folder: Path) -> Reward:
    """The reward that a starting spec of the miniature trains by."""
    path = folder / "spec.reo"
    path.write_text(starting_spec(method, "miniature"))
    spec = compile_file(path).spec
    assert spec is not None
    start = spec.study.arm("mine").checkpoint
    assert isinstance(start, FromTraining)
    how = start.experiment.stages[-1].method
    assert isinstance(how, Ppo)
    return how.reward


def groups_of(draw: random.Random, asked: tuple[TokenRun, ...] = ()) -> list[ResponseGroup]:
    """Groups of all kinds: nobody right, everybody right, equal lengths, single tokens, forced verdicts at every cut."""
    found = []
    for number in range(GROUPS):
        right = (0.0, 1.0, 0.5)[number % 3]
        lengths = [draw.randint(1, LONGEST) for _ in range(ROLLOUTS)]
        if number % 4 == 0:
            lengths = [lengths[0]] * ROLLOUTS
        rollouts = []
        for index, length in enumerate(lengths):
            cuts = {cut: draw.random() < 0.5 for cut in range(length)}
            bare = {cut: draw.random() < 0.3 for cut in range(length)}
            given = {
                "mode": float((index + number) % 6),
                "budget": 32.0 * (1 + number % 4),
                "ended": float(index % 3 > 0),
                "answered": float(index % 3 < 2),
                "thinking": float((1, length // 2, length // 2, length)[index % 4]),
            }
            tokens = {node: {cut: draw.uniform(-3, 0) for cut in range(length + 1)} for node in asked}
            rollouts.append(RewardedResponse(length, draw.random() < right, cuts, bare, given, tokens))
        theirs = [(draw.randint(1, LONGEST), draw.random() < 0.5) for _ in range(3)]
        reference = tuple(
            RewardedResponse(length, good, features={"thinking": float(length // 2)})
            for length, good in theirs
        )
        found.append(ResponseGroup(f"q{number}", tuple(rollouts), reference))
    return found


@pytest.mark.parametrize("method", REWARDED)
def test_both_paths_agree(method: str, tmp_path: Path) -> None:
    reward = reward_of(method, tmp_path)
    groups = groups_of(random.Random(11), reward.tokens)
    split = reward.dense.split if reward.dense is not None else None
    shared = (*split.budgets, split.l_max) if isinstance(split, Budgets) else (9, 40, LONGEST)
    places = shared if reward.dense is not None else (LONGEST,)
    made = arrays(groups, [[places] * ROLLOUTS] * GROUPS)
    tracks = {track.name: 0.1 for track in reward.tracks}
    values = vectorise(reward, replace(made.inputs, tracks=tracks), made.forced.look_up, made.bare.look_up)
    differs = False
    for number, group in enumerate(groups):
        for index in range(ROLLOUTS):
            expected = interpret(reward, replace(group, tracks=tracks, batch=tuple(groups)), index, places)
            np.testing.assert_allclose(values[number, index], expected, rtol=1e-12, atol=1e-12)
        differs = differs or bool(np.ptp(values[number], axis=0).any())
    assert differs
