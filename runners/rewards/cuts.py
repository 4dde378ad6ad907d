"""Find the places at which a reward needs the answers of responses."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from reodsl.ir.base import IR, Node, parts_of
from reodsl.ir.expression import Bare, Correct, Forced, Name, Own
from reodsl.ir.reward import Reward
from runners.rewards.inputs import Bools, Ints, RewardInputs
from runners.rewards.problems import cut_needs_verdict
from runners.rewards.vectorise import evaluate, vectorise_metrics


@dataclass(frozen=True, slots=True)
class Cuts:
    """Cuts by response, numbered row by row: those below its length at which it is forced, and graded bare, rising."""

    forced: tuple[tuple[int, ...], ...]
    bare: tuple[tuple[int, ...], ...]

    @property
    def any(self) -> bool:
        """Return whether anything has to be cut at all."""
        return any(self.forced) or any(self.bare)


class _Recorder:
    """Stands in for verdicts: remembers what was asked, answers no."""

    def __init__(self, responses: int) -> None:
        self.asked: list[set[int]] = [set() for _ in range(responses)]

    def __call__(self, response: Ints, cut: Ints) -> Bools:
        for pair in np.unique(np.stack((response, cut), axis=1), axis=0).tolist():
            self.asked[pair[0]].add(pair[1])
        return np.zeros(response.shape, dtype=np.bool_)

    def cuts(self) -> tuple[tuple[int, ...], ...]:
        return tuple(tuple(sorted(of_one)) for of_one in self.asked)


def needed_cuts(reward: Reward, inputs: RewardInputs) -> Cuts:
    """Return the cuts that `vectorise` and `interpret` may ask for, whichever way their conditions go.

    They are what `Reward.forced` says of the reward alone, for these responses.

    A cut at or past a response's end is not a cut: the response is graded as it is. Raises E0921 where the place of
    a cut depends on a verdict, E0922 to E0924 as `vectorise` does.
    """
    _require_places_without_verdicts(reward)
    forced, bare = _Recorder(inputs.length.size), _Recorder(inputs.length.size)
    evaluate(reward, inputs, forced, bare)
    vectorise_metrics(reward, inputs, forced, bare)
    return Cuts(forced.cuts(), bare.cuts())


def _require_places_without_verdicts(reward: Reward) -> None:
    judged: set[str] = set()
    for let in reward.lets:
        _check(let.value, reward, judged)
        if _needs_verdict(let.value, judged):
            judged.add(let.name)
    for node in (*reward.values, *(metric.value for metric in reward.metrics)):
        _check(node, reward, judged)


def _check(value: IR | Node, reward: Reward, judged: set[str]) -> None:
    if isinstance(value, (Forced, Bare)) and _needs_verdict(value.cut, judged):
        raise cut_needs_verdict(reward.name)
    for part in parts_of(value):
        _check(part, reward, judged)


def _needs_verdict(value: IR | Node, judged: set[str]) -> bool:
    if isinstance(value, (Correct, Forced, Bare, Own)):
        return True
    if isinstance(value, Name):
        return value.name in judged
    return any(_needs_verdict(part, judged) for part in parts_of(value))
