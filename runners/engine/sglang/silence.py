"""Notice that a server hangs: it owes answers and sends nothing."""

from __future__ import annotations

import asyncio
import math
import time

import httpx

from runners.engine.sglang.server import Address

_SILENCE = 60.0
"""Seconds without an answer until a server is asked whether it still works: long responses take as long."""
_ASKED = 8
"""Times that it is asked. With the seconds below more than the 300 after which SGLang itself ends a server whose one
forward pass does not end, so that none is ended here that would have gone on. Times and no clock: a caller may keep the
event loop busy for long, and then nothing is heard.
"""
_ANSWER = 30.0
"""Seconds that it has to answer; SGLang's own answer, that nothing came from its scheduler, takes 20."""
_PAUSE = 10.0
_SLOW_DISK = 50e6
"""Bytes a second that a disk gives at least: while a server reads a model it says nothing."""


class Lost(Exception):
    """A server does not answer any more."""


class Hung(Lost):
    """Servers that may still run, and have to be ended."""

    def __init__(self, *servers: Address) -> None:
        super().__init__("it is silent, and does not say that it works")
        self.servers = servers

    def __reduce__(self) -> tuple[type[Hung], tuple[Address, ...]]:
        """Let it travel between processes with its servers."""
        return Hung, self.servers


class Ear:
    """When something last came from a server."""

    def __init__(self, address: Address, reads: int = 0) -> None:
        """Begin now; `reads` are the bytes of files that the server has to read."""
        self._address = address
        self._times = _ASKED + math.ceil(reads / _SLOW_DISK / (_ANSWER + _PAUSE))
        self._heard = time.monotonic()

    async def hear(self, _: httpx.Response) -> None:
        """Note that something came."""
        self._heard = time.monotonic()

    async def hangs(self) -> Address:
        """Return once the server was silent and was then asked so many times without an answer; else never."""
        unanswered = 0
        while unanswered < self._times:
            wait = self._heard + _SILENCE - time.monotonic()
            if wait > 0:
                unanswered = 0
                await asyncio.sleep(wait)
            elif await works(self._address):
                self._heard = time.monotonic()
            else:
                unanswered += 1
                await asyncio.sleep(_PAUSE)
        return self._address


async def listen(ear: Ear) -> None:
    """Watch until the server hangs. Raises `Hung`."""
    raise Hung(await ear.hangs())


async def works(address: Address) -> bool:
    """Return whether a server says that its scheduler goes round.

    `/health` may be set to answer for the HTTP process alone, which a GPU that hangs does not stop. `/health_generate`
    computes nothing where requests are open: the scheduler answers between two steps.
    """
    try:
        async with httpx.AsyncClient(headers=address.headers, trust_env=False, timeout=_ANSWER) as client:
            # A proxy before a server at a given address may not know this path; it answers.
            return (await client.get(f"{address.url}/health_generate")).status_code < 500
    except httpx.TransportError:
        return False
