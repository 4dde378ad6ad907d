"""A whole step's responses as arrays: lengths and verdicts by question and rollout, verdicts at cuts by key."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]
Ints = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class CutVerdicts:
    """Verdicts at cuts: `keys` rise, each `response * width + cut`; `width` exceeds every cut below a response's end."""

    keys: Ints
    values: Bools
    width: int

    @staticmethod
    def of(triples: Iterable[tuple[int, int, bool]], width: int) -> CutVerdicts:
        """Make it from (response, cut, verdict), responses numbered row by row."""
        rows = sorted((response * width + cut, verdict) for response, cut, verdict in triples)
        return CutVerdicts(
            np.array([key for key, _ in rows], dtype=np.int64),
            np.array([verdict for _, verdict in rows], dtype=np.bool_),
            width,
        )

    def look_up(self, response: Ints, cut: Ints) -> Bools:
        """Return verdicts for arrays of one shape; every pair must be there."""
        if len(self.keys) == 0:
            assert response.size == 0
            return np.zeros(response.shape, dtype=np.bool_)
        wanted = response * self.width + cut
        at = np.minimum(np.searchsorted(self.keys, wanted), len(self.keys) - 1)
        if not np.array_equal(self.keys[at], wanted):
            raise KeyError("a verdict at a cut that was not asked for")
        return self.values[at]


@dataclass(frozen=True, slots=True)
class Earlier:
    """Responses of the steps before to each question, [questions, samples], and which of them there are."""

    length: Floats
    correct: Floats
    present: Bools

    @staticmethod
    def of(questions: Sequence[Sequence[tuple[float, float]]]) -> Earlier:
        """Make it from the lengths and verdicts (1 or 0) of each question's."""
        width = max(1, *map(len, questions))
        rows = [[*each, *[(0.0, 0.0)] * (width - len(each))] for each in questions]
        table = np.array(rows, dtype=float)
        present = np.array([[k < len(each) for k in range(width)] for each in questions], dtype=np.bool_)
        return Earlier(table[:, :, 0], table[:, :, 1], present)


@dataclass(frozen=True, slots=True)
class RewardInputs:
    """The responses of a step. Arrays are [questions, rollouts]; the reference's and earlier ones' [questions, samples].

    `places` [questions, rollouts, splits] in tokens, or with 1 for an axis that it does not vary along; `present`
    likewise says which splits a response has. An outcome reward has one split. `tracks` are their values at the step.
    """

    questions: tuple[str, ...]
    length: Floats
    correct: Floats
    places: Floats
    present: Bools
    given: Mapping[str, Floats] = field(default_factory=dict)
    reference_length: Floats | None = None
    reference_correct: Floats | None = None
    earlier: Earlier | None = None
    tracks: Mapping[str, float] = field(default_factory=dict)


def pad_places(places: Sequence[Sequence[Sequence[int]]]) -> tuple[Floats, Bools]:
    """Return ragged places by question and rollout as those of `RewardInputs`; padding repeats the last place."""
    width = max(len(row) for group in places for row in group)
    padded = np.array(
        [[[*row, *[row[-1]] * (width - len(row))] for row in group] for group in places], dtype=float
    )
    present = np.array(
        [[[s < len(row) for s in range(width)] for row in group] for group in places], dtype=np.bool_
    )
    return padded, present
