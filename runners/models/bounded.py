"""The process in which a stranger's checkpoint is tried and used, as the one sees it that asks it."""

from __future__ import annotations

import signal
import threading
from pathlib import Path
from typing import Any

from reodsl.diagnostics import problem
from runners.sandbox.workers import START_SECONDS, Gone, Worker, wall_seconds
from runners.untrusted import Undecodable

WORKER = Path(__file__).with_name("worker.py")
LONGEST = 1 << 24
"""Bytes of an answer."""


class Beyond(Exception):
    """An excess of the bounds; its words name the bound, after a subject."""


class Bounded:
    """A process with a bound on processor seconds and on memory, started when it is first asked.

    One thread at a time may ask.
    """

    def __init__(self, seconds: float, memory_mib: int) -> None:
        self.seconds, self.memory_mib = seconds, memory_mib
        self._lock = threading.Lock()
        self._process: Worker | None = None

    def ask(self, request: dict[str, Any]) -> dict[str, Any]:
        """Return the answer of `worker`. Raises Beyond; whoever asks then finds a new process.

        A process that somebody else ends, such as a system short of memory, is asked once more; the second time it is E0741.
        """
        for _ in range(2):
            try:
                return self._ask(request)
            except Gone as gone:
                number = -gone.status
        raise problem(
            "E0741",
            f"the process that reads what a model's maker wrote was ended twice, by signal {number}",
            help="see whether the system was short of memory, and run again, which goes on where it stopped",
        )

    def _ask(self, request: dict[str, Any]) -> dict[str, Any]:
        with self._lock:
            if self._process is None:
                self._process = Worker(WORKER, str(self.memory_mib), str(self.seconds), longest=LONGEST)
            try:
                said = self._process.ask(request, START_SECONDS + wall_seconds(self.seconds))
            except Gone as gone:
                why = self._end(gone.late)
                if gone.lost and not gone.late:
                    raise
                raise Beyond(why) from None
            except Undecodable as fault:
                self._end(late=True)
                raise Beyond(f"gives what cannot be read: {fault}") from None
            except BaseException:
                self._end(late=True)
                raise
            if "beyond" in said:
                # What it holds of it is let go with the process.
                self._end(late=True)
                raise Beyond(said["beyond"])
            return said

    def close(self) -> None:
        """End the process, if there is one."""
        with self._lock:
            if self._process is not None:
                self._end(late=True)

    def _end(self, late: bool) -> str:
        """Let the process go, and say what became of it."""
        started, self._process = self._process, None
        assert started is not None
        status = started.kill()
        if status == -signal.SIGPROF:
            return f"does not end within {self.seconds:g} seconds of a processor"
        return "does not end" if late or status >= 0 else f"ends its process by signal {-status}"
