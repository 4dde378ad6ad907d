"""Confined worker processes as their parent sees them: lines of JSON in, lines of JSON out, by a deadline."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
import threading
import time
import weakref
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

from reodsl.diagnostics import Problem, problem
from runners.machine.process import Child, python_path
from runners.sandbox.confine import empty_environment
from runners.sandbox.untrusted import Undecodable, decoded, encoded

PROGRAMS = "verifier `tests`"
"""The part that runs programs of models: never without a sandbox."""


def cannot_confine(why: str, where: str = "verifier `package`") -> Problem:
    """Return E0742 for code that would read a model's text, or would be that text, without a sandbox."""
    needed = "run on Linux 5.13 or newer with Landlock"
    return problem(
        "E0742",
        f"the processes that check answers cannot be confined: {why}",
        where=where,
        help=f"{needed}: programs that a model wrote are not run without"
        if where == PROGRAMS
        else f"{needed}, or let the scorer evaluate what models write all the same: --without-sandbox",
    )


START_SECONDS = 120.0
"""A worker that has not loaded its packages by then is taken for broken."""
START_ATTEMPTS = 3
WALL_FACTOR, GRACE_SECONDS = 3.0, 2.0
LIMIT_SECONDS = 2.0
"""Processor time after which the kernel ends what ignores its own limit, beyond that limit."""
_PIPE_BYTES = 2**16
_KILLED_STATUSES = (-signal.SIGKILL, -signal.SIGTERM)
"""The exit codes of a worker that an operator killed, or a system short of memory. No work exits so by itself."""

Item = TypeVar("Item")
Reply = TypeVar("Reply")


def wall_seconds(seconds: float) -> float:
    """Return the wall seconds for work of `seconds` of processor time, enough on a busy machine."""
    return WALL_FACTOR * (seconds + LIMIT_SECONDS) + GRACE_SECONDS


class WorkerDied(Exception):
    """The end of a worker before its answer, or after an answer of too many bytes.

    With `late` its wall time was over; otherwise `status` is its exit status. With `lost` another process ended it, which
    says nothing about its work.
    """

    def __init__(self, late: bool = False, status: int = 0) -> None:
        super().__init__()
        self.late, self.status = late, status
        self.lost = status in _KILLED_STATUSES


class Worker:
    """A started script with an empty environment, which answers each line with a line."""

    def __init__(self, script: Path, *arguments: str, longest: int) -> None:
        """Start the script; an answer of more than `longest` bytes counts as the worker's end."""
        threads = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
        # With `-P` neither the script's folder nor the working folder is on its import path.
        self.process = Child(
            [sys.executable, "-P", str(script), *arguments],
            empty_environment(os.environ, PYTHONPATH=python_path(), PYTHONHASHSEED="0", **threads),
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            bufsize=0,
        )
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self._writes, self._reads = self.process.stdin.fileno(), self.process.stdout.fileno()
        os.set_blocking(self._writes, False)
        self._buffer, self._longest = b"", longest

    def ask(self, message: object, seconds: float) -> dict[str, Any]:
        """Return the reply to a message. Raises WorkerDied and Undecodable.

        Args:
            message: a JSON value.
            seconds: wall seconds.
        """
        return self.ask_line(encoded(message), seconds)

    def ask_line(self, line: bytes, seconds: float) -> dict[str, Any]:
        """Return the reply to a line, as `ask` does.

        Args:
            line: a line of JSON; an empty line only waits for a reply.
            seconds: wall seconds.
        """
        deadline = time.monotonic() + seconds
        rest = memoryview(line)
        try:
            while rest:
                _wait(self._writes, select.POLLOUT, deadline)
                rest = rest[os.write(self._writes, rest) :]
            while b"\n" not in self._buffer:
                _wait(self._reads, select.POLLIN, deadline)
                chunk = os.read(self._reads, _PIPE_BYTES)
                if not chunk:
                    raise WorkerDied(status=self.kill())
                self._buffer += chunk
                if len(self._buffer) > self._longest:
                    raise WorkerDied
        except OSError:
            raise WorkerDied(status=self.kill()) from None
        reply_line, _, self._buffer = self._buffer.partition(b"\n")
        reply = decoded(reply_line, self._longest)
        if not isinstance(reply, dict):
            raise Undecodable("it is no record")
        return reply

    def is_idle(self) -> bool:
        """Return whether it waits for a line, and has said nothing unasked."""
        return not self._buffer and not _ready(self._reads, select.POLLIN, 0.0)

    def kill(self) -> int:
        """End the process now, reap it, and return its exit status, or the status with which it has already ended."""
        return self.process.end()


def _wait(pipe: int, event: int, deadline: float) -> None:
    if not _ready(pipe, event, max(0.0, deadline - time.monotonic())):
        raise WorkerDied(late=True)


def _ready(pipe: int, event: int, seconds: float) -> bool:
    # `select` takes no descriptor beyond 1,024.
    poll = select.poll()
    poll.register(pipe, event)
    return bool(poll.poll(seconds * 1000))


class WorkerPool:
    """Up to `size` workers of a script, started when they are needed and replaced when they end.

    Works from any thread, inside daemonic processes and after a fork (a fork starts its own workers). No worker outlives
    this object or its process.
    """

    def __init__(
        self,
        size: int,
        script: Path,
        *arguments: str,
        longest: int,
        task: str,
        where: str,
        confined: str,
        help: str,
        settings: bytes = b"",
    ) -> None:
        """Describe the workers; `settings` is a worker's first line, to which it replies that it is ready, or what it lacks.

        The other arguments are texts for problems: the `task` of a worker, `where` in the spec, the code that must be
        `confined`, and what would `help`.
        """
        self._size, self._script, self._arguments, self._longest = max(1, size), script, arguments, longest
        self._settings, self._task, self._where, self._confined = settings, task, where, confined
        self._help, self.started = help, 0
        self._start_empty()

    def _start_empty(self) -> None:
        """Begin without workers, in this process or in a fork of a process that has workers."""
        self._owner, self._lock, self._ending = os.getpid(), threading.Lock(), False
        self._workers: list[Worker] = []
        # The one that was used last is first: no further process starts while one is idle.
        self._idle: list[Worker] = []
        self._finalizer = weakref.finalize(self, _kill_all, self._workers, self._owner)

    def pids(self) -> list[int]:
        """Return the process ids of the live workers."""
        return [worker.process.pid for worker in self._workers]

    def map(
        self,
        ask: Callable[[Worker, Item], Reply],
        items: Sequence[Item],
        on_death: Callable[[WorkerDied], Reply],
    ) -> list[Reply]:
        """Return the result of `ask` for each item, in order; `on_death` gives the result if an item's worker died.

        An item whose worker another process ended is asked once more, but never after a time-out. Of several exceptions the
        first in order is raised, and all workers end.

        Raises E0741 if no worker can be started, and E0742 if none can be confined.
        """

        def answer(item: Item) -> Reply:
            for attempt in range(2):
                try:
                    with self.lease() as worker:
                        return ask(worker, item)
                except WorkerDied as gone:
                    if attempt or self._ending or not gone.lost:
                        return on_death(gone)
            raise AssertionError

        self.forget_foreign_workers()
        with self._lock, ThreadPoolExecutor(self._size) as threads:
            self._ending = False
            try:
                return list(threads.map(answer, items))
            except BaseException:
                # Nobody waits for what the others still do.
                self._ending = True
                threads.shutdown(wait=False, cancel_futures=True)
                self.close()
                raise

    @contextmanager
    def lease(self) -> Iterator[Worker]:
        """Lend a worker for the block alone; if the block raises, end the worker."""
        worker = self._take()
        try:
            yield worker
        except BaseException:
            self.end(worker)
            raise
        if worker in self._workers:
            self._idle.append(worker)

    def end(self, worker: Worker) -> None:
        """End a worker."""
        if worker in self._workers:
            self._workers.remove(worker)
        worker.kill()

    def close(self) -> None:
        """End all workers; the next call starts new workers, and a call in progress sees that its worker died."""
        self.forget_foreign_workers()
        while self._idle:
            self.end(self._idle.pop())
        for worker in list(self._workers):
            worker.process.kill()

    def forget_foreign_workers(self) -> None:
        """Forget the workers in a forked copy of the process: they belong to the original."""
        if self._owner != os.getpid():
            self._finalizer.detach()
            self._start_empty()

    def _take(self) -> Worker:
        """Return an idle or new worker that has replied to its settings. Raises E0741 and E0742."""
        while self._idle:
            worker = self._idle.pop()
            if worker.is_idle():
                return worker
            self.end(worker)
        why = ""
        for _ in range(START_ATTEMPTS):
            worker = Worker(self._script, *self._arguments, longest=self._longest)
            self._workers.append(worker)
            self.started += 1
            try:
                reply = worker.ask_line(self._settings, START_SECONDS)
            except (WorkerDied, Undecodable) as failure:
                self.end(worker)
                late = isinstance(failure, WorkerDied) and failure.late
                why = f"it did not load in {START_SECONDS:g} s" if late else "it ended while loading"
                if self._ending:
                    break
                continue
            except BaseException:
                self.end(worker)
                raise
            if reply.get("ready") is True:
                return worker
            self.end(worker)
            if "lacking" in reply:
                raise cannot_confine(str(reply["lacking"]), self._confined)
            raise self._not_started(str(reply.get("why", "")))
        raise self._not_started(f"{why}, {START_ATTEMPTS} times")

    def _not_started(self, why: str) -> Problem:
        message = f"no process that {self._task} could be started: {why}"
        return problem("E0741", message, where=self._where, help=self._help)


def _kill_all(workers: list[Worker], owner: int) -> None:
    if os.getpid() == owner:
        while workers:
            workers.pop().kill()
