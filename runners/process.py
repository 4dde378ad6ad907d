"""The end of a process that a task needs, and the end of its log."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from reodsl.diagnostics import Problem, error

_LINES, _WIDTH, _TAIL = 12, 200, 1 << 16
"""The lines of a log that are shown, the characters of each, and the bytes that they are looked for in."""


class ProcessDied(Problem):
    """The end of a process that a task needs. The task is begun again, from what it has saved."""


def explain_death(what: str, why: str, log: Path | None = None, notes: Sequence[str] = ()) -> ProcessDied:
    """Return E0938: what ended, why, and the last lines of its log."""
    return ProcessDied(
        error(
            "E0938",
            f"{what} ended: {why}",
            where=str(log.resolve()) if log is not None else None,
            notes=[*notes, *(last_lines(log) if log is not None else ())],
            help="run again to go on from what is saved; a process that the system kills has usually used up the memory: see"
            " how much is free, and lower `microbatch` or shorten the longest response",
        )
    )


def last_lines(log: Path, begin: int = 0) -> list[str]:
    """Return the last lines of a log after its byte `begin`, without blank ones and with long ones cut."""
    lines = [line.rstrip()[:_WIDTH] for line in end_of(log, begin).splitlines() if line.strip()]
    return lines[-_LINES:]


def end_of(log: Path, begin: int = 0) -> str:
    """Return the end of a log, after its byte `begin`; further back than what is shown."""
    try:
        with log.open("rb") as file:
            size = file.seek(0, 2)
            file.seek(max(begin, size - _TAIL))
            return file.read().decode("utf-8", "replace")
    except OSError:
        return ""
