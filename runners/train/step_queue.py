"""Make the data of later steps while this one trains, in another thread or in turn with training."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextvars import copy_context
from typing import Generic, TypeVar

from runners.engine.watch import look, looking

Step = TypeVar("Step")
LOOK = 1.0
"""Seconds between two looks at whether there is still a reason to wait."""


class Over(Exception):
    """Nobody waits any longer for what is being made."""


class StepQueue(Generic[Step]):
    """Steps by number, each made once, in the order in which they are requested, from the one before.

    An engine has one set of weights at a time: new ones may come when nothing is being made (`drain`).
    """

    def __init__(
        self, make: Callable[[int, Step | None], Step], waiting: Mapping[int, Step], overlap: bool
    ) -> None:
        """`make` gets a number and the step before, if there is one; `waiting` are steps made by an earlier attempt.

        Without `overlap` steps are made before `request` returns.
        """
        self._make = make
        self._steps: dict[int, Future[Step]] = {}
        self._threads = ThreadPoolExecutor(1, "rollouts") if overlap else None
        self._over = threading.Event()
        for number, one in waiting.items():
            self._steps[number] = Future()
            self._steps[number].set_result(one)

    def request(self, numbers: Iterable[int]) -> None:
        """Make those of these steps that are neither made nor being made."""
        for number in numbers:
            if number in self._steps:
                continue
            before = self._steps.get(number - 1)
            if self._threads is not None:
                self._steps[number] = self._threads.submit(copy_context().run, self._watched, number, before)
                continue
            self._steps[number] = Future()
            self._steps[number].set_result(
                self._make(number, before.result() if before is not None else None)
            )

    def get(self, number: int) -> Step:
        """Return a step, which stays until `forget`. Raises what making it raised."""
        future = self._steps[number]
        while not wait([future], LOOK).done:
            look()
        return future.result()

    def drain(self) -> None:
        """Wait until nothing is being made."""
        for number in list(self._steps):
            self.get(number)

    def forget(self, before: int) -> None:
        """Let go of the steps before one."""
        for number in [each for each in self._steps if each < before]:
            del self._steps[number]

    def close(self) -> None:
        """End what is being made, at the engine's next look."""
        self._over.set()
        if self._threads is not None:
            self._threads.shutdown(cancel_futures=True)

    def _watched(self, number: int, before: Future[Step] | None) -> Step:
        with looking(self._look):
            return self._make(number, before.result() if before is not None else None)

    def _look(self) -> None:
        if self._over.is_set():
            raise Over
