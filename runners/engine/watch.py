"""Let a caller look around while an engine works, and end the work by an exception."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

_LOOK: ContextVar[Callable[[], None] | None] = ContextVar("look", default=None)


def look() -> None:
    """Call the caller's own look between two steps of an engine's work, in its thread; raise what that raises."""
    callers_look = _LOOK.get()
    if callers_look is not None:
        callers_look()


@contextmanager
def looking(callers_look: Callable[[], None]) -> Iterator[None]:
    """Let engines call `callers_look`, which has to be quick, until the block ends."""
    token = _LOOK.set(callers_look)
    try:
        yield
    finally:
        _LOOK.reset(token)
