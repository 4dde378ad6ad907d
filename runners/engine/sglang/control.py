"""Tell running servers what to do, all of them at once, and learn which refused or were lost."""

from __future__ import annotations

import asyncio
import ssl
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from types import TracebackType
from typing import Any, Self

import httpx

from runners.engine.sglang.loop import Loop
from runners.engine.sglang.server import Address
from runners.engine.sglang.silence import Ear, Hung, Lost, listen


class Refused(Exception):
    """A refusal: a server did not do what it was asked."""


class Lines:
    """Connections to some servers, for one message after another.

    Each message goes to all servers at the same time, so many servers take as long as the slowest of them. A server that
    hung is not asked again.
    """

    def __init__(self, servers: Sequence[Address]) -> None:
        self.servers = tuple(servers)
        self._loop = Loop()
        # Each client would read the system's certificates anew, which takes longer than a message; and one client for all
        # looks through every connection at each message.
        tls = ssl.create_default_context()
        self._clients = [
            httpx.AsyncClient(
                base_url=server.url, headers=server.headers, trust_env=False, timeout=None, verify=tls
            )
            for server in self.servers
        ]
        self._hung: dict[int, Hung] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, fault: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._loop.run(self._close())
        self._loop.close()

    def ask(
        self, path: str, messages: Mapping[str, Any] | Sequence[Mapping[str, Any]], reads: int = 0
    ) -> None:
        """Send a message to all servers, or one of several to each, and wait until all have answered.

        `reads` are the bytes of files that each server reads before it answers. Raises `Hung` for all servers that neither
        answer nor say that they work, else `Lost`, else `Refused`.
        """
        each = [messages] * len(self.servers) if isinstance(messages, Mapping) else messages
        faults = [fault for fault in self._loop.run(self._ask_all(path, each, reads)) if fault is not None]
        if faults:
            raise choose_failure(faults)

    def tell(self, path: str, message: Mapping[str, Any]) -> None:
        """Send a message to all servers whatever becomes of it: to tidy up after what failed before."""
        with suppress(Lost, Refused):
            self.ask(path, message)

    async def _ask_all(
        self, path: str, messages: Sequence[Mapping[str, Any]], reads: int
    ) -> list[Exception | None]:
        asked = [self._ask(number, path, message, reads) for number, message in enumerate(messages)]
        return list(await asyncio.gather(*asked))

    async def _ask(self, number: int, path: str, message: Mapping[str, Any], reads: int) -> Exception | None:
        """Return what is wrong with a server's answer, if anything."""
        if number in self._hung:
            return self._hung[number]
        try:
            reply = await self._post(number, path, message, reads)
        except httpx.TransportError as fault:
            return Lost(str(fault))
        except Hung as fault:
            self._hung[number] = fault
            return fault
        answer: Any = reply.json() if "json" in reply.headers.get("content-type", "") else {}
        if reply.status_code != 200 or (isinstance(answer, dict) and answer.get("success") is False):
            return Refused(f"{path} answered {reply.status_code}: {reply.text[:300]}")
        return None

    async def _post(self, number: int, path: str, message: Mapping[str, Any], reads: int) -> httpx.Response:
        listening = asyncio.create_task(listen(Ear(self.servers[number], reads)))
        posting = asyncio.create_task(self._clients[number].post(path, json=message))
        try:
            await asyncio.wait((listening, posting), return_when=asyncio.FIRST_COMPLETED)
            if not posting.done():
                # Raises `Hung`.
                listening.result()
            return await posting
        finally:
            for task in (listening, posting):
                task.cancel()
            await asyncio.gather(listening, posting, return_exceptions=True)

    async def _close(self) -> None:
        await asyncio.gather(*(client.aclose() for client in self._clients))


@contextmanager
def update_session(lines: Lines) -> Iterator[None]:
    """Open a weight update on all servers, and close it whatever happens.

    A server refuses the next update while one is open, by whichever way it comes. One that a trainer left open when it was
    killed is closed first.
    """
    try:
        try:
            lines.ask("/begin_weight_update", {})
        except Refused:
            lines.tell("/end_weight_update", {})
            lines.ask("/begin_weight_update", {})
        yield
    except BaseException:
        lines.tell("/end_weight_update", {})
        raise
    lines.ask("/end_weight_update", {})


def choose_failure(faults: Sequence[BaseException]) -> BaseException:
    """Return the failure to report of several: silence first, of all servers that hang; then a lost server; else any."""
    hung = [fault for fault in faults if isinstance(fault, Hung)]
    if hung:
        return Hung(*(server for fault in hung for server in fault.servers))
    return next((fault for fault in faults if isinstance(fault, Lost)), faults[0])


def call_all(calls: Sequence[Callable[[], None]]) -> None:
    """Make calls that may wait for each other, each in a thread, and let all of them end.

    Raises the `choose_failure` of their failures.
    """
    failures: list[BaseException] = []

    def guarded(call: Callable[[], None]) -> None:
        try:
            call()
        except BaseException as fault:
            failures.append(fault)

    threads = [threading.Thread(target=guarded, args=(call,), daemon=True) for call in calls]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failures:
        raise choose_failure(failures)
