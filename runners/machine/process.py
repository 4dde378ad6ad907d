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

_MAX_LINES, _MAX_WIDTH, _TAIL_BYTES = 12, 200, 1 << 16
"""The lines of a log that are shown, the characters of each, and the bytes that they are looked for in."""


_KILL_SECONDS = 10.0
"""Seconds to wait for a killed process. The system may take longer to free its memory."""


class Child(subprocess.Popen[bytes]):
    """A child process. The open pipe to its standard input tells it that its parent lives.

    In a session of its own it does not hear a Ctrl-C at the terminal, and ends with all that it started.
    """

    def __init__(self, command: Sequence[str], environment: Mapping[str, str], **options: Any) -> None:
        """Start the command. `options` are further arguments of `Popen`."""
        super().__init__(command, stdin=subprocess.PIPE, env=environment, start_new_session=True, **options)

    def end(self, patience: float = 0.0) -> int:
        """End the process, by force after `patience` seconds, and return its exit status.

        Args:
            patience: Seconds that the process has to end by itself.

        Returns:
            The exit status, negative for a signal.
        """
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
            self.wait(_KILL_SECONDS)
        return -signal.SIGKILL if self.returncode is None else self.returncode


def python_path() -> str:
    """Return the import path of a Python process that runs modules of ours."""
    root = str(Path(__file__).resolve().parents[1])
    return os.pathsep.join(path for path in (root, os.environ.get("PYTHONPATH")) if path)


class ProcessDied(Problem):
    """The death of a process that a task needs. The scheduler starts the task again from its last saved state."""

    def __reduce__(self) -> tuple[type[Problem], tuple[Diagnostic, ...]]:
        """Let it stay what it is between processes."""
        return ProcessDied, self.diagnostics


def explain_death(subject: str, why: str, log: Path | None = None, notes: Sequence[str] = ()) -> ProcessDied:
    """Return E0938: what ended, why, and the last lines of its log."""
    return ProcessDied(
        error(
            "E0938",
            f"{subject} ended: {why}",
            where=str(log.resolve()) if log is not None else None,
            notes=[*notes, *(last_lines(log) if log is not None else ())],
            help="run again to go on from what is saved; a process that the system kills has usually used up the memory: see"
            " how much is free, and lower `microbatch` or shorten the longest response",
        )
    )


def last_lines(log: Path, begin: int = 0) -> list[str]:
    """Return the last lines of a log after its byte `begin`, without blank lines, and with long lines cut."""
    lines = [line.rstrip()[:_MAX_WIDTH] for line in read_end(log, begin).splitlines() if line.strip()]
    return lines[-_MAX_LINES:]


def read_end(log: Path, begin: int = 0) -> str:
    """Return the end of a log, after its byte `begin`; more than `last_lines` shows."""
    try:
        with log.open("rb") as file:
            size = file.seek(0, 2)
            file.seek(max(begin, size - _TAIL_BYTES))
            return file.read().decode("utf-8", "replace")
    except OSError:
        return ""
