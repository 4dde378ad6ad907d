"""A pool of worker processes that check answers, killed at a deadline and started when needed."""

from __future__ import annotations

import os
import selectors
import threading
import time
import weakref
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field

from reodsl.diagnostics import Problem, problem
from runners.sandbox.refusal import cannot_confine
from runners.verify.answer import Answer, Unsettled, Verdict
from runners.verify.process import (
    OUTSIDE,
    Checked,
    Message,
    Ready,
    Unready,
    WorkerProcess,
    request_line,
)

START_SECONDS = 120.0
"""A worker that has not loaded its packages by then is taken for broken."""
START_ATTEMPTS = 3
WALL_FACTOR = 3.0
GRACE_SECONDS = 2.0
"""A check stops itself when its processor time is spent, so that a busy machine changes no verdict. The kill, by
the clock, comes at three times that and two seconds."""
_WRONG: dict[Unsettled, Verdict] = {
    "timeout": Verdict(False, "timeout"),
    "failed": Verdict(False, "failed"),
}


def wall_seconds(seconds: float) -> float:
    """The longest an answer with `seconds` of processor time can keep a worker, by the clock."""
    return WALL_FACTOR * seconds + GRACE_SECONDS


@dataclass(slots=True)
class _Batch:
    """The requests that wait with their numbers, the verdicts so far, and the numbers of those that were lost once."""

    verdicts: list[Verdict | None]
    waiting: deque[tuple[int, bytes]] = field(default_factory=deque)
    lost: set[int] = field(default_factory=set)


class WorkerPool:
    """Up to `workers` processes of one kind of check, each process with `memory_mib` of address space.

    They are confined (`runners.sandbox`); with `confined` false they check answers also where that cannot be.

    An answer has `seconds` of processor time, and `wall_seconds(seconds)` by the clock before its worker is killed. What
    a worker had when somebody else ended it, or the clock did, is asked of another one once: neither says anything of
    the answer.

    Works from any thread, inside daemonic processes and after a fork (a forked copy starts its own workers).
    No worker is started before the first check, and none outlives this object or its process.
    """

    def __init__(
        self, kind: str, workers: int, seconds: float, memory_mib: int, confined: bool = True
    ) -> None:
        self._kind = kind
        self._confined = confined
        self._workers = max(1, workers)
        self._seconds = seconds
        self._memory_mib = memory_mib
        self._lock = threading.Lock()
        self._alive: list[WorkerProcess] = []
        self._owner = os.getpid()
        self._failed_starts = 0
        self.started = 0
        self._finalizer = weakref.finalize(self, _kill_all, self._alive, self._owner)

    def check(self, answers: Sequence[Answer]) -> list[Verdict]:
        """The verdict of each answer, in order; statuses `checked`, `timeout` and `failed`.

        Raises a Problem when workers cannot be started at all (E0741) or cannot be confined (E0742).
        """
        self._forget_foreign()
        with self._lock:
            batch = _Batch([None] * len(answers))
            for item, answer in enumerate(answers):
                line = request_line(answer.gold, answer.text, answer.meta)
                if line is None:
                    batch.verdicts[item] = _WRONG["failed"]
                else:
                    batch.waiting.append((item, line))
            try:
                self._drain(batch)
            except BaseException:
                # An interrupted exchange leaves answers in the pipes: those workers are of no more use.
                _kill_all(self._alive, self._owner)
                raise
            return [verdict if verdict is not None else _WRONG["failed"] for verdict in batch.verdicts]

    def close(self) -> None:
        """Kill every worker; the next check starts new ones."""
        self._forget_foreign()
        with self._lock:
            _kill_all(self._alive, self._owner)

    def pids(self) -> list[int]:
        """The process ids of the live workers."""
        return [worker.pid for worker in self._alive]

    def _drain(self, batch: _Batch) -> None:
        """Feed idle workers and read answers until nothing waits and nobody is busy."""
        self._failed_starts = 0
        with selectors.DefaultSelector() as selector:
            for worker in self._alive:
                selector.register(worker, selectors.EVENT_READ, worker)
            while batch.waiting or any(worker.busy is not None for worker in self._alive):
                self._feed(batch.waiting, selector)
                nearest = min(worker.deadline for worker in self._alive)
                timeout = max(0.0, min(nearest - time.monotonic(), START_SECONDS))
                for key, _ in selector.select(timeout):
                    self._listen(key.data, selector, batch)
                self._end_late(selector, batch)

    def _listen(self, worker: WorkerProcess, selector: selectors.BaseSelector, batch: _Batch) -> None:
        """Take in what a worker says: that it is ready, a verdict, or nothing more because it has ended."""
        messages = worker.receive()
        if messages is None:
            if not worker.ready:
                self._failed_start("it ended while loading")
            if self._remove(worker, selector) in OUTSIDE:
                self._lose(worker, "failed", batch)
            else:
                self._finish(worker, _WRONG["failed"], batch)
            return
        for message in messages:
            sane = self._hear(worker, message, batch)
            if not sane:
                # It says what no worker says: whoever speaks there is not to be asked again.
                self._finish(worker, _WRONG["failed"], batch)
            if not sane or (isinstance(message, Checked) and message.retire):
                self._remove(worker, selector)
                return

    def _hear(self, worker: WorkerProcess, message: Message, batch: _Batch) -> bool:
        """Act on a message; False for one that makes no sense now."""
        if isinstance(message, Unready) and not worker.ready:
            raise (cannot_confine(message.why) if message.lacking else _cannot_start(self._kind, message.why))
        if isinstance(message, Ready) and not worker.ready:
            worker.ready, worker.deadline = True, float("inf")
            return True
        if not isinstance(message, Checked) or worker.busy is None:
            return False
        if message.outcome == "lost":
            self._lose(worker, "failed", batch)
        elif message.outcome == "checked":
            self._finish(worker, Verdict(message.correct, "checked"), batch)
        else:
            self._finish(worker, _WRONG[message.outcome], batch)
        return True

    def _end_late(self, selector: selectors.BaseSelector, batch: _Batch) -> None:
        """Kill the workers whose deadline has passed."""
        now = time.monotonic()
        for worker in [late for late in self._alive if late.deadline <= now]:
            if not worker.ready:
                self._failed_start(f"it did not load in {START_SECONDS:g} s")
            self._remove(worker, selector)
            self._lose(worker, "timeout", batch)

    def _feed(self, waiting: deque[tuple[int, bytes]], selector: selectors.BaseSelector) -> None:
        """Give each idle worker the next answer, and start workers while answers outnumber them."""
        for worker in list(self._alive):
            if waiting and worker.ready and worker.busy is None:
                item, line = waiting[0]
                if worker.send(line, item, wall_seconds(self._seconds)):
                    waiting.popleft()
                else:
                    self._remove(worker, selector)
        loading = sum(not worker.ready for worker in self._alive)
        while len(self._alive) < self._workers and loading < len(waiting):
            worker = WorkerProcess(self._kind, self._seconds, self._memory_mib, self._confined)
            worker.deadline = time.monotonic() + START_SECONDS
            self._alive.append(worker)
            selector.register(worker, selectors.EVENT_READ, worker)
            self.started += 1
            loading += 1

    def _lose(self, worker: WorkerProcess, outcome: Unsettled, batch: _Batch) -> None:
        """Ask again what a worker had that was ended before it said anything, or take the outcome the second time."""
        if worker.busy is None or worker.busy in batch.lost:
            self._finish(worker, _WRONG[outcome], batch)
        else:
            batch.lost.add(worker.busy)
            batch.waiting.appendleft((worker.busy, worker.line))
            worker.busy, worker.deadline = None, float("inf")

    def _finish(self, worker: WorkerProcess, verdict: Verdict, batch: _Batch) -> None:
        """Write down what became of the answer a worker had, if it had one."""
        if worker.busy is not None:
            batch.verdicts[worker.busy] = verdict
        worker.busy, worker.deadline = None, float("inf")

    def _remove(self, worker: WorkerProcess, selector: selectors.BaseSelector) -> int:
        """Let a worker go; its exit status."""
        selector.unregister(worker)
        self._alive.remove(worker)
        return worker.kill()

    def _failed_start(self, why: str) -> None:
        self._failed_starts += 1
        if self._failed_starts >= START_ATTEMPTS:
            raise _cannot_start(
                self._kind, f"{why}, {self._failed_starts} times, with {self._memory_mib} MiB of memory"
            )

    def _forget_foreign(self) -> None:
        """In a forked copy of the process the workers belong to the original: leave them alone."""
        if self._owner != os.getpid():
            self._lock = threading.Lock()
            self._finalizer.detach()
            self._alive = []
            self._owner = os.getpid()
            self._finalizer = weakref.finalize(self, _kill_all, self._alive, self._owner)


def _kill_all(workers: list[WorkerProcess], owner: int) -> None:
    if os.getpid() == owner:
        while workers:
            workers.pop().kill()


def _cannot_start(kind: str, why: str) -> Problem:
    package = {"math": "math-verify", "reasoning_gym": "reasoning-gym"}[kind]
    return problem(
        "E0741",
        f"no process that checks answers could be started: {why}",
        where=f"verifier `{kind}`",
        help=f"install what it needs: `pip install {package}`"
        if "ModuleNotFoundError" in why
        else "the machine, or a `ulimit` on it, may give its processes too little memory; else its package is broken: "
        f"`pip install --force-reinstall {package}`",
    )
