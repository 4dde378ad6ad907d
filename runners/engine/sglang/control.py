"""Control of running servers: an address and a message in; nothing out, or that the server refused or is lost."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import httpx

from runners.engine.sglang.rounds import Lost
from runners.engine.sglang.server import Address

_PATIENCE = 600.0


class Refused(Exception):
    """A server did not do what it was told."""


def client(address: Address) -> httpx.Client:
    """A connection that waits as long as weights may take."""
    return httpx.Client(base_url=address.url, headers=address.headers, trust_env=False, timeout=_PATIENCE)


def ask(connection: httpx.Client, path: str, message: Mapping[str, Any]) -> None:
    """Tells a server to do something, and waits until it has. Raises `Refused`, `Lost`."""
    try:
        reply = connection.post(path, json=message)
    except httpx.TransportError as fault:
        raise Lost(str(fault)) from fault
    told: Any = {}
    if "json" in reply.headers.get("content-type", ""):
        told = reply.json()
    if reply.status_code != 200 or (isinstance(told, dict) and told.get("success") is False):
        raise Refused(f"{path} answered {reply.status_code}: {reply.text[:300]}")


def asking(connection: httpx.Client, path: str, message: Mapping[str, Any]) -> Callable[[], None]:
    """`ask`, for `together`."""
    return lambda: ask(connection, path, message)


def together(calls: Sequence[Callable[[], None]]) -> None:
    """Does calls that may wait for each other, each in a thread; raises the first failure."""
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
        raise failures[0]
