"""Work on whatever has come so far, in a thread of its own, while more is made."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Generic, TypeVar

Item = TypeVar("Item")


class Backlog(Generic[Item]):
    """Things that a thread works on as soon as it is free: all that wait by then together.

    When things come decides which are worked on together, and nothing else may depend on that.
    """

    def __init__(
        self,
        work: Callable[[list[Item]], None],
        name: str,
        failed: Callable[[BaseException], None] = lambda _: None,
    ) -> None:
        """`name` is the thread's. `failed` hears what the work raised, once `add` raises it too."""
        self._work, self._failed = work, failed
        # One thread for as long as there is anything to do: some systems end a process with the thread that started it.
        self._thread = ThreadPoolExecutor(1, name)
        self._change = threading.Condition()
        self._waiting: list[Item] = []
        self._working = False
        self._fault: BaseException | None = None

    def add(self, item: Item) -> None:
        """Take a thing, from any thread. Raises what the work raised before: nothing more is made in vain then."""
        with self._change:
            if self._fault is not None:
                raise self._fault
            self._waiting.append(item)
            if self._working:
                return
            self._working = True
        self._thread.submit(self._work_off)

    def settle(self) -> None:
        """Wait until nothing waits. Raises what the work raised."""
        with self._change:
            self._change.wait_for(lambda: not self._working)
            if self._fault is not None:
                raise self._fault

    def finish(self) -> None:
        """End the thread once nothing waits, whatever the work raised."""
        self._thread.shutdown()

    def close(self) -> None:
        """End the thread after what it is at; what waits is dropped."""
        with self._change:
            self._waiting.clear()
        self._thread.shutdown()

    def _work_off(self) -> None:
        """In the thread: until nothing waits."""
        try:
            while items := self._taken():
                self._work(items)
        except BaseException as fault:
            with self._change:
                self._fault, self._working = fault, False
                self._change.notify_all()
            self._failed(fault)

    def _taken(self) -> list[Item]:
        with self._change:
            items, self._waiting = self._waiting, []
            if not items:
                self._working = False
                self._change.notify_all()
            return items
