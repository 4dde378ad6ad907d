"""The interface to whoever keeps a server: start it, ask how it is, end it."""

from __future__ import annotations

from typing import Protocol

from runners.engine.sglang.server import Address


class Host(Protocol):
    """What keeps a server: a process of ours, an actor on another node, or whoever runs at a given address."""

    def begin(self) -> None:
        """Lets it come up, without waiting for it, where that can be done; `start` waits."""
        ...

    def start(self) -> Address:
        """Start it, again if need be, and wait until it is healthy, with the settings' model as version 0."""
        ...

    @property
    def alive(self) -> bool:
        """Whether it runs."""
        ...

    @property
    def near(self) -> bool:
        """Whether it is on this machine, so that memory can be shared."""
        ...

    def said(self) -> list[str]:
        """Return the last lines of its log."""
        ...

    def note(self, words: str) -> None:
        """Add a line to its log."""
        ...

    def kill(self) -> None:
        """End the server at once, if it is ours, whatever state it is in. It may be started again."""
        ...

    def stop(self) -> None:
        """End it, if it is ours to end."""
        ...
