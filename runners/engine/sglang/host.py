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
        """Starts it, again if need be, and waits until it is healthy, with the settings' model as version 0."""
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
        """The last lines of its log."""
        ...

    def note(self, words: str) -> None:
        """Adds a line to its log."""
        ...

    def kill(self) -> None:
        """Ends the server at once, if it is ours: what state it is in is not known. It may be started again."""
        ...

    def stop(self) -> None:
        """Ends it, if it is ours to end."""
        ...
