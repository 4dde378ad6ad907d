"""A thread that works on what has come: together, to the end or not, and what becomes of a fault."""

from __future__ import annotations

import threading

import pytest

from runners.backlog import Backlog


class Gated:
    """Work that goes on when it is let, and notes what it was given."""

    def __init__(self) -> None:
        self.began, self.goes_on = threading.Event(), threading.Event()
        self.groups: list[list[int]] = []

    def __call__(self, items: list[int]) -> None:
        self.groups.append(items)
        self.began.set()
        assert self.goes_on.wait(30)


def held_up(work: Gated) -> Backlog[int]:
    """One that is at work on 1, while 2 and 3 wait."""
    backlog = Backlog(work, "test")
    backlog.add(1)
    assert work.began.wait(30)
    backlog.add(2)
    backlog.add(3)
    return backlog


def test_what_waits_is_worked_on_together_and_settling_waits_for_it() -> None:
    work = Gated()
    backlog = held_up(work)
    work.goes_on.set()
    backlog.settle()
    assert work.groups == [[1], [2, 3]]
    backlog.add(4)
    backlog.settle()
    backlog.settle()
    assert work.groups[2:] == [[4]]
    backlog.close()


@pytest.mark.parametrize(("end", "groups"), [("finish", [[1], [2, 3]]), ("close", [[1]])])
def test_it_ends_after_all_that_waits_or_after_what_it_is_at(end: str, groups: list[list[int]]) -> None:
    work = Gated()
    backlog = held_up(work)
    # Let go once what waits has been dropped, if it is.
    ending = threading.Thread(target=getattr(backlog, end))
    ending.start()
    if end == "close":
        while backlog._waiting:
            ending.join(0.001)
    work.goes_on.set()
    ending.join(30)
    assert work.groups == groups


def test_a_fault_is_raised_by_all_that_comes_after_it() -> None:
    told: list[str] = []

    def broken(_: list[int]) -> None:
        raise ArithmeticError("no number")

    backlog = Backlog(broken, "test", lambda fault: told.append(str(fault)))
    backlog.add(1)
    for _ in range(2):
        with pytest.raises(ArithmeticError, match="no number"):
            backlog.settle()
    with pytest.raises(ArithmeticError, match="no number"):
        backlog.add(2)
    backlog.finish()
    assert told == ["no number"]
