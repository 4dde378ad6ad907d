"""Start and end child processes, and report the death of one that a task needs, with the end of its log."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from reodsl.diagnostics import Diagnostic, Problem, error

_LINES, _WIDTH, _TAIL = 12, 200, 1 << 16
"""The lines of a log that are shown, the characters of each, and the bytes that they are looked for in."""


_FAREWELL = 10.0
"""Seconds to wait for a killed process. The system may take longer to free its memory."""


class Child(subprocess.Popen[bytes]):
    """A child process. The open pipe to its standard input tells it that its parent lives.

    In a session of its own it does not hear a Ctrl-C at the terminal, and ends with all that it started.
    """

    def __init__(self, command: Sequence[str], environment: Mapping[str, str], **given: Any) -> None:
        """Start the command. `given` are further arguments of `Popen`."""
        super().__init__(command, stdin=subprocess.PIPE, env=environment, start_new_session=True, **given)

    def end(self, patience: float = 0.0) -> int:
        """End the process, by force after `patience` seconds, and return its exit status."""
        with suppress(subprocess.TimeoutExpired):
            self.wait(patience)
        if self.returncode is None:
            with suppress(ProcessLookupError):
                os.killpg(self.pid, signal.SIGKILL)
        for pipe in (self.stdin, self.stdout):
            if pipe is not None:
                with suppress(BrokenPipeError):
                    pipe.close()
        with suppress(subprocess.TimeoutExpired):
            self.wait(_FAREWELL)
        return -signal.SIGKILL if self.returncode is None else self.returncode


def python_path() -> str:
    """Return the import path of a Python process that runs modules of ours."""
    here = str(Path(__file__).resolve().parents[1])
    return os.pathsep.join(each for each in (here, os.environ.get("PYTHONPATH")) if each)


class ProcessDied(Problem):
    """The death of a process that a task needs. The scheduler starts the task again from its last saved state."""

    def __reduce__(self) -> tuple[type[Problem], tuple[Diagnostic, ...]]:
        """Let it stay what it is between processes."""
        return ProcessDied, self.diagnostics


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
