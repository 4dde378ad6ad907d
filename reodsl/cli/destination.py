"""Where a command writes: a path given on the command line to one that may be written, or a clear refusal."""

from __future__ import annotations

import os
import stat
import tempfile
from collections.abc import Iterable
from pathlib import Path

from reodsl.diagnostics import Problem, problem

ANOTHER = "name another place with --out"


def file_to_write(path: Path, reads: Iterable[Path] = (), remedy: str = ANOTHER) -> Path:
    """Return the file that `path` is, links followed. Nothing is created: its folder need not exist yet.

    Raises `Problem` E0118 with the `remedy` for a device or folder, a file that the command itself reads, or a folder
    that cannot be made.
    """
    try:
        place = path.resolve()
        status = place.stat() if place.exists() else None
        read = status is not None and any(each.exists() and each.samefile(place) for each in reads)
    except (OSError, RuntimeError, ValueError) as cause:
        raise _refused(path, str(getattr(cause, "strerror", None) or cause), remedy) from None
    if status is not None and not stat.S_ISREG(status.st_mode):
        what = "it is a folder" if stat.S_ISDIR(status.st_mode) else "it is a device or a pipe"
        raise _refused(path, what, remedy)
    if read:
        raise _refused(path, "this command reads it, and would overwrite it", remedy)
    folder_to_fill(place.parent, remedy)
    return place


def folder_to_fill(path: Path, remedy: str = ANOTHER) -> Path:
    """`path`, where files can be put into it; it need not exist yet, and nothing is left there.

    Asked before hours of work whose end would be the refusal. Raises `Problem` E0118.
    """
    try:
        there = next(each for each in (path.absolute(), *path.absolute().parents) if os.path.lexists(each))
        if not there.is_dir():
            raise _refused(path, f"{there} is not a folder", remedy)
        with tempfile.TemporaryFile(dir=there):
            pass
    except (OSError, ValueError) as cause:
        raise _refused(path, str(getattr(cause, "strerror", None) or cause), remedy) from None
    return path


def _refused(path: Path, reason: str, remedy: str) -> Problem:
    return problem(
        "E0118",
        f"nothing can be written here: {reason[:1].lower() + reason[1:]}",
        where=str(path),
        help=remedy,
    )
