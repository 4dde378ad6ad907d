"""Folders for sockets and logs: only their user enters, names are short, and they go with their maker.

The next one to be made sweeps away those whose maker was killed.
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
"""A file in the folder that its maker holds a lock on: the system lets it go however the maker ends."""
# A socket's address has 107 bytes, of which those of Ray need 64 below this folder.
_MAX_PATH_BYTES = 40
_SHORT = "/tmp"


class Scratch:
    """A folder of this process, which no other user can enter."""

    def __init__(self) -> None:
        """Make a folder, and remove folders whose maker is gone."""
        sweep()
        self.folder = Path(tempfile.mkdtemp(prefix=_PREFIX, dir=_parent()))
        new = self.folder / f"{_OWNER}.new"
        self._lock = os.open(new, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
        fcntl.flock(self._lock, fcntl.LOCK_EX)
        # Seen by others only once it is locked.
        new.rename(self.folder / _OWNER)

    def remove(self) -> None:
        """Remove the folder with all that is in it."""
        _remove(self.folder)
        os.close(self._lock)


def sweep() -> None:
    """Remove this user's folders whose maker has ended without removing them; other users' folders stay."""
    for folder in _parent().glob(f"{_PREFIX}*"):
        # Another process may be at it too, or it is not ours.
        with suppress(OSError):
            if folder.is_symlink() or folder.lstat().st_uid != os.getuid():
                continue
            lock = os.open(folder / _OWNER, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                _remove(folder)
            finally:
                os.close(lock)


def _parent() -> Path:
    """Return the system's temporary folder, unless sockets' addresses in it are too long or it is no plain URL."""
    usual = tempfile.gettempdir()
    plain = len(os.fsencode(usual)) <= _MAX_PATH_BYTES and not {"#", "?"} & set(usual)
    return Path(usual if plain else _SHORT)


def _remove(folder: Path) -> None:
    """Remove a folder, its mark last: a process that still writes to it leaves it for the next sweep."""
    with suppress(OSError):
        for entry in folder.iterdir():
            if entry.is_dir() and not entry.is_symlink():
                shutil.rmtree(entry, ignore_errors=True)
            elif entry.name != _OWNER:
                entry.unlink(missing_ok=True)
        if {entry.name for entry in folder.iterdir()} <= {_OWNER}:
            shutil.rmtree(folder, ignore_errors=True)
