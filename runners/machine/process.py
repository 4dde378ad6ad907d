"""Start and end child processes, and report the death of a process that a task needs, with the end of its log."""

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
"""Lines of a log that are shown, characters of each line, and bytes of the log that are read for them."""


_KILL_SECONDS = 10.0
"""Seconds to wait for a killed process; the system may take even longer to free its memory."""


class Child(subprocess.Popen[bytes]):
    """A child process in a new session, whose standard input closes when the parent ends.

    Ctrl-C at the terminal does not reach the new session. `end` kills the child's own children as well.
    """

    def __init__(self, command: Sequence[str], environment: Mapping[str, str], **options: Any) -> None:
        """Start the process.

        Args:
            command: Command with its arguments.
            environment: All environment variables of the process.
            options: Further arguments of `Popen`.
        """
        super().__init__(command, stdin=subprocess.PIPE, env=environment, start_new_session=True, **options)

    def end(self, patience: float = 0.0) -> int:
        """Wait for the process to end, kill it and its children after `patience` seconds, and close its pipes.

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
    """Return PYTHONPATH for a process that imports modules of `runners`: our folder, then the present PYTHONPATH."""
    root = str(Path(__file__).resolve().parents[1])
    return os.pathsep.join(path for path in (root, os.environ.get("PYTHONPATH")) if path)


class ProcessDied(Problem):
    """The death of a process that a task needs; the scheduler then runs the task again from its last saved state."""

    def __reduce__(self) -> tuple[type[Problem], tuple[Diagnostic, ...]]:
        """Return class and arguments for pickle, so that another process receives a `ProcessDied`, not a `Problem`."""
        return ProcessDied, self.diagnostics


def explain_death(
    subject: str, reason: str, log: Path | None = None, notes: Sequence[str] = ()
) -> ProcessDied:
    """Return E0938 for a process that ended unexpectedly.

    Args:
        subject: Name of the process.
        reason: Why it ended, such as its exit status.
        log: Its log, whose last lines become notes, or None.
        notes: Further notes.
    """
    return ProcessDied(
        error(
            "E0938",
            f"{subject} ended: {reason}",
            where=str(log.resolve()) if log is not None else None,
            notes=[*notes, *(last_lines(log) if log is not None else ())],
            help="run the command again to continue from the saved state; the system usually kills a process for lack of"
            " memory: check how much is free, and lower `microbatch` or shorten the longest response",
        )
    )


def last_lines(log: Path, start: int = 0) -> list[str]:
    """Return the last lines of a log from the byte `start` on, without blank lines, and with long lines cut."""
    lines = [line.rstrip()[:_MAX_WIDTH] for line in read_end(log, start).splitlines() if line.strip()]
    return lines[-_MAX_LINES:]


def read_end(log: Path, start: int = 0) -> str:
    """Return the last 64 KiB of a log as text, from the byte `start` on; empty if it cannot be read."""
    try:
        with log.open("rb") as file:
            size = file.seek(0, 2)
            file.seek(max(start, size - _TAIL_BYTES))
            return file.read().decode("utf-8", "replace")
    except OSError:
        return ""
