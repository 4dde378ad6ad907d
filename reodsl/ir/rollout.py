"""Responses as a reward sees them, with the others of their question: plain values, no text, no tensors."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Rollout:
    """One response. `forced[L]` and `bare[L]` are verdicts at cuts below `length`, in tokens."""

    length: int
    correct: bool
    forced: Mapping[int, bool] = field(default_factory=dict)
    bare: Mapping[int, bool] = field(default_factory=dict)
    given: Mapping[str, float] = field(default_factory=dict)

    def forced_at(self, cut: int) -> bool:
        """Return the verdict on the answer forced after `cut` tokens; a response no longer than that is graded as it is."""
        return self.correct if cut >= self.length else self.forced[cut]

    def bare_at(self, cut: int) -> bool:
        """Return the verdict on the first `cut` tokens, with nothing forced."""
        return self.correct if cut >= self.length else self.bare[cut]


@dataclass(frozen=True, slots=True)
class Group:
    """A question's responses in one step, the starting model's frozen samples of it, and the values of tracks by name.

    `history` are its own responses in the steps before, the last one last.
    Where a reward is tried, `tracks` are those that are given, and `step`, the steps that are done. `batch` are the groups
    of all questions of the step, this one among them; left out, there is no other.
    """

    question: str
    rollouts: tuple[Rollout, ...]
    reference: tuple[Rollout, ...] = ()
    tracks: Mapping[str, float] = field(default_factory=dict)
    batch: tuple[Group, ...] = ()
    history: tuple[Rollout, ...] = ()


@dataclass(frozen=True, slots=True)
class Tried:
    """One response. `rewards` are one at each split, one a part, or one in all.

    `advantages` and `tokens` are those of the sections that the splits end; with parts the advantages are those of a
    prefix and of the rest, whose tokens are not known here. `tracks` are the values of tracks, the same for all.
    """

    lets: tuple[float, ...]
    rewards: tuple[float, ...]
    places: tuple[int, ...]
    advantages: tuple[float, ...]
    tokens: tuple[int, ...]
    metrics: tuple[float, ...] = ()
    tracks: tuple[float, ...] = ()
