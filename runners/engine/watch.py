"""What an engine calls while it works, so that a caller that has no reason to wait any longer can end it by an exception."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

_LOOK: ContextVar[Callable[[], None] | None] = ContextVar("look", default=None)


def look() -> None:
    """Called between two steps of an engine's work, in the caller's thread; raises what the caller's own look raises."""
    own = _LOOK.get()
    if own is not None:
        own()


@contextmanager
def looking(own: Callable[[], None]) -> Iterator[None]:
    """Engines call `own` until the block ends; it has to be quick."""
    token = _LOOK.set(own)
    try:
        yield
    finally:
        _LOOK.reset(token)
