"""Run coroutines on an event loop in another thread, while the caller goes on looking around."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import wait
from typing import Any, TypeVar

from runners.engine.watch import look

LOOK = 1.0
"""Seconds between two looks at whether there is still a reason to wait."""

Result = TypeVar("Result")


class Loop:
    """An event loop in a thread of its own: a notebook's or a caller's may be running already."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()

    def run(
        self, coroutine: Coroutine[Any, Any, Result], meanwhile: Callable[[], None] = lambda: None
    ) -> Result:
        """Do `meanwhile` here and then wait for a coroutine; an interruption, or what `look` raises, cancels it."""
        future = asyncio.run_coroutine_threadsafe(coroutine, self._loop)
        try:
            meanwhile()
            while not wait([future], LOOK).done:
                look()
            return future.result()
        except ExceptionGroup as several:
            raise first(several) from None
        except BaseException:
            future.cancel()
            raise

    def call(self, function: Callable[..., None], *arguments: Any) -> None:
        """Call a function in the loop's thread, soon."""
        self._loop.call_soon_threadsafe(function, *arguments)

    def close(self) -> None:
        """End the thread, and give the loop's files back."""
        if self._loop.is_closed():
            return
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(5.0)
        if not self._thread.is_alive():
            self._loop.close()


def first(several: BaseException) -> BaseException:
    """Return one of the exceptions in a group of groups."""
    while isinstance(several, BaseExceptionGroup):
        several = several.exceptions[0]
    return several
