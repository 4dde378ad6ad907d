"""Groups of plain rollouts as the arrays that the vectorised path reads."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from reodsl.ir.reward import ResponseGroup, RewardedResponse
from runners.rewards.inputs import CutVerdicts, Floats, RewardInputs, pad_places


@dataclass(frozen=True)
class Arrays:
    inputs: RewardInputs
    forced: CutVerdicts
    bare: CutVerdicts


def arrays(groups: Sequence[ResponseGroup], places: Sequence[Sequence[Sequence[int]]]) -> Arrays:
    """What a reward reads of groups of one size, their forced and their bare verdicts."""
    rollouts = [rollout for group in groups for rollout in group.rollouts]
    width = 1 + max(rollout.length for rollout in rollouts)
    padded, present = pad_places(places)
    references = [group.reference for group in groups]
    inputs = RewardInputs(
        questions=tuple(group.question for group in groups),
        length=_table((group.rollouts for group in groups), lambda r: r.length),
        correct=_table((group.rollouts for group in groups), lambda r: r.correct),
        split_tokens=padded,
        present=present,
        features={
            name: _table((group.rollouts for group in groups), lambda r, name=name: r.features[name])
            for name in rollouts[0].features
        },
        reference_length=_table(references, lambda r: r.length) if references[0] else None,
        reference_correct=_table(references, lambda r: r.correct) if references[0] else None,
        reference_features={
            name: _table(references, lambda r, name=name: r.features[name])
            for name in (references[0][0].features if references[0] else ())
        },
    )
    tokens = {
        node: CutVerdicts.of(
            [(n, c, v) for n, r in enumerate(rollouts) for c, v in r.tokens[node].items()], width, np.float64
        ).look_up
        for node in rollouts[0].tokens
    }
    inputs = replace(inputs, tokens=tokens)
    forced = [(n, c, v) for n, r in enumerate(rollouts) for c, v in r.forced.items() if c < r.length]
    bare = [(n, c, v) for n, r in enumerate(rollouts) for c, v in r.bare.items() if c < r.length]
    return Arrays(inputs, CutVerdicts.of(forced, width), CutVerdicts.of(bare, width))


def _table(
    groups: Iterable[Sequence[RewardedResponse]], measure: Callable[[RewardedResponse], float]
) -> Floats:
    return np.array([[float(measure(rollout)) for rollout in group] for group in groups])
