"""Silence of a server that owes answers: what comes from it in; that it hangs out."""

from __future__ import annotations

import asyncio
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


class Ear:
    """When something last came from a server."""

    def __init__(self, address: Address) -> None:
        self._address = address
        self._heard = time.monotonic()

    async def hear(self, _: httpx.Response) -> None:
        """Something came."""
        self._heard = time.monotonic()

    async def hangs(self) -> None:
        """Returns once the server was silent and was then asked so many times without an answer; else never."""
        unanswered = 0
        while unanswered < _ASKED:
            wait = self._heard + _SILENCE - time.monotonic()
            if wait > 0:
                unanswered = 0
                await asyncio.sleep(wait)
            elif await works(self._address):
                self._heard = time.monotonic()
            else:
                unanswered += 1
                await asyncio.sleep(_PAUSE)


async def works(address: Address) -> bool:
    """Whether a server says that its scheduler goes round.

    `/health` may be set to answer for the HTTP process alone, which a GPU that hangs does not stop. `/health_generate`
    computes nothing where requests are open: the scheduler answers between two steps.
    """
    try:
        async with httpx.AsyncClient(headers=address.headers, trust_env=False, timeout=_ANSWER) as client:
            # Whatever stands before a server at a given address may not know this path; it answers.
            return (await client.get(f"{address.url}/health_generate")).status_code < 500
    except httpx.TransportError:
        return False
