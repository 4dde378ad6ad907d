"""Waiting for servers, and an end to it."""

from __future__ import annotations

import asyncio

import pytest

from runners.engine.protocol import cancellable
from runners.engine.remote import Loop


def test_whoever_waits_for_servers_can_end_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """The work is cancelled, and what the look raised comes out; without a look the wait is as long as the work."""
    monkeypatch.setattr("runners.engine.remote.POLL_SECONDS", 0.01)
    ended: list[str] = []

    async def answers() -> None:
        try:
            await asyncio.sleep(3600)
        finally:
            ended.append("cancelled")

    async def soon() -> None:
        await asyncio.sleep(0.05)

    def lost() -> None:
        raise ConnectionError("the others are gone")

    loop = Loop()
    with cancellable(lost), pytest.raises(ConnectionError, match="gone"):
        loop.run(answers())
    loop.run(soon())
    loop.close()
    assert ended == ["cancelled"]
