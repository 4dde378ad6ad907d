"""Locks: from a path to a file that one process holds until it lets go or is gone, whatever ended it.

These are record locks and not those of `filelock`: no child of the process keeps them, however it was forked; whether
one is held can be asked without taking it, in a store that may only be read too; and a file system without locks is
an error, where `filelock` goes on with files that outlive their process. Versions of reodsl that share a store have
to take the same locks.
"""

from __future__ import annotations

import errno
import fcntl
import os
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

_NEXT_LOOK = 0.05
_LOCKLESS = {errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOSYS, errno.EINVAL}


class Lockless(OSError):
    """An error of a file system that has no locks."""


# A record lock belongs to the process: it does not shut out other threads of it, and closing any handle of the file
# lets it go. So no file that this process holds is opened a second time.
_OURS: dict[str, int] = {}
_CHANGING = threading.Lock()


@contextmanager
def hold(place: Path) -> Iterator[bool]:
    """Hold the lock at `place` inside the block; False at once if another process or thread has it."""
    with ExitStack() as stack:
        got = _take(place, wait=False)
        if got:
            stack.callback(_drop, place)
        yield got


@contextmanager
def turn(place: Path) -> Iterator[None]:
    """Hold the lock at `place` inside the block, after waiting for it; for work of moments."""
    while not _take(place, wait=True):
        time.sleep(_NEXT_LOOK)
    try:
        yield
    finally:
        _drop(place)


def keep(place: Path) -> None:
    """Hold the lock at a new `place` until `let_go`, or to the end of this process."""
    _take(place, wait=True)


def let_go(place: Path) -> None:
    """End `keep`, and remove the file."""
    # A file that cannot be removed any more is a leftover that nobody holds.
    with suppress(OSError):
        place.unlink()
    _drop(place)


def is_held(place: Path) -> bool:
    """Return whether a process holds the lock at `place`, this one included."""
    with _CHANGING:
        if os.path.realpath(place) in _OURS:
            return True
        try:
            handle = os.open(place, os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            return False
        try:
            # Shared, so that a store that may only be read can be asked too.
            return not _lock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except Lockless:
            # Nobody can have it.
            return False
        finally:
            os.close(handle)


def _take(place: Path, wait: bool) -> bool:
    """Return whether this thread has the lock now; with `wait` it waits for other processes, not for other threads."""
    name = os.path.realpath(place)
    with _CHANGING:
        if name in _OURS:
            return False
        handle, got = _open(place, fcntl.LOCK_EX if wait else fcntl.LOCK_EX | fcntl.LOCK_NB)
        if got:
            _OURS[name] = handle
        else:
            os.close(handle)
        return got


def _drop(place: Path) -> None:
    with _CHANGING:
        handle = _OURS.pop(os.path.realpath(place), None)
        if handle is not None:
            os.close(handle)


def _open(place: Path, how: int) -> tuple[int, bool]:
    """Return the open lock file, and whether it could be locked."""
    while True:
        handle = os.open(place, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        if not _lock(handle, how):
            return handle, False
        if _is_at(handle, place):
            return handle, True
        # Clean-up removed the file between opening and locking it: such a lock shuts nobody out.
        os.close(handle)


def _lock(handle: int, how: int) -> bool:
    """Take a record lock: it ends with this very process, and children that it forks do not keep it."""
    try:
        fcntl.lockf(handle, how)
    except (BlockingIOError, PermissionError):
        return False
    except OSError as fault:
        if fault.errno not in _LOCKLESS:
            raise
        raise Lockless(fault.errno, fault.strerror) from None
    return True


def _is_at(handle: int, place: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(handle), place.stat())
    except FileNotFoundError:
        return False
