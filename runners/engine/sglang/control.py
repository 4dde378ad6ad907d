"""Send commands to running servers, to all of them at once."""

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
    """Return a client that waits for as long as an answer takes: a server that computes sends nothing meanwhile."""
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
    """Return a server's answer. Raises ProcessDied if it does not answer, E0824 if it refuses."""
    try:
        reply = await client.post(path, content=orjson.dumps(message), headers=_JSON)
    except httpx.TransportError as fault:
        raise explain_loss(address, f"{type(fault).__name__} {fault}".rstrip()) from fault
    if reply.status_code >= 500:
        raise explain_loss(address, f"status {reply.status_code}")
    answer: Any = orjson.loads(reply.content) if "json" in reply.headers.get("content-type", "") else {}
    if reply.status_code != 200 or (isinstance(answer, dict) and answer.get("success") is False):
        raise explain_refusal(reply)
    return answer


def explain_loss(address: Address, why: str) -> ProcessDied:
    """Return the end of a server as a diagnostic, with the end of its log."""
    return explain_death(f"the SGLang server at {address.url}", why, address.log)


def explain_refusal(reply: httpx.Response) -> Problem:
    """Return E0824, with the server's answer to a request that it refuses."""
    return problem(
        "E0824",
        f"the SGLang server refused a request (status {reply.status_code}): {reply.text[:300]}",
        where=str(reply.request.url),
        help="its log says more; `reodsl doctor` shows the version of SGLang, and `make sglang` installs the tested one",
    )


class ServerGroupClient:
    """Connections to a group of servers, for one message after another.

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
        """Send a message to all servers, or a message to each; call `meanwhile`, and wait until all have answered.

        Raises as `ask`.
        """
        replies = [messages] * len(self.servers) if isinstance(messages, Mapping) else messages
        self._loop.run(self._ask_all(path, replies), meanwhile)

    async def _ask_all(self, path: str, messages: Sequence[Mapping[str, Any]]) -> None:
        async with asyncio.TaskGroup() as group:
            for client, server, message in zip(self._clients, self.servers, messages, strict=True):
                group.create_task(ask(client, server, message, path))

    async def _close(self) -> None:
        tasks = asyncio.all_tasks() - {asyncio.current_task()}
        for task in tasks:
            # A thread may still wait for it, which nobody waits for any more.
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await asyncio.gather(*(client.aclose() for client in self._clients))


@contextmanager
def update_session(lines: ServerGroupClient) -> Iterator[None]:
    """Open a weight update on all servers, and close it. A failed update stays open: its servers are ended."""
    lines.ask("/begin_weight_update", {})
    yield
    lines.ask("/end_weight_update", {})


def call_all(
    calls: Sequence[Callable[[], None]],
    meanwhile: Callable[[], None] = lambda: None,
    patience: float | None = None,
) -> None:
    """Run calls that may wait for each other, each in a thread; call `meanwhile`, and wait for all of them.

    Of several failures the end of a process is raised, because the others follow from it.

    Args:
        calls: The calls.
        meanwhile: What this thread does meanwhile.
        patience: Seconds after `meanwhile` until a call that goes on is abandoned; None for no limit.

    Raises:
        RuntimeError: A call was abandoned, and none has failed.
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
