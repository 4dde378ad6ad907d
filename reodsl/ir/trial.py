"""Results of a reward that is tried on a group of responses."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Tried:
    """One response. `rewards` are one at each split, one a part, or one in all.

    `advantages` and `tokens` are those of the sections that the splits end; with parts the advantages are those of a
    prefix and of the rest, whose tokens are not known here.
    """

    lets: tuple[float, ...]
    rewards: tuple[float, ...]
    places: tuple[int, ...]
    advantages: tuple[float, ...]
    tokens: tuple[int, ...]
    metrics: tuple[float, ...] = ()
