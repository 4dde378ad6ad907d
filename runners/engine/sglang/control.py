"""Tell running servers what to do, all of them at once."""

from __future__ import annotations

import asyncio
import ssl
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import TracebackType
from typing import Any, Self

import httpx
import orjson

from reodsl.diagnostics import Problem, problem
from runners.engine.remote import Loop
from runners.engine.sglang.server import Address
from runners.machine.process import ProcessDied, explain_death

_JSON = {"content-type": "application/json"}


def connect(address: Address, at_once: int = 1) -> httpx.AsyncClient:
    """Return a client that waits for as long as an answer takes: a server that computes says nothing meanwhile."""
    return httpx.AsyncClient(
        base_url=address.url,
        headers=address.headers,
        trust_env=False,
        timeout=None,
        # Each client would read the system's certificates anew, which takes longer than a message.
        verify=_TLS,
        limits=httpx.Limits(max_connections=at_once, max_keepalive_connections=at_once),
    )


_TLS = ssl.create_default_context()


async def ask(
    client: httpx.AsyncClient, address: Address, message: Mapping[str, Any], path: str = "/generate"
) -> Any:
    """Return a server's answer. Raises ProcessDied where it does not answer, E0824 where it refuses."""
    try:
        reply = await client.post(path, content=orjson.dumps(message), headers=_JSON)
    except httpx.TransportError as fault:
        raise lost(address, f"{type(fault).__name__} {fault}".rstrip()) from fault
    if reply.status_code >= 500:
        raise lost(address, f"status {reply.status_code}")
    answer: Any = orjson.loads(reply.content) if "json" in reply.headers.get("content-type", "") else {}
    if reply.status_code != 200 or (isinstance(answer, dict) and answer.get("success") is False):
        raise explain_refusal(reply)
    return answer


def lost(address: Address, why: str) -> ProcessDied:
    """Return the end of a server, with that of its log."""
    return explain_death(f"the SGLang server at {address.url}", why, address.log)


def explain_refusal(reply: httpx.Response) -> Problem:
    """Return E0824, with what the server answers of a request that it does not take."""
    return problem(
        "E0824",
        f"the SGLang server refused a request (status {reply.status_code}): {reply.text[:300]}",
        where=str(reply.request.url),
        help="its log says more; `reodsl doctor` shows the version of SGLang, and `make sglang` installs the tested one",
    )


class Lines:
    """Connections to some servers, for one message after another.

    Each message goes to all servers at the same time, so many servers take as long as the slowest of them.
    """

    def __init__(self, servers: Sequence[Address]) -> None:
        self.servers = tuple(servers)
        self._loop = Loop()
        # One client for all looks through every connection at each message.
        self._clients = [connect(server) for server in self.servers]

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
        meanwhile: Callable[[], None] = lambda: None,
    ) -> None:
        """Send a message to all servers, or one of several to each, do `meanwhile`, and wait until all have answered.

        Raises what `ask` does.
        """
        each = [messages] * len(self.servers) if isinstance(messages, Mapping) else messages
        self._loop.run(self._ask_all(path, each), meanwhile)

    async def _ask_all(self, path: str, messages: Sequence[Mapping[str, Any]]) -> None:
        async with asyncio.TaskGroup() as group:
            for client, server, message in zip(self._clients, self.servers, messages, strict=True):
                group.create_task(ask(client, server, message, path))

    async def _close(self) -> None:
        left = asyncio.all_tasks() - {asyncio.current_task()}
        for task in left:
            # A thread may still wait for it, which nobody waits for any more.
            task.cancel()
        await asyncio.gather(*left, return_exceptions=True)
        await asyncio.gather(*(client.aclose() for client in self._clients))


@contextmanager
def update_session(lines: Lines) -> Iterator[None]:
    """Open a weight update on all servers, and close it. One that fails stays open: its servers end."""
    lines.ask("/begin_weight_update", {})
    yield
    lines.ask("/end_weight_update", {})


def call_all(
    calls: Sequence[Callable[[], None]],
    meanwhile: Callable[[], None] = lambda: None,
    patience: float | None = None,
) -> None:
    """Make calls that may wait for each other, each in a thread, do `meanwhile` here, and let all of them end.

    Of several failures the end of a process is raised: the others follow from it. A call that goes on for `patience` seconds
    after `meanwhile` is left to itself. Raises RuntimeError if none has failed then.
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
    until = None if patience is None else time.monotonic() + patience
    for thread in threads:
        thread.join(None if until is None else max(0.0, until - time.monotonic()))
    if any(thread.is_alive() for thread in threads):
        failures.append(RuntimeError(f"there was no end within {patience:g} seconds"))
    if failures:
        raise next((fault for fault in failures if isinstance(fault, ProcessDied)), failures[0])
