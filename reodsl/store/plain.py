"""Open plain files of bounded size that a spec or a stranger's folder names, and refuse all others.

Plain is a regular file on a disk. A device, pipe or socket is none, nor is anything below /proc, /sys or /dev (but /dev/shm,
which is memory): to open those may hang, never end, or do something. Links are followed, as models and data often lie on
another disk; what counts is where they lead.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
import stat
from contextlib import suppress
from pathlib import Path
from typing import Any, BinaryIO

_SYSTEM = ("/proc", "/sys", "/dev")
_MEMORY = "/dev/shm"
_BLOCK = 1 << 20
_TRIES = 4
LARGEST_RECORD = 1 << 28
"""Bytes of what a store or a run keeps of itself: far more than 20,000 tasks need."""
_KINDS = (
    (stat.S_ISDIR, "it is a folder"),
    (stat.S_ISFIFO, "it is a pipe"),
    (stat.S_ISSOCK, "it is a socket"),
    (stat.S_ISCHR, "it is a device"),
    (stat.S_ISBLK, "it is a device"),
)


class NotPlain(OSError):
    """An error about a path without a plain file, or with a larger one than is read; `strerror` says which."""


class _Replaced(NotPlain):
    """An error about a file that was replaced between two looks at it."""


def stat_plain(path: Path) -> os.stat_result:
    """Return the status of a plain file, links followed. Raises NotPlain, or OSError if it is missing."""
    try:
        status = os.stat(path)
    except ValueError as fault:
        raise NotPlain(errno.EINVAL, str(fault), str(path)) from None
    _require_regular(status, path)
    if is_system(path):
        raise NotPlain(errno.EINVAL, f"it is a file of the system, {_real_path(path)}", str(path))
    return status


def open_plain(path: Path) -> BinaryIO:
    """Open a plain file. Raises NotPlain or OSError, and never waits."""
    for _ in range(_TRIES):
        # It may be replaced by another between the two looks at it, as records of runs are.
        with suppress(_Replaced):
            return _open_file(path)
    return _open_file(path)


def _open_file(path: Path) -> BinaryIO:
    before = stat_plain(path)
    handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
    try:
        now = os.fstat(handle)
        _require_regular(now, path)
        if not os.path.samestat(before, now):
            raise _Replaced(errno.EAGAIN, "it is being replaced", str(path))
        return os.fdopen(handle, "rb")
    except BaseException:
        os.close(handle)
        raise


def read_plain(path: Path, most: int) -> bytes:
    """Return the bytes of a plain file that has at most `most`. Raises NotPlain or OSError."""
    with open_plain(path) as file:
        # What is written to it meanwhile is not waited for.
        data = file.read(most + 1)
    if len(data) > most:
        raise NotPlain(errno.EFBIG, f"it has more than the {most:,} bytes that are read of it", str(path))
    return data


def read_object(path: Path, most: int = LARGEST_RECORD) -> dict[str, Any] | None:
    """Return the object in a plain JSON file; None if it cannot be read or holds something else."""
    try:
        value = json.loads(read_plain(path, most))
    except (OSError, ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def read_lines(path: Path) -> list[str]:
    """Return the lines of a plain text file, without a last one that was cut off; none if it cannot be read."""
    try:
        return read_plain(path, LARGEST_RECORD).decode().split("\n")[:-1]
    except (OSError, ValueError):
        return []


def hash_plain(path: Path) -> str:
    """Return the SHA-256 of a plain file in hexadecimal, of as many bytes as it has at first.

    Raises NotPlain or OSError.
    """
    digest, buffer = hashlib.sha256(), bytearray(_BLOCK)
    view = memoryview(buffer)
    with open_plain(path) as file:
        left = os.fstat(file.fileno()).st_size
        while left > 0 and (count := file.readinto(view[: min(left, _BLOCK)])):  # type: ignore[attr-defined]
            digest.update(view[:count])
            left -= count
    return digest.hexdigest()


def is_system(path: Path) -> bool:
    """Return whether a path, links followed, is below one of the folders of the system."""
    try:
        real = _real_path(path)
    except ValueError:
        return True
    return is_within(real, _SYSTEM) and not is_within(real, (_MEMORY,))


def _real_path(path: Path) -> str:
    """Return where a path leads. Linux answers in one call; `realpath` looks at each folder on the way, for each file.

    The file is not opened for that: O_PATH only finds it.
    """
    if hasattr(os, "O_PATH"):
        with suppress(OSError):
            handle = os.open(path, os.O_PATH | os.O_CLOEXEC)
            try:
                return os.readlink(f"/proc/self/fd/{handle}")
            finally:
                os.close(handle)
    return os.path.realpath(path)


def _require_regular(status: os.stat_result, path: Path) -> None:
    if stat.S_ISREG(status.st_mode):
        return
    words = next((words for test, words in _KINDS if test(status.st_mode)), "it is not a plain file")
    raise NotPlain(errno.EINVAL, words, str(path))


def is_within(place: str, folders: tuple[str, ...]) -> bool:
    """Return whether a path is one of these folders or below one; no link is followed."""
    return any(place == folder or place.startswith(f"{folder}/") for folder in folders)
