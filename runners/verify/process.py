"""One worker process as its parent sees it: start, send a question, read answers, kill."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import runners
from runners.sandbox import empty_environment
from runners.untrusted import Undecodable, decoded

WORKER = Path(__file__).with_name("worker.py")
LONGEST_LINE = 60_000
"""Bytes of a request. A pipe holds 64 KiB and a worker has at most one request, so a write never blocks."""
LONGEST_MESSAGE = 10_000

OUTSIDE = (-signal.SIGKILL, -signal.SIGTERM)
"""How a worker ends that somebody else ended: an operator, or a system short of memory. No check ends so by itself."""

Outcome = Literal["checked", "timeout", "failed", "lost"]


@dataclass(frozen=True, slots=True)
class Ready:
    """A worker has loaded what it needs."""


@dataclass(frozen=True, slots=True)
class Unready:
    """A worker cannot check anything; `lacking`: because it cannot be confined."""

    why: str
    lacking: bool = False


@dataclass(frozen=True, slots=True)
class Checked:
    """What became of an answer; `lost` where somebody else ended the process that checked it. `retire`: the worker ends
    after it."""

    correct: bool
    outcome: Outcome
    retire: bool


@dataclass(frozen=True, slots=True)
class Malformed:
    """Something that no worker says."""


Message = Ready | Unready | Checked | Malformed


class WorkerProcess:
    """A started worker. `busy` is what it works on, asked by `line`; `deadline` is when it is to be killed (monotonic
    seconds)."""

    def __init__(self, kind: str, seconds: float, memory_mib: int, confined: bool) -> None:
        # With `-P` neither this folder nor the working folder is on the worker's import path.
        # Its own session keeps a Ctrl-C at the terminal for the parent.
        here = str(Path(runners.__file__).parents[1])
        path = os.pathsep.join(each for each in (here, os.environ.get("PYTHONPATH")) if each)
        must = "confined" if confined else "open"
        self._process = subprocess.Popen(
            [sys.executable, "-P", str(WORKER), kind, str(seconds), str(memory_mib), must],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            bufsize=0,
            start_new_session=True,
            env=empty_environment(
                os.environ, PYTHONPATH=path, PYTHONHASHSEED="0", OMP_NUM_THREADS="1", OPENBLAS_NUM_THREADS="1"
            ),
        )
        self._buffer = b""
        self.ready = False
        self.busy: int | None = None
        self.line = b""
        self.deadline = float("inf")

    def fileno(self) -> int:
        """The pipe that answers come from, for a selector."""
        assert self._process.stdout is not None
        return self._process.stdout.fileno()

    @property
    def pid(self) -> int:
        """The number by which the system knows the worker."""
        return self._process.pid

    def send(self, line: bytes, item: int, seconds: float) -> bool:
        """Hand over request `item`, to be answered within `seconds`; False when the worker is gone."""
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(line)
        except OSError:
            return False
        self.busy, self.line = item, line
        self.deadline = time.monotonic() + seconds
        return True

    def receive(self) -> list[Message] | None:
        """The messages that are whole now, perhaps none; None when the worker has ended.

        Call it when the pipe is readable.
        """
        part = os.read(self.fileno(), 2**16)
        if not part:
            return None
        *lines, self._buffer = (self._buffer + part).split(b"\n")
        messages = [read_message(line) for line in lines]
        if len(self._buffer) > LONGEST_MESSAGE:
            messages.append(Malformed())
        return messages

    def kill(self) -> int:
        """End the process now, reap it and close its pipes; its exit status (negative: the signal's number)."""
        self._process.kill()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                pipe.close()
        return self._process.wait()


def read_message(line: bytes) -> Message:
    """What a line of a worker says. It is believed only where it has the form of what workers say."""
    try:
        said = decoded(line, LONGEST_MESSAGE)
    except Undecodable:
        return Malformed()
    match said:
        case {"ready": True}:
            return Ready()
        case {"ready": False, "lacking": str(why)}:
            return Unready(why, lacking=True)
        case {"ready": False, "why": str(why)}:
            return Unready(why)
        case {"correct": bool(correct), "outcome": "checked", "retire": bool(retire)}:
            return Checked(correct, "checked", retire)
        case {"correct": False, "outcome": "timeout" | "failed" | "lost" as outcome, "retire": bool(retire)}:
            return Checked(False, outcome, retire)
        case _:
            return Malformed()


def request_line(gold: str, text: str, meta: str) -> bytes | None:
    """The request as one ASCII line, or None when it is too long to send."""
    if len(gold) + len(text) + len(meta) > LONGEST_LINE:
        return None
    line = json.dumps({"gold": gold, "text": text, "meta": meta}).encode("ascii") + b"\n"
    return line if len(line) <= LONGEST_LINE else None
