"""Tell running servers what to do, all of them at once, and learn which refused or were lost."""

from __future__ import annotations

import asyncio
import math
import ssl
import threading
import time
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from concurrent.futures import wait
from contextlib import contextmanager, suppress
from types import TracebackType
from typing import Any, Self, TypeVar

import httpx

from runners.engine.protocol import look
from runners.engine.sglang.server import Address

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
    """The time at which something last came from a server."""

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
            return (await client.get(f"{address.url}/health_generate")).status_code < 500
    except httpx.TransportError:
        return False


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
        self,
        path: str,
        messages: Mapping[str, Any] | Sequence[Mapping[str, Any]],
        reads: int = 0,
        meanwhile: Callable[[], None] = lambda: None,
    ) -> None:
        """Send a message to all servers, or one of several to each, do `meanwhile`, and wait until all have answered.

        `reads` are the bytes of files that each server reads before it answers. Raises `Hung` for all servers that neither
        answer nor say that they work, else `Lost`, else `Refused`.
        """
        each = [messages] * len(self.servers) if isinstance(messages, Mapping) else messages
        answers = self._loop.run(self._ask_all(path, each, reads), meanwhile)
        faults = [fault for fault in answers if fault is not None]
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


def call_all(calls: Sequence[Callable[[], None]], meanwhile: Callable[[], None] = lambda: None) -> None:
    """Make calls that may wait for each other, each in a thread, do `meanwhile` here, and let all of them end.

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
    guarded(meanwhile)
    for thread in threads:
        thread.join()
    if failures:
        raise choose_failure(failures)
