"""Folders for a server's sockets: with a short name, and gone with who made them, at the latest as the next one is made."""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
from contextlib import suppress
from pathlib import Path

_PREFIX = "sgl-"
_OWNED = "owner"
"""A file in the folder that its maker holds a lock on: the system lets it go however the maker ends."""


class Scratch:
    """A folder of this process."""

    def __init__(self) -> None:
        """Makes one, and removes those whose maker is gone."""
        sweep()
        self.folder = Path(tempfile.mkdtemp(prefix=_PREFIX))
        made = self.folder / f"{_OWNED}.new"
        self._lock = os.open(made, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
        fcntl.flock(self._lock, fcntl.LOCK_EX)
        # Seen by others only once it is locked.
        made.rename(self.folder / _OWNED)

    def remove(self) -> None:
        """Removes the folder with all that is in it."""
        shutil.rmtree(self.folder, ignore_errors=True)
        os.close(self._lock)


def sweep() -> None:
    """Removes this user's folders whose maker has ended without doing so; others are left alone."""
    for folder in Path(tempfile.gettempdir()).glob(f"{_PREFIX}*"):
        # Another process may be at it too, or it is not ours.
        with suppress(OSError):
            if folder.is_symlink() or folder.lstat().st_uid != os.getuid():
                continue
            lock = os.open(folder / _OWNED, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(folder, ignore_errors=True)
            finally:
                os.close(lock)
