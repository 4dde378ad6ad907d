"""Make the batches of later steps while this one trains, in another thread or in turn with training."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextvars import copy_context
from typing import Generic, TypeVar

from runners.engine.watch import look, looking

Prepared = TypeVar("Prepared")
LOOK = 1.0
"""Seconds between two looks at whether there is still a reason to wait."""


class Over(Exception):
    """Nobody waits any longer for what is being made."""


class Beside(Generic[Prepared]):
    """Batches by step, each made once, in the order in which they are asked for, from the one of the step before.

    An engine has one set of weights at a time: new ones may come when nothing is being made (`wait`).
    """

    def __init__(
        self, make: Callable[[int, Prepared | None], Prepared], prepared: Mapping[int, Prepared], beside: bool
    ) -> None:
        """`make` gets a step and what was made for the one before; `prepared` is what is there already.

        Without `beside` batches are made when they are asked for, before `begin` returns.
        """
        self._make = make
        self._steps: dict[int, Future[Prepared]] = {}
        self._threads = ThreadPoolExecutor(1, "rollouts") if beside else None
        self._over = threading.Event()
        for number, one in prepared.items():
            self._steps[number] = Future()
            self._steps[number].set_result(one)

    def begin(self, numbers: Iterable[int]) -> None:
        """Makes the batches of these steps that are neither there nor being made."""
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

    def take(self, number: int) -> Prepared:
        """The batch of a step, which stays until `forget`. Raises what making it raised."""
        future = self._steps[number]
        while not wait([future], LOOK).done:
            look()
        return future.result()

    def wait(self) -> None:
        """Until nothing is being made."""
        for number in list(self._steps):
            self.take(number)

    def forget(self, before: int) -> None:
        """Lets go of the batches of steps before one."""
        for number in [each for each in self._steps if each < before]:
            del self._steps[number]

    def close(self) -> None:
        """Ends what is being made, at the engine's next look."""
        self._over.set()
        if self._threads is not None:
            self._threads.shutdown(cancel_futures=True)

    def _watched(self, number: int, before: Future[Prepared] | None) -> Prepared:
        with looking(self._look):
            return self._make(number, before.result() if before is not None else None)

    def _look(self) -> None:
        if self._over.is_set():
            raise Over
