"""Apply a selection to a question's responses: its picks with margins, or whether the question is kept."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

from reodsl.ir.reward import Choice, Group, Pick, Rollout, Selection
from runners.rewards.interpret import measure

ROLES = ("trace", "preferred", "rejected")
"""The roles that a pick chooses, in this order."""


@dataclass(frozen=True, slots=True)
class Chosen:
    """The positions of what a pick takes, by role, and its margin (0 where it has none)."""

    roles: dict[str, int]
    margin: float = 0.0


def choose(selection: Selection, group: Group) -> list[tuple[Chosen, ...]]:
    """Return the choice of each pick: one thing, as many as meet its condition, or nothing."""
    numbers = _numbers(selection, group)
    return [_picked(selection.name, pick, group, numbers) for pick in selection.picks]


def keeps(selection: Selection, group: Group) -> bool:
    """Return whether a selection of questions keeps this one; what is not a number is no reason to."""
    if selection.keep is None:
        return False
    value = measure(selection.name, selection.keep, group, {}, _numbers(selection, group))
    return value != 0 and not math.isnan(value)


def _numbers(selection: Selection, group: Group) -> dict[str, float]:
    numbers: dict[str, float] = {}
    for let in selection.lets:
        numbers[let.name] = measure(selection.name, let.value, group, {}, numbers)
    return numbers


def drop_lowest(margins: list[float], drop: float) -> list[int]:
    """Return the positions left, in order, without the share `drop` with the lowest margins; of equals the last go.

    As many go as the share has in whole: of 7 with 15%, one. What is not a number counts as lowest.
    """
    lowest = [(-math.inf if math.isnan(margin) else margin, -at) for at, margin in enumerate(margins)]
    gone = {-at for _, at in sorted(lowest)[: math.floor(drop * len(margins) + 1e-9)]}
    return [at for at in range(len(margins)) if at not in gone]


def _picked(name: str, pick: Pick, group: Group, numbers: dict[str, float]) -> tuple[Chosen, ...]:
    if pick.trace is not None and pick.trace.fn == "each":
        taken = [{"trace": at} for at in _find_met(name, pick.trace, group, {}, numbers)]
    else:
        one = _choose_one(name, pick, group, numbers)
        taken = [] if one is None else [one]
    weighed = [_weighed(name, pick, group, roles, numbers) for roles in taken]
    return tuple(each for each in weighed if each is not None)


def _choose_one(name: str, pick: Pick, group: Group, numbers: dict[str, float]) -> dict[str, int] | None:
    """Return the positions of the one trace or pair of a pick, without its own conditions."""
    positions: dict[str, int] = {}
    responses: dict[str, Rollout] = {}
    for role in ROLES:
        choice: Choice | None = getattr(pick, role)
        if choice is None:
            continue
        position = _find_best(name, choice, group, responses, numbers)
        if position is None or position in positions.values():
            return None
        positions[role], responses[role] = position, group.rollouts[position]
    return positions


def _weighed(
    name: str, pick: Pick, group: Group, roles: dict[str, int], numbers: dict[str, float]
) -> Chosen | None:
    responses = {role: group.rollouts[position] for role, position in roles.items()}
    if pick.where is not None and measure(name, pick.where, group, responses, numbers) == 0:
        return None
    margin = 0.0 if pick.margin is None else measure(name, pick.margin, group, responses, numbers)
    return Chosen(roles, margin)


def _find_met(
    name: str, choice: Choice, group: Group, responses: dict[str, Rollout], numbers: dict[str, float]
) -> Iterator[int]:
    """Yield the positions of the responses that meet a choice's condition."""
    for position, member in enumerate(group.rollouts):
        names = {**responses, choice.var: member}
        if choice.where is None or measure(name, choice.where, group, names, numbers) != 0:
            yield position


def _find_best(
    name: str, choice: Choice, group: Group, responses: dict[str, Rollout], numbers: dict[str, float]
) -> int | None:
    """Return the position with the least or greatest key, the first of equals; NaN is not a key."""
    best: tuple[float, int] | None = None
    for position in _find_met(name, choice, group, responses, numbers):
        names = {**responses, choice.var: group.rollouts[position]}
        key = measure(name, choice.key, group, names, numbers)
        key = -key if choice.fn == "argmax" else key
        if not math.isnan(key) and (best is None or key < best[0]):
            best = key, position
    return None if best is None else best[1]
