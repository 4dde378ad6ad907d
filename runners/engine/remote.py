"""Ask a model behind an address over HTTP, within bounds of time and bytes, and never show its key."""

from __future__ import annotations

import asyncio
import json
import os
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import wait
from dataclasses import dataclass
from typing import Any, TypeVar

import httpx

from reodsl.ir.model import ServedModel
from runners.engine.protocol import check_cancelled
from runners.sandbox.untrusted import Undecodable, decoded, shown

POLL_SECONDS = 1.0
"""Seconds between two checks whether a reply has still to be waited for."""
MAX_REPLY_BYTES = 1 << 20
"""Bytes of a reply that are read, unless a request allows more."""
MAX_WAIT_SECONDS = 300.0
"""The longest wait that a server may ask for before the next request."""
FIRST_PAUSE_SECONDS, MAX_PAUSE_SECONDS = 1.0, 60.0
"""Seconds between a failure and the next request: twice as many after each."""
_RETRY_STATUSES = frozenset({408, 409, 425, 429, *range(500, 600)})
_REQUEST_STATUSES = frozenset({400, 413, 422})
_PATH = "/completions"

Result = TypeVar("Result")


class Loop:
    """An event loop in a thread of its own, because a notebook or a caller may run its own loop already."""

    def __init__(self) -> None:
        """Start the event loop in a daemon thread."""
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()

    def run(
        self,
        coroutine: Coroutine[Any, Any, Result],
        meanwhile: Callable[[], None] = lambda: None,
        check: Callable[[], None] = lambda: None,
    ) -> Result:
        """Run a coroutine on the loop's thread, and return its result.

        An exception of `meanwhile`, `check` or `check_cancelled`, or an interruption of this thread, cancels the
        coroutine. If the coroutine raises a group of exceptions, the first of them is raised instead.

        Args:
            coroutine: The work.
            meanwhile: Called in the caller's thread after the coroutine has started.
            check: Called in the caller's thread every `POLL_SECONDS` while the coroutine runs.
        """
        future = asyncio.run_coroutine_threadsafe(coroutine, self._loop)
        try:
            meanwhile()
            while not wait([future], POLL_SECONDS).done:
                check_cancelled()
                check()
            return future.result()
        except ExceptionGroup as several:
            raise _first_leaf(several) from None
        except BaseException:
            future.cancel()
            raise

    def close(self) -> None:
        """Stop the loop, wait at most 5 seconds for its thread, and close the files of the loop."""
        if self._loop.is_closed():
            return
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(5.0)
        if not self._thread.is_alive():
            self._loop.close()


def _first_leaf(error: BaseException) -> BaseException:
    """Return the first exception of a group that is not a group itself, also from nested groups.

    An exception that is no group is returned unchanged.
    """
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error


@dataclass(slots=True)
class RefusedReply(Exception):
    """A failure of a server to reply, with its reason in words and a remedy (`help`)."""

    words: str
    help: str
    may_retry: bool = False
    """True if a later request may succeed."""
    wait: float = 0.0
    """The seconds that the server asks to wait before the next request."""
    blames_request: bool = False
    """True if the reason may be the request, not the server."""


class Remote:
    """A model at an address, asked over HTTP.

    A reply may take `source.seconds` of wall-clock time, from the first byte sent to the last byte received. The key is
    sent and never shown: a server may repeat its key in any spelling, so no words of a server with a key are shown.
    """

    def __init__(self, source: ServedModel, key: str) -> None:
        """Prepare a client for the address of `source`; `key` is the secret of the server, or empty."""
        self._source, self._key = source, key
        self._base = source.address.rstrip("/").removesuffix(_PATH)
        # A small compressed reply may unpack to more than the memory.
        headers = {"Accept-Encoding": "identity"} | ({"Authorization": f"Bearer {key}"} if key else {})
        self._client = httpx.AsyncClient(
            headers=headers,
            timeout=source.seconds,
            # Only a server on this machine has an `http://` address, and is asked without a proxy.
            trust_env=not source.address.startswith("http://"),
            limits=httpx.Limits(max_connections=source.at_once, max_keepalive_connections=source.at_once),
        )

    async def post(self, request: dict[str, Any], largest: int = MAX_REPLY_BYTES) -> bytes:
        """Return the server's reply to a request for a completion, with `source.retries` retries.

        Args:
            request: The JSON object to send.
            largest: The most bytes of the reply.

        Raises:
            RefusedReply: The last failure, or the first that a retry would not mend.
        """
        pause = FIRST_PAUSE_SECONDS
        for retries in range(self._source.retries, -1, -1):
            try:
                return await self._post(request, largest)
            except RefusedReply as refused:
                if not refused.may_retry or not retries:
                    raise
                await asyncio.sleep(max(refused.wait, pause))
                pause = min(2 * pause, MAX_PAUSE_SECONDS)
        raise AssertionError

    async def models(self) -> dict[str, dict[str, Any]]:
        """Return the server's descriptions of its models, by model name; empty if the server has no readable list."""
        try:
            _, _, body = await self._send("GET", "/models", None, MAX_REPLY_BYTES)
            return {str(model["id"]): dict(model) for model in decoded(body, MAX_REPLY_BYTES)["data"]}
        except (httpx.HTTPError, httpx.InvalidURL, OSError, ValueError, LookupError, TypeError, Undecodable):
            # The first request for a completion reports a broken server.
            return {}

    async def close(self) -> None:
        """Close the connections to the server."""
        await self._client.aclose()

    def shown(self, body: bytes | str) -> str:
        """Return the first words of a server's reply for a message, or a placeholder if the server was sent a key."""
        if self._key:
            return "… (its words may hold the key)"
        return shown(body.decode("utf-8", "replace") if isinstance(body, bytes) else body)

    async def _post(self, request: dict[str, Any], largest: int) -> bytes:
        """Send a request once, and return the body of the reply.

        Args:
            request: The JSON object to send.
            largest: The most bytes of the reply.

        Raises:
            RefusedReply: There is no connection, no reply in time, or a status other than 200.
        """
        try:
            status, headers, body = await self._send("POST", _PATH, request, largest)
        except (httpx.TimeoutException, TimeoutError):
            seconds = self._source.seconds
            raise RefusedReply(
                f"no reply came within {seconds:g} s",
                f"allow more time, `seconds: {2 * seconds:g} seconds`, or send fewer requests at once, `at_once`",
                may_retry=True,
            ) from None
        except httpx.ConnectError:
            raise RefusedReply(
                "no server answers at this address",
                "start the server, or correct the address, including its `/v1`",
                may_retry=True,
            ) from None
        except (httpx.HTTPError, httpx.InvalidURL, ValueError) as fault:
            raise RefusedReply(
                f"the connection broke ({type(fault).__name__})", "read the server's log", may_retry=True
            ) from None
        if status != 200:
            raise self._refusal(status, headers, body)
        return body

    async def _send(
        self, method: str, path: str, request: dict[str, Any] | None, largest: int
    ) -> tuple[int, httpx.Headers, bytes]:
        """Send an HTTP request, and return the status, headers and body of the reply.

        The time of the reply is bounded here, because httpx bounds only the silence between two bytes.

        Args:
            method: `GET` or `POST`.
            path: The path after the address, such as `/models`.
            request: The JSON object to send, or None.
            largest: The most bytes of the body.

        Raises:
            ValueError: The body is compressed, or larger than `largest`.
            TimeoutError: The reply took longer than `source.seconds`.
            httpx.HTTPError: The connection failed.
        """
        # Escapes of ASCII would lengthen the request, whose bytes servers bound.
        content = json.dumps(request, ensure_ascii=False).encode("utf-8", "replace") if request else None
        headers = {"Content-Type": "application/json"} if request else {}
        async with (
            asyncio.timeout(self._source.seconds),
            self._client.stream(method, f"{self._base}{path}", content=content, headers=headers) as response,
        ):
            if response.headers.get("content-encoding", "identity").strip().lower() != "identity":
                raise ValueError("the reply is compressed, although `identity` was requested")
            body = bytearray()
            async for chunk in response.aiter_raw():
                body += chunk
                if len(body) > largest:
                    raise ValueError("too long")
            return response.status_code, response.headers, bytes(body)

    def _refusal(self, status: int, headers: httpx.Headers, body: bytes) -> RefusedReply:
        """Return the failure for an HTTP status other than 200, with a remedy for this kind of status.

        The failure says whether a retry may help, after which wait (`Retry-After`, in seconds), and whether the request
        itself may be the reason.
        """
        says = f"HTTP {status}: {self.shown(_error_message(body))}".rstrip(": ")
        after = headers.get("retry-after", "")
        wait = min(float(after), MAX_WAIT_SECONDS) if after.isascii() and after.isdigit() else 0.0
        if status in (401, 403):
            with_key = "refuses the key" if self._key else "asks for a key"
            return RefusedReply(
                f"it {with_key} ({says})",
                'name the environment variable that has the key, `key: "ITS_KEY"`, and check that the key is valid',
            )
        if status == 404:
            return RefusedReply(
                f"it has no model `{self._source.model}`, or no `{_PATH}` under this address ({says})",
                "write the model's name as the server has it, and the address up to `/v1`",
            )
        if 300 <= status < 400:
            return RefusedReply(f"it redirects to another address ({says})", "write that address")
        if status == 429:
            return RefusedReply(
                f"it limits the rate of requests, or your quota is used up ({says})",
                "send fewer requests at once, `at_once: 2`, or run the same command later, which continues",
                may_retry=True,
                wait=wait,
            )
        if status in _RETRY_STATUSES:
            return RefusedReply(
                f"it fails ({says})",
                "read the server's log; the same command continues",
                may_retry=True,
                wait=wait,
            )
        return RefusedReply(
            f"it refuses the request ({says})",
            "correct what the server names; for a model with a short context write a smaller `max_tokens`",
            blames_request=status in _REQUEST_STATUSES,
        )


def _error_message(body: bytes) -> str:
    """Return the message of a server's error: `error.message` of OpenAI's format, or the body as text."""
    try:
        reply = decoded(body, MAX_REPLY_BYTES)
        fault = reply.get("error", reply)
        words = fault.get("message", fault) if isinstance(fault, dict) else fault
    except (Undecodable, AttributeError):
        return body.decode("utf-8", "replace")
    return words if isinstance(words, str) else json.dumps(words)


def read_key(variable: str | None) -> str:
    """Return the secret key of a server from an environment variable.

    Args:
        variable: The name of the environment variable; None for a server without a key, which gives "".

    Raises:
        RefusedReply: The variable is not set, or its value is not printable ASCII.
    """
    if variable is None:
        return ""
    key = os.environ.get(variable, "").strip()
    if not key or not key.isascii() or not key.isprintable():
        raise RefusedReply(
            f"`${variable}` " + ("is not a key" if key else "is not set where the task runs"),
            f"set it before the run, `export {variable}=…`; on a cluster, set it where the processes start",
        )
    return key
