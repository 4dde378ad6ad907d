"""Rollouts that are graded as they end: in any order and company, to the same groups."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runners.engine.protocol import Generation, Request
from runners.rollout.grader import GradedRollout, GradingQueue, Rollout, RolloutGroup
from runners.rollout.questions import PromptedQuestion

SIZES = (3, 2)
PLACES = [(group, place) for group, size in enumerate(SIZES) for place in range(size)]


def rollout(name: str, number: int) -> Rollout:
    return Rollout(
        PromptedQuestion(name, "", ""), number, Request((), 0), Generation((), (), (), "stop", (0,))
    )


def graded(rollouts: Sequence[Rollout]) -> list[GradedRollout]:
    verdict = cast("Any", None)
    return [GradedRollout(one, "", verdict, {}, ()) for one in rollouts]


def names(group: Sequence[GradedRollout]) -> list[tuple[str, int]]:
    return [(one.rollout.question.id, one.rollout.number) for one in group]


def add(ahead: GradingQueue, groups: Sequence[RolloutGroup[Any]], *places: tuple[int, int]) -> None:
    ahead.add([(groups[group], place, rollout(f"q{group}", place)) for group, place in places])


@given(st.permutations(PLACES), st.integers(0, 5))
def test_groups_are_in_their_order_however_rollouts_come(order: list[tuple[int, int]], early: int) -> None:
    ahead = GradingQueue(graded)
    groups = [ahead.expect(size, names) for size in SIZES]
    for place in order[:early]:
        add(ahead, groups, place)
    # All of them once more, as they are handed over at the end.
    add(ahead, groups, *PLACES)
    for number, (group, size) in enumerate(zip(groups, SIZES, strict=True)):
        assert group.result.result(30) == [(f"q{number}", place) for place in range(size)]
    ahead.close()


class Gated:
    """Grades when it is let, and notes how many rollouts it was given."""

    def __init__(self) -> None:
        self.began, self.goes_on = threading.Event(), threading.Event()
        self.calls: list[int] = []

    def __call__(self, rollouts: Sequence[Rollout]) -> list[GradedRollout]:
        self.calls.append(len(rollouts))
        self.began.set()
        assert self.goes_on.wait(30)
        return graded(rollouts)


def test_what_waits_is_graded_together_and_a_whole_group_is_handed_on_at_once() -> None:
    gated = Gated()
    ahead = GradingQueue(gated)
    groups = [ahead.expect(size, names) for size in SIZES]
    add(ahead, groups, (1, 0))
    assert gated.began.wait(30)
    for place in ((0, 0), (0, 1), (0, 2), (1, 0)):
        add(ahead, groups, place)
    gated.goes_on.set()
    assert len(groups[0].result.result(30)) == 3
    ahead.close()
    assert gated.calls == [1, 3], "the one that came twice is graded once"
    assert not groups[1].result.done(), "it misses a rollout"


@pytest.mark.parametrize(("drop", "calls"), [(False, [1, 4]), (True, [1])])
def test_it_ends_after_all_that_waits_or_after_what_it_is_at(drop: bool, calls: list[int]) -> None:
    gated = Gated()
    ahead = GradingQueue(gated)
    groups = [ahead.expect(size, names) for size in SIZES]
    add(ahead, groups, (0, 0))
    assert gated.began.wait(30)
    add(ahead, groups, *PLACES[1:])
    # Let go once what waits has been dropped, if it is.
    ending = threading.Thread(target=lambda: ahead.close(drop=drop))
    ending.start()
    while drop and ahead._waiting:
        ending.join(0.001)
    gated.goes_on.set()
    ending.join(30)
    assert gated.calls == calls


def test_a_fault_ends_what_is_still_generated() -> None:
    def broken(_: Any) -> list[GradedRollout]:
        raise ArithmeticError("no verdict")

    ahead = GradingQueue(broken)
    groups = [ahead.expect(size, names) for size in SIZES]
    add(ahead, groups, (0, 0))
    for group in groups:
        with pytest.raises(ArithmeticError, match="no verdict"):
            group.result.result(30)
    with pytest.raises(ArithmeticError, match="no verdict"):
        add(ahead, groups, (0, 1))
    ahead.close()


def test_a_group_that_cannot_be_kept_says_so() -> None:
    """A full disk under the last group: nothing comes after it that could raise."""

    def full(_: list[GradedRollout]) -> None:
        raise OSError("no space left")

    ahead = GradingQueue(graded)
    groups: list[RolloutGroup[Any]] = [ahead.expect(3, full), ahead.expect(2, names)]
    add(ahead, groups, *PLACES[:3])
    for group in groups:
        with pytest.raises(OSError, match="no space left"):
            group.result.result(30)
    ahead.close()
