"""Locks: held by one process, let go when it is gone however it went, and seen without being taken."""

from __future__ import annotations

import errno
import fcntl
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from reodsl.diagnostics import Problem
from reodsl.store.files import hold, is_held, keep, let_go, turn
from reodsl.store.store import Store
from tests.store.holder import other_process_holds


def test_a_lock_is_seen_by_others_and_ends_with_its_process(tmp_path: Path) -> None:
    place = tmp_path / "lock"
    assert not is_held(place)
    assert not place.exists()
    with other_process_holds(place):
        assert is_held(place)
        with hold(place) as got:
            assert not got
    assert not is_held(place)
    with hold(place) as got:
        assert got


def test_a_claim_is_kept_though_it_is_asked_for(tmp_path: Path) -> None:
    """Closing a second handle of a file lets go of a process's record locks on it."""
    place = tmp_path / "claim"
    keep(place)
    assert is_held(place)
    assert refused_elsewhere(place)
    let_go(place)
    assert not place.exists()
    assert not is_held(place)


def refused_elsewhere(place: Path) -> bool:
    """Whether another process cannot have the lock."""
    try:
        with other_process_holds(place):
            return False
    except AssertionError:
        return True


def test_a_lock_shuts_out_other_threads_and_is_not_lost_to_them(tmp_path: Path) -> None:
    """A notebook may run two studies at once in one process."""
    place = tmp_path / "lock"
    with hold(place) as got:
        assert got
        with hold(place) as again:
            assert not again
        assert is_held(place)
        assert refused_elsewhere(place)
    with hold(place) as got:
        assert got


def test_a_turn_comes_after_the_one_before(tmp_path: Path) -> None:
    place, came = tmp_path / "turn", threading.Event()

    def wait() -> None:
        with turn(place):
            came.set()

    with other_process_holds(place):
        thread = threading.Thread(target=wait)
        thread.start()
        assert not came.wait(0.2)
    thread.join(timeout=30)
    assert came.is_set()


def test_a_lock_file_that_was_removed_shuts_nobody_out(tmp_path: Path) -> None:
    place = tmp_path / "lock"
    with other_process_holds(place):
        place.unlink()
        with hold(place) as got:
            assert got
            assert place.exists()


@pytest.mark.parametrize("number", [errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOSYS])
def test_a_file_system_without_locks_is_named_as_such(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, refusal: Callable[..., None], number: int
) -> None:
    store = Store(tmp_path / "store").open()

    def none(handle: int, how: int) -> None:
        raise OSError(number, "No locks available")

    monkeypatch.setattr(fcntl, "lockf", none)
    with pytest.raises(Problem) as caught, store.lock("key"):
        pass
    refusal("execute/E0950-locks.txt", caught.value)
    with pytest.raises(Problem, match="no locks"), store.turn("runs"):
        pass
