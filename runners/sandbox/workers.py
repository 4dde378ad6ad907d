"""Pools of confined worker processes, which answer a line of JSON with a line of JSON before a deadline."""

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
"""The name of the verifier that runs programs of models, which never runs without a sandbox."""


def cannot_confine(why: str, where: str = "verifier `package`") -> Problem:
    """Return E0742, the error of a machine that cannot confine a process for untrusted text or code.

    The remedy names the option `--without-sandbox`, except for programs of models (`PROGRAMS`), which always need a
    sandbox.

    Args:
        why: What the machine lacks, from `kernel.lacking`.
        where: The part of the spec that needs the process.
    """
    requirement = "run on Linux 5.13 or newer with Landlock"
    return problem(
        "E0742",
        f"the processes that check answers cannot be confined: {why}",
        where=where,
        help=f"{requirement}: programs that a model wrote are not run without a sandbox"
        if where == PROGRAMS
        else f"{requirement}, or let the scorer evaluate texts of models without a sandbox: --without-sandbox",
    )


START_SECONDS = 120.0
"""Seconds within which a worker has to load its packages."""
START_ATTEMPTS = 3
WALL_FACTOR, GRACE_SECONDS = 3.0, 2.0
LIMIT_SECONDS = 2.0
"""Seconds of processor time after its limit at which the kernel ends work that ignores the limit."""
_PIPE_BYTES = 2**16
_KILLED_STATUSES = (-signal.SIGKILL, -signal.SIGTERM)
"""The exit codes of a worker that an operator or a system short of memory killed. No work ends with these by itself."""

Item = TypeVar("Item")
Reply = TypeVar("Reply")


def wall_seconds(seconds: float) -> float:
    """Return the limit in seconds of wall-clock time for work with a limit of `seconds` of processor time.

    It is several times longer, because a busy machine gives a process only a part of its processor's time.
    """
    return WALL_FACTOR * (seconds + LIMIT_SECONDS) + GRACE_SECONDS


class WorkerDied(Exception):
    """The error of a worker that ended before its reply, or whose reply was too long.

    `late` is true if the worker exceeded its wall-clock time; otherwise `status` is its exit status. `lost` is true if
    another process killed the worker: its work need not be the reason, and may be tried again.
    """

    def __init__(self, late: bool = False, status: int = 0) -> None:
        """Set the reason of the worker's end.

        Args:
            late: True if the worker exceeded its wall-clock time.
            status: The exit status of the worker, negative for a signal; `lost` follows from it.
        """
        super().__init__()
        self.late, self.status = late, status
        self.lost = status in _KILLED_STATUSES


class Worker:
    """A worker process: a Python script with an empty environment, which answers each line with a line."""

    def __init__(self, script: Path, *arguments: str, longest: int) -> None:
        """Start a worker.

        Args:
            script: The script.
            *arguments: The script's command line.
            longest: The most bytes of a reply.
        """
        threads = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
        # `-P` keeps the script's folder and the working folder off the import path.
        self.process = Child(
            [sys.executable, "-P", str(script), *arguments],
            empty_environment(os.environ, PYTHONPATH=python_path(), PYTHONHASHSEED="0", **threads),
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            bufsize=0,
        )
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self._stdin, self._stdout = self.process.stdin.fileno(), self.process.stdout.fileno()
        os.set_blocking(self._stdin, False)
        self._buffer, self._longest = b"", longest

    def ask(self, message: object, seconds: float) -> dict[str, Any]:
        """Send a message to the worker, and return its reply.

        Args:
            message: A JSON value.
            seconds: The wall-clock time for the reply.

        Raises:
            WorkerDied: The worker ended, or did not reply in time.
            Undecodable: The reply is not a JSON object within bounds.
        """
        return self.ask_line(encoded(message), seconds)

    def ask_line(self, line: bytes, seconds: float) -> dict[str, Any]:
        """Send a line to the worker, and return its reply.

        Args:
            line: A line of JSON; an empty line only waits for a reply.
            seconds: The wall-clock time for the reply.

        Raises:
            WorkerDied: The worker ended, or did not reply in time.
            Undecodable: The reply is not a JSON object within bounds.
        """
        deadline = time.monotonic() + seconds
        unsent = memoryview(line)
        try:
            while unsent:
                _wait(self._stdin, select.POLLOUT, deadline)
                unsent = unsent[os.write(self._stdin, unsent) :]
            while b"\n" not in self._buffer:
                _wait(self._stdout, select.POLLIN, deadline)
                chunk = os.read(self._stdout, _PIPE_BYTES)
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
            raise Undecodable("it is not a record")
        return reply

    def is_idle(self) -> bool:
        """Return whether the worker waits for a line and has written nothing without a request."""
        return not self._buffer and not _is_ready(self._stdout, select.POLLIN, 0.0)

    def kill(self) -> int:
        """End the process now if it still runs, and return its exit status."""
        return self.process.end()


def _wait(pipe: int, event: int, deadline: float) -> None:
    """Wait until a pipe is ready to read (POLLIN) or to write (POLLOUT).

    Args:
        pipe: The file descriptor of the pipe.
        event: `select.POLLIN` or `select.POLLOUT`.
        deadline: The end of the wait, by `time.monotonic`.

    Raises:
        WorkerDied: The deadline has passed.
    """
    if not _is_ready(pipe, event, max(0.0, deadline - time.monotonic())):
        raise WorkerDied(late=True)


def _is_ready(pipe: int, event: int, seconds: float) -> bool:
    """Return whether a pipe is ready for an event (POLLIN or POLLOUT) within `seconds`.

    `poll` is used because `select` cannot watch a descriptor above 1,023.
    """
    poll = select.poll()
    poll.register(pipe, event)
    return bool(poll.poll(seconds * 1000))


class WorkerPool:
    """A pool of workers of a script, which start when they are needed and are replaced when they end.

    Threads, daemonic processes and forks of this process may use a pool. A fork starts its own workers. No worker
    outlives the pool or the process that started it.
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
        """Prepare a pool without starting workers.

        Args:
            size: The most workers.
            script: The script of all workers.
            *arguments: The script's command line.
            longest: The most bytes of a reply.
            task: What a worker does, for messages, such as "checks answers".
            where: The part of the spec that needs the workers, for E0741.
            confined: The part of the spec whose code must be confined, for E0742, such as "verifier `package`".
            help: The remedy if no worker starts, for E0741.
            settings: The first line that each worker gets. The worker replies that it is ready, or why it is not.
        """
        self._size, self._script, self._arguments, self._longest = max(1, size), script, arguments, longest
        self._settings, self._task, self._where, self._confined = settings, task, where, confined
        self._help, self.started = help, 0
        self._start_empty()

    def _start_empty(self) -> None:
        """Set the state of a pool without workers; this process becomes the owner, which ends the workers of the pool."""
        self._owner, self._lock, self._ending = os.getpid(), threading.Lock(), False
        self._workers: list[Worker] = []
        # A stack: the worker that was used last is used next.
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
        """Return the result for each item, in order, computed by several workers at once.

        Args:
            ask: Asks a worker for the result of an item. If it raises an exception other than WorkerDied, all workers end
                and the exception is raised.
            items: The items.
            on_death: Returns the result of an item whose worker died. If another process killed the worker (`lost`), a
                new worker gets the item first, and `on_death` is called if that dies too.

        Raises:
            Problem: E0741 if no worker starts, E0742 if none can be confined.
        """

        def answer(item: Item) -> Reply:
            """Return the result of an item from a worker, after at most two attempts."""
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
                # The other threads see that their workers die, and do not try again.
                self._ending = True
                threads.shutdown(wait=False, cancel_futures=True)
                self.close()
                raise

    @contextmanager
    def lease(self) -> Iterator[Worker]:
        """Lend a worker to a `with` block.

        After the block the worker is idle again. If the block raises an exception, the worker is ended.
        """
        worker = self._take_worker()
        try:
            yield worker
        except BaseException:
            self.end(worker)
            raise
        if worker in self._workers:
            self._idle.append(worker)

    def end(self, worker: Worker) -> None:
        """Remove a worker from the pool, and end its process."""
        if worker in self._workers:
            self._workers.remove(worker)
        worker.kill()

    def close(self) -> None:
        """End all workers. A call that is in progress raises WorkerDied, and a later call starts new workers."""
        self.forget_foreign_workers()
        while self._idle:
            self.end(self._idle.pop())
        for worker in list(self._workers):
            worker.process.kill()

    def forget_foreign_workers(self) -> None:
        """Empty the pool, without ending workers, if this process is a fork of the process that started them.

        The workers belong to the process that forked, and it goes on using them.
        """
        if self._owner != os.getpid():
            self._finalizer.detach()
            self._start_empty()

    def _take_worker(self) -> Worker:
        """Return an idle worker, or a new worker that has replied that it is ready.

        Raises:
            Problem: E0741 if no worker starts after `START_ATTEMPTS` attempts, E0742 if it cannot be confined.
        """
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
                is_late = isinstance(failure, WorkerDied) and failure.late
                why = f"it did not load in {START_SECONDS:g} s" if is_late else "it ended while loading"
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
        """Return E0741, the error of workers that cannot start because of `why`."""
        message = f"no process that {self._task} could be started: {why}"
        return problem("E0741", message, where=self._where, help=self._help)


def _kill_all(workers: list[Worker], owner: int) -> None:
    """Kill all workers if this process has started them; a fork of that process kills none.

    Args:
        workers: The workers.
        owner: The process id of the process that started them.
    """
    if os.getpid() == owner:
        while workers:
            workers.pop().kill()
