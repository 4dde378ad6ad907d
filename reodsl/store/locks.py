"""Locks: from a path to a file that one process holds until it lets go or is gone, whatever ended it."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

# Files that this process holds for longer than a block. A record lock belongs to the process, and closing any other
# handle of the same file would let it go, so these files are never opened a second time.
_KEPT: dict[str, int] = {}


@contextmanager
def held(place: Path) -> Iterator[bool]:
    """Holds the lock at `place` inside the block; False at once when another process has it."""
    handle, got = _open(place, fcntl.LOCK_EX | fcntl.LOCK_NB)
    try:
        yield got
    finally:
        os.close(handle)


@contextmanager
def turn(place: Path) -> Iterator[None]:
    """Holds the lock at `place` inside the block, after waiting for it; for work of moments."""
    handle, _ = _open(place, fcntl.LOCK_EX)
    try:
        yield
    finally:
        os.close(handle)


def keep(place: Path) -> None:
    """Hold the lock at a new `place` until `let_go`, or to the end of this process."""
    handle, _ = _open(place, fcntl.LOCK_EX)
    _KEPT[os.path.realpath(place)] = handle


def let_go(place: Path) -> None:
    """End `keep`, and remove the file."""
    handle = _KEPT.pop(os.path.realpath(place), None)
    # A file that cannot be removed any more is a leftover that nobody holds.
    with suppress(OSError):
        place.unlink()
    if handle is not None:
        os.close(handle)


def is_held(place: Path) -> bool:
    """Whether a process holds the lock at `place`, this one included."""
    if os.path.realpath(place) in _KEPT:
        return True
    try:
        handle = os.open(place, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    try:
        # Shared, so that a store that may only be read can be asked too.
        return not _lock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
    finally:
        os.close(handle)


def _open(place: Path, how: int) -> tuple[int, bool]:
    """The open lock file, and whether it could be locked."""
    while True:
        handle = os.open(place, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        if not _lock(handle, how):
            return handle, False
        if _is_at(handle, place):
            return handle, True
        # Clean-up removed the file between opening and locking it: such a lock shuts nobody out.
        os.close(handle)


def _lock(handle: int, how: int) -> bool:
    """A record lock: it ends with this very process, and children that it forks do not keep it."""
    try:
        fcntl.lockf(handle, how)
    except (BlockingIOError, PermissionError):
        return False
    return True


def _is_at(handle: int, place: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(handle), place.stat())
    except FileNotFoundError:
        return False
