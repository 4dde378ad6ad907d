"""Control of running servers: an address and a message in; nothing out, or that the server refused or is lost."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Mapping, Sequence
from types import TracebackType
from typing import Any, Self

import httpx

from runners.engine.sglang.loop import Loop
from runners.engine.sglang.server import Address
from runners.engine.sglang.silence import Ear, Hung, Lost, listen


class Refused(Exception):
    """A server did not do what it was told."""


class Line:
    """A connection to a server for one message after another; a server that hung is not waited for again."""

    def __init__(self, address: Address) -> None:
        self._address = address
        self._loop = Loop()
        self._client = httpx.AsyncClient(
            base_url=address.url, headers=address.headers, trust_env=False, timeout=None
        )
        self._hung: Hung | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, fault: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._loop.run(self._client.aclose())
        self._loop.close()

    def ask(self, path: str, message: Mapping[str, Any], reads: int = 0) -> None:
        """Tells the server to do something, and waits until it has; `reads` are bytes of files that this takes.

        Raises `Refused`, `Lost`, and `Hung` where it neither answers nor says that it works.
        """
        if self._hung is not None:
            raise self._hung
        try:
            reply = self._loop.run(self._posted(path, message, reads))
        except httpx.TransportError as fault:
            raise Lost(str(fault)) from fault
        except Hung as fault:
            self._hung = fault
            raise
        told: Any = {}
        if "json" in reply.headers.get("content-type", ""):
            told = reply.json()
        if reply.status_code != 200 or (isinstance(told, dict) and told.get("success") is False):
            raise Refused(f"{path} answered {reply.status_code}: {reply.text[:300]}")

    async def _posted(self, path: str, message: Mapping[str, Any], reads: int) -> httpx.Response:
        async with asyncio.TaskGroup() as group:
            listening = group.create_task(listen(Ear(self._address, reads)))
            reply = await self._client.post(path, json=message)
            listening.cancel()
        return reply


def asking(line: Line, path: str, message: Mapping[str, Any]) -> Callable[[], None]:
    """`Line.ask`, for `together`."""
    return lambda: line.ask(path, message)


def together(calls: Sequence[Callable[[], None]]) -> None:
    """Does calls that may wait for each other, each in a thread, to their ends.

    Raises one failure of theirs: that servers hang, all of them, or that one is lost, before what may come of it.
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
    hung = [fault for fault in failures if isinstance(fault, Hung)]
    if hung:
        raise Hung(*(server for fault in hung for server in fault.servers))
    if failures:
        raise next((fault for fault in failures if isinstance(fault, Lost)), failures[0])
