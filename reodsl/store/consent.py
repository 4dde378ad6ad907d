"""What this user let happen on this machine: a file by its name for each, in a folder that only they can enter."""

from __future__ import annotations

import os
import stat
from pathlib import Path


def consent_folder(kind: str) -> Path:
    """Where what was allowed of a kind has its files: `$XDG_STATE_HOME/reodsl/KIND/`."""
    state = os.environ.get("XDG_STATE_HOME")
    return (Path(state) if state else Path.home() / ".local" / "state") / "reodsl" / kind


def is_allowed(kind: str, name: str) -> bool:
    """Whether this user allowed it. What others write there counts for nothing."""
    try:
        status = os.stat(consent_folder(kind) / name, follow_symlinks=False)
    except OSError:
        return False
    return stat.S_ISREG(status.st_mode) and status.st_uid == os.getuid()


def allow(kind: str, name: str, text: str) -> None:
    """Remember it as allowed, with a line for people, where that can be written."""
    place = consent_folder(kind)
    try:
        place.mkdir(mode=0o700, parents=True, exist_ok=True)
        handle = os.open(
            place / name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600
        )
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(f"{text}\n")
    except OSError:
        pass
