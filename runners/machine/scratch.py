"""Temporary folders for sockets and logs: private, with short paths, and removed with the process that made them.

A new folder first removes the folders of processes that were killed.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
from contextlib import suppress
from pathlib import Path

_PREFIX = "reodsl-"
_OWNER = "owner"
"""File in the folder on which its process holds a lock; the system releases the lock when the process ends in any way."""
# A socket's address has at most 107 bytes, of which Ray needs 64 below this folder.
_MAX_PATH_BYTES = 40
_SHORT = "/tmp"


class Scratch:
    """A temporary folder of this process, which no other user can enter."""

    def __init__(self) -> None:
        """Make and lock a folder, after removing folders of processes that have ended."""
        sweep()
        self.folder = Path(tempfile.mkdtemp(prefix=_PREFIX, dir=_find_parent()))
        unlocked = self.folder / f"{_OWNER}.new"
        self._lock = os.open(unlocked, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
        fcntl.flock(self._lock, fcntl.LOCK_EX)
        # `sweep` of other processes looks only at folders with this name, which is now locked.
        unlocked.rename(self.folder / _OWNER)

    def remove(self) -> None:
        """Remove the folder with everything in it, and release its lock."""
        _remove(self.folder)
        os.close(self._lock)


def sweep() -> None:
    """Remove the temporary folders that killed processes of this user have left; folders of other users stay.

    A process has ended if the lock of the file `owner` in its folder is free.
    """
    for folder in _find_parent().glob(f"{_PREFIX}*"):
        # Another process may remove or hold the folder, or another user may own it.
        with suppress(OSError):
            if folder.is_symlink() or folder.lstat().st_uid != os.getuid():
                continue
            lock = os.open(folder / _OWNER, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                _remove(folder)
            finally:
                os.close(lock)


def _find_parent() -> Path:
    """Return the folder in which `Scratch` makes folders: the system's temporary folder, else `/tmp`.

    `/tmp` is taken if the path of the system's folder is too long for sockets, or has `#` or `?`, as Ray puts paths into
    URLs.
    """
    system_folder = tempfile.gettempdir()
    is_usable = len(os.fsencode(system_folder)) <= _MAX_PATH_BYTES and not {"#", "?"} & set(system_folder)
    return Path(system_folder if is_usable else _SHORT)


def _remove(folder: Path) -> None:
    """Remove everything in a folder, then the lock file and the folder.

    If a process still writes into the folder, the folder and its lock file stay, and a later `sweep` removes both.
    """
    with suppress(OSError):
        for entry in folder.iterdir():
            if entry.is_dir() and not entry.is_symlink():
                shutil.rmtree(entry, ignore_errors=True)
            elif entry.name != _OWNER:
                entry.unlink(missing_ok=True)
        if {entry.name for entry in folder.iterdir()} <= {_OWNER}:
            shutil.rmtree(folder, ignore_errors=True)
