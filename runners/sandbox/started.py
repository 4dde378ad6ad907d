"""A confined process as the one sees it that started it: lines of JSON in, lines of JSON out, by a deadline."""

from __future__ import annotations

import os
import select
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from runners.sandbox.confine import empty_environment
from runners.untrusted import Undecodable, decoded, encoded

START_SECONDS = 120.0
WALL_FACTOR, GRACE_SECONDS = 3.0, 2.0
_PIPE = 2**16
_ROOT = Path(__file__).resolve().parents[2]


def wall_seconds(seconds: float) -> float:
    """The longest that work with so much processor time may take by the clock, so that a busy machine changes nothing."""
    return WALL_FACTOR * seconds + GRACE_SECONDS


class Gone(Exception):
    """The process ended, or said more than any says; `late`: its time by the clock was over."""

    def __init__(self, late: bool = False) -> None:
        super().__init__()
        self.late = late


class Started:
    """A started script, with nothing of this process but where Python is. It answers each line with one line."""

    def __init__(self, script: Path, *arguments: str, longest: int) -> None:
        """`longest`: bytes of an answer beyond which the process is taken for one that says what none says."""
        path = os.pathsep.join(each for each in (str(_ROOT), os.environ.get("PYTHONPATH")) if each)
        threads = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
        # With `-P` neither the script's folder nor the working folder is on its import path.
        # Its own session keeps a Ctrl-C at the terminal for this process.
        self.process = subprocess.Popen(
            [sys.executable, "-P", str(script), *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            bufsize=0,
            start_new_session=True,
            env=empty_environment(os.environ, PYTHONPATH=path, PYTHONHASHSEED="0", **threads),
        )
        self._buffer, self._longest = b"", longest

    def ask(self, message: object, seconds: float) -> dict[str, Any]:
        """Return what is answered to a message, within so many seconds by the clock. Raises Gone, and Undecodable."""
        return self.ask_line(encoded(message), seconds)

    def ask_line(self, line: bytes, seconds: float) -> dict[str, Any]:
        """Return what is answered to a line, as `ask` does; an empty one only waits."""
        deadline = time.monotonic() + seconds
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        writes, reads = self.process.stdin.fileno(), self.process.stdout.fileno()
        os.set_blocking(writes, False)
        left = memoryview(line)
        try:
            while left:
                self._wait((), (writes,), deadline)
                left = left[os.write(writes, left) :]
            while b"\n" not in self._buffer:
                self._wait((reads,), (), deadline)
                part = os.read(reads, _PIPE)
                if not part or len(self._buffer) > self._longest:
                    raise Gone
                self._buffer += part
            whole, _, self._buffer = self._buffer.partition(b"\n")
        except (OSError, ValueError):
            raise Gone from None
        said = decoded(whole, self._longest + _PIPE)
        if not isinstance(said, dict):
            raise Undecodable("it is no record")
        return said

    def _wait(self, reads: Sequence[int], writes: Sequence[int], deadline: float) -> None:
        left = deadline - time.monotonic()
        if left <= 0 or not any(select.select(reads, writes, (), left)):
            raise Gone(late=True)

    def kill(self) -> None:
        """End the process now, and reap it."""
        self.process.kill()
        for pipe in (self.process.stdin, self.process.stdout):
            if pipe is not None:
                pipe.close()
        self.process.wait()
