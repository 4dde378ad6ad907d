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

from reodsl.diagnostics import problem
from runners.engine.remote import Loop
from runners.engine.sglang.server import Address
from runners.machine.process import ProcessDied, explain_death

_JSON = {"content-type": "application/json"}


def connect(address: Address, at_once: int = 1) -> httpx.AsyncClient:
    """Return an HTTP client for a server.

    The client has no timeout, because a server sends nothing until an answer is ready, however long that takes.

    Args:
        address: The server's URL and key.
        at_once: The most connections to the server.
    """
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
    """Send a message to a server, and return the JSON value of its answer.

    Args:
        client: A client of `connect`.
        address: The server, for messages of errors.
        message: The JSON object to send.
        path: The path of the request.

    Raises:
        ProcessDied: The connection broke, or the status is 500 or above.
        Problem: E0824 if the server refuses the request.
    """
    try:
        reply = await client.post(path, content=orjson.dumps(message), headers=_JSON)
    except httpx.TransportError as fault:
        raise explain_loss(address, f"{type(fault).__name__} {fault}".rstrip()) from fault
    if reply.status_code >= 500:
        raise explain_loss(address, f"status {reply.status_code}")
    answer: Any = orjson.loads(reply.content) if "json" in reply.headers.get("content-type", "") else {}
    if reply.status_code != 200 or (isinstance(answer, dict) and answer.get("success") is False):
        raise problem(
            "E0824",
            f"the SGLang server refused a request (status {reply.status_code}): {reply.text[:300]}",
            where=str(reply.request.url),
            help="read its log; `reodsl doctor` shows the version of SGLang, and `make sglang` installs the tested version",
        )
    return answer


def explain_loss(address: Address, reason: str) -> ProcessDied:
    """Return the error of a server that died, with the reason and the last lines of the server's log."""
    return explain_death(f"the SGLang server at {address.url}", reason, address.log)


class ServerGroupClient:
    """Connections to a group of servers, for one message after another.

    Each message goes to all servers at the same time, so many servers take as long as the slowest of them.
    """

    def __init__(self, servers: Sequence[Address]) -> None:
        """Prepare an HTTP client for each server.

        A single client for all servers would be slow: it searches all of its connections for each message.
        """
        self.servers = tuple(servers)
        self._loop = Loop()
        self._clients = [connect(server) for server in self.servers]

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, fault: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Cancel all requests and close the connections, also after an exception of the `with` block."""
        self._loop.run(self._close())
        self._loop.close()

    def ask(
        self,
        path: str,
        messages: Mapping[str, Any] | Sequence[Mapping[str, Any]],
        meanwhile: Callable[[], None] = lambda: None,
    ) -> None:
        """Send messages to all servers at once, and wait until all have answered.

        Args:
            path: The path of the requests.
            messages: A message for all servers, or a message for each server in their order.
            meanwhile: Called while the servers work.

        Raises:
            Problem: E0824 if a server refuses its message; ProcessDied if a server died.
        """
        requests = [messages] * len(self.servers) if isinstance(messages, Mapping) else messages
        self._loop.run(self._ask_all(path, requests), meanwhile)

    async def _ask_all(self, path: str, messages: Sequence[Mapping[str, Any]]) -> None:
        """Send message i to server i, for all servers at once; the first failure cancels the other requests."""
        async with asyncio.TaskGroup() as group:
            for client, server, message in zip(self._clients, self.servers, messages, strict=True):
                group.create_task(ask(client, server, message, path))

    async def _close(self) -> None:
        """Cancel all requests, and close the connections."""
        tasks = asyncio.all_tasks() - {asyncio.current_task()}
        for task in tasks:
            # An abandoned thread of `call_all` may still wait for the task.
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await asyncio.gather(*(client.aclose() for client in self._clients))


@contextmanager
def update_session(servers: ServerGroupClient) -> Iterator[None]:
    """Begin a weight update on all servers, and end the update after the `with` block.

    If the block raises an exception, the update stays open, and the caller has to end the servers.
    """
    servers.ask("/begin_weight_update", {})
    yield
    servers.ask("/end_weight_update", {})


def call_all(
    calls: Sequence[Callable[[], None]],
    meanwhile: Callable[[], None] = lambda: None,
    patience: float | None = None,
) -> None:
    """Run each function in a thread of its own, and wait until all have returned.

    The threads are needed because the functions may wait for each other. If functions raise exceptions, a ProcessDied
    among them is raised, because the death of a process causes the other exceptions; otherwise the first is raised.

    Args:
        calls: The functions.
        meanwhile: Called in this thread while the functions run.
        patience: Seconds after `meanwhile` until a function that still runs is abandoned; None for no limit.

    Raises:
        RuntimeError: A function was abandoned, and no function has failed.
    """
    failures: list[BaseException] = []

    def guarded(call: Callable[[], None]) -> None:
        """Call a function, and add its exception to `failures`."""
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
        failures.append(RuntimeError(f"no answer came within {patience:g} seconds"))
    if failures:
        raise next((fault for fault in failures if isinstance(fault, ProcessDied)), failures[0])
