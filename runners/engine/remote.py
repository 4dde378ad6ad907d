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
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()

    def run(
        self,
        coroutine: Coroutine[Any, Any, Result],
        meanwhile: Callable[[], None] = lambda: None,
        check: Callable[[], None] = lambda: None,
    ) -> Result:
        """Do `meanwhile` here and then wait for a coroutine.

        An interruption, or what `check_cancelled` or `check` raises, cancels it.
        """
        future = asyncio.run_coroutine_threadsafe(coroutine, self._loop)
        try:
            meanwhile()
            while not wait([future], POLL_SECONDS).done:
                check_cancelled()
                check()
            return future.result()
        except ExceptionGroup as several:
            raise _first(several) from None
        except BaseException:
            future.cancel()
            raise

    def close(self) -> None:
        """End the thread, and give the loop's files back."""
        if self._loop.is_closed():
            return
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(5.0)
        if not self._thread.is_alive():
            self._loop.close()


def _first(several: BaseException) -> BaseException:
    while isinstance(several, BaseExceptionGroup):
        several = several.exceptions[0]
    return several


@dataclass(slots=True)
class RefusedReply(Exception):
    """A refusal to reply.

    `again`: a later request may succeed. `wait`: the server asks to wait so many seconds. `request`: the request may be
    the reason.
    """

    words: str
    help: str
    again: bool = False
    wait: float = 0.0
    request: bool = False


class Remote:
    """A model at an address. A reply has `source.seconds` by the clock, from the first byte sent to the last received.

    `key` is sent and never shown: a server that is sent one may say it in any spelling, so none of its words are shown.
    """

    def __init__(self, source: ServedModel, key: str) -> None:
        self._source, self._key = source, key
        self._base = source.address.rstrip("/").removesuffix(_PATH)
        # What is packed may take any memory to unpack.
        headers = {"Accept-Encoding": "identity"} | ({"Authorization": f"Bearer {key}"} if key else {})
        self._client = httpx.AsyncClient(
            headers=headers,
            timeout=source.seconds,
            # A server on this machine is behind no proxy.
            trust_env=not source.address.startswith("http://"),
            limits=httpx.Limits(max_connections=source.at_once, max_keepalive_connections=source.at_once),
        )

    async def post(self, request: dict[str, Any], largest: int = MAX_REPLY_BYTES) -> bytes:
        """Return the reply to a request, of at most `largest` bytes, and try again after failures that may pass.

        Raises RefusedReply.
        """
        pause = FIRST_PAUSE_SECONDS
        for retries in range(self._source.retries, -1, -1):
            try:
                return await self._post(request, largest)
            except RefusedReply as refused:
                if not refused.again or not retries:
                    raise
                await asyncio.sleep(max(refused.wait, pause))
                pause = min(2 * pause, MAX_PAUSE_SECONDS)
        raise AssertionError

    async def models(self) -> dict[str, dict[str, Any]]:
        """Return what the server says of its models, by name; nothing if it says nothing that can be read."""
        try:
            _, _, body = await self._send("GET", "/models", None, MAX_REPLY_BYTES)
            return {str(model["id"]): dict(model) for model in decoded(body, MAX_REPLY_BYTES)["data"]}
        except (httpx.HTTPError, httpx.InvalidURL, OSError, ValueError, LookupError, TypeError, Undecodable):
            # What is wrong with the server is told as it is asked.
            return {}

    async def close(self) -> None:
        """Close its connections."""
        await self._client.aclose()

    def shown(self, body: bytes | str) -> str:
        """Return the first words of what a server says, or a word in their place if it was sent a key."""
        if self._key:
            return "… (its words may hold the key)"
        return shown(body.decode("utf-8", "replace") if isinstance(body, bytes) else body)

    async def _post(self, request: dict[str, Any], largest: int) -> bytes:
        """Return the reply to a single request. Raises RefusedReply."""
        try:
            status, headers, body = await self._send("POST", _PATH, request, largest)
        except (httpx.TimeoutException, TimeoutError):
            seconds = self._source.seconds
            raise RefusedReply(
                f"no reply came within {seconds:g} s",
                f"allow more: `seconds: {2 * seconds:g} seconds`, or ask less at a time: `at_once`",
                again=True,
            ) from None
        except httpx.ConnectError:
            raise RefusedReply(
                "nothing answers there",
                "start the server, or write the address that it has, with its `/v1`",
                again=True,
            ) from None
        except (httpx.HTTPError, httpx.InvalidURL, ValueError) as fault:
            raise RefusedReply(
                f"the connection broke ({type(fault).__name__})",
                "see what the server says of itself",
                again=True,
            ) from None
        if status != 200:
            raise self._refusal(status, headers, body)
        return body

    async def _send(
        self, method: str, path: str, request: dict[str, Any] | None, largest: int
    ) -> tuple[int, httpx.Headers, bytes]:
        """Return status, headers and body, of bounded size and time; httpx only bounds the silence between two bytes."""
        # Not ASCII alone: servers bound the bytes of a request.
        content = json.dumps(request, ensure_ascii=False).encode("utf-8", "replace") if request else None
        headers = {"Content-Type": "application/json"} if request else {}
        async with (
            asyncio.timeout(self._source.seconds),
            self._client.stream(method, f"{self._base}{path}", content=content, headers=headers) as response,
        ):
            if response.headers.get("content-encoding", "identity").strip().lower() != "identity":
                raise ValueError("it is packed, though it was asked not to be")
            body = bytearray()
            async for chunk in response.aiter_raw():
                body += chunk
                if len(body) > largest:
                    raise ValueError("too long")
            return response.status_code, response.headers, bytes(body)

    def _refusal(self, status: int, headers: httpx.Headers, body: bytes) -> RefusedReply:
        """Return the reason and remedy of a status that is not 200."""
        says = f"HTTP {status}: {self.shown(_error_message(body))}".rstrip(": ")
        after = headers.get("retry-after", "")
        wait = min(float(after), MAX_WAIT_SECONDS) if after.isascii() and after.isdigit() else 0.0
        if status in (401, 403):
            with_key = "refuses the key" if self._key else "asks for a key"
            return RefusedReply(
                f"it {with_key} ({says})",
                'name the environment variable that has its key, `key: "ITS_KEY"`, and see that the key is valid',
            )
        if status == 404:
            return RefusedReply(
                f"it has no model `{self._source.model}`, or nothing at `{_PATH}` under this address ({says})",
                "write the model as its server calls it, and the address up to the `/v1`",
            )
        if 300 <= status < 400:
            return RefusedReply(f"it leads elsewhere ({says})", "write the address that it leads to")
        if status == 429:
            return RefusedReply(
                f"it is asked too often, or what you may spend there is used up ({says})",
                "ask less at a time, `at_once: 2`, or later: the same command goes on",
                again=True,
                wait=wait,
            )
        if status in _RETRY_STATUSES:
            return RefusedReply(
                f"it fails ({says})",
                "see what the server says of itself; the same command goes on",
                again=True,
                wait=wait,
            )
        return RefusedReply(
            f"it refuses the request ({says})",
            "mend what it names; for a model with a short context write a smaller `max_tokens`",
            request=status in _REQUEST_STATUSES,
        )


def _error_message(body: bytes) -> str:
    """Return a server's words about an error, as OpenAI's interface has them or as they are."""
    try:
        reply = decoded(body, MAX_REPLY_BYTES)
        fault = reply.get("error", reply)
        words = fault.get("message", fault) if isinstance(fault, dict) else fault
    except (Undecodable, AttributeError):
        return body.decode("utf-8", "replace")
    return words if isinstance(words, str) else json.dumps(words)


def read_key(variable: str | None) -> str:
    """Return the key in an environment variable; empty without a variable. Raises RefusedReply if it holds none."""
    if variable is None:
        return ""
    key = os.environ.get(variable, "").strip()
    if not key or not key.isascii() or not key.isprintable():
        raise RefusedReply(
            f"`${variable}` " + ("is not a key" if key else "is not set where the task runs"),
            f"set it before the run, `export {variable}=…`; on a cluster, where its processes start",
        )
    return key
