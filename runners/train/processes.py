"""Run the other ranks of a stage as processes of this machine."""

from __future__ import annotations

import os
import pickle
import signal
import subprocess
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import runners
from reodsl.diagnostics import problem
from runners.meeting import meet
from runners.train.follower import Fault, Part
from runners.train.ranks import COMPUTE

_NOTHING = object()


class Processes:
    """Other ranks as processes of this machine."""

    def __init__(self, parts: list[Part]) -> None:
        """Starts all but the first, which is this process, and waits until each has loaded its packages.

        Raises E0938 where one does not.
        """
        self.devices: dict[int, list[object]] = {}
        self.store = meet(parts[0].meeting, parts[0].world, COMPUTE)
        self.host: str | None = None
        self._faults: dict[int, Fault] = {}
        self._ended: dict[int, str] = {}
        self._stopping = False
        self._running = {part.rank: _Process(part) for part in parts[1:]}
        self._threads = []
        for rank, process in self._running.items():
            if process.hear() != "ready":
                words = _status(process.child.wait())
                self.stop(0.0)
                raise problem(
                    "E0938",
                    f"process {rank} of {len(parts)} that train together did not start: {words}",
                    help="see how much memory is free, and run again to go on from there",
                )
            thread = threading.Thread(target=self._listen, args=(rank, process), daemon=True)
            thread.start()
            self._threads.append(thread)

    def _listen(self, rank: int, process: _Process) -> None:
        """Waits for a report; an end without one is an early end."""
        report = process.hear()
        if isinstance(report, Fault):
            self._faults[rank] = report
        elif report is _NOTHING and not self._stopping:
            self._ended[rank] = _status(process.child.wait())

    def dead(self) -> dict[int, str]:
        """See `Others.dead`."""
        return dict(self._ended)

    def faults(self) -> dict[int, Fault]:
        """See `Others.faults`."""
        return dict(self._faults)

    def stop(self, patience: float) -> None:
        """See `Others.stop`."""
        self._stopping = True
        until = time.monotonic() + patience
        for process in self._running.values():
            process.end(max(0.0, until - time.monotonic()))
        for thread in self._threads:
            thread.join()
        for process in self._running.values():
            process.close()


class _Process:
    """One follower as its parent sees it."""

    def __init__(self, part: Part) -> None:
        reads, writes = os.pipe()
        here = str(Path(runners.__file__).parents[1])
        path = os.pathsep.join(each for each in (here, os.environ.get("PYTHONPATH")) if each)
        # Its own session keeps a Ctrl-C at the terminal for the parent, which ends it in order.
        self.child = subprocess.Popen(
            [sys.executable, "-P", "-m", "runners.train.follower", str(writes)],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            pass_fds=(writes,),
            start_new_session=True,
            env={**os.environ, "PYTHONPATH": path},
        )
        os.close(writes)
        self._reports = os.fdopen(reads, "rb")
        assert self.child.stdin is not None
        # A process that has ended already is told of by what is not heard from it.
        with suppress(BrokenPipeError):
            pickle.dump(part, self.child.stdin)
            self.child.stdin.flush()

    def hear(self) -> Any:
        """The next report; `_NOTHING` where the process ended without one."""
        size = self._reports.read(8)
        report = self._reports.read(int.from_bytes(size, "big")) if len(size) == 8 else b""
        return pickle.loads(report) if report else _NOTHING

    def end(self, patience: float) -> None:
        """Ends the process, by force after `patience` seconds, and reaps it."""
        try:
            self.child.wait(patience)
        except subprocess.TimeoutExpired:
            self.child.kill()
            self.child.wait()
        assert self.child.stdin is not None
        with suppress(BrokenPipeError):
            self.child.stdin.close()

    def close(self) -> None:
        """Gives the pipe of reports back, once nobody listens."""
        self._reports.close()


def _status(code: int) -> str:
    return f"killed by {signal.Signals(-code).name}" if code < 0 else f"exit status {code}"
