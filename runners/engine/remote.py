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

from reodsl.ir.model import Served
from runners.engine.protocol import look
from runners.sandbox.untrusted import Undecodable, decoded, shown

LOOK = 1.0
"""Seconds between two looks at whether there is still a reason to wait."""
LARGEST_REPLY = 1 << 20
"""Bytes of a reply that are read, unless a request allows more."""
LONGEST_WAIT = 300.0
"""Seconds that a server may ask to be left alone."""
FIRST_PAUSE, LONGEST_PAUSE = 1.0, 60.0
"""Seconds between a failure and the next request: twice as many after each."""
_LATER = frozenset({408, 409, 425, 429, *range(500, 600)})
_OF_THIS_REQUEST = frozenset({400, 413, 422})
_PATH = "/completions"

Result = TypeVar("Result")


class Loop:
    """An event loop in a thread of its own: a notebook's or a caller's may be running already."""

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

        An interruption, or what `look` or `check` raises, cancels it.
        """
        future = asyncio.run_coroutine_threadsafe(coroutine, self._loop)
        try:
            meanwhile()
            while not wait([future], LOOK).done:
                look()
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

    `again`: asking later may help. `wait`: the server names these seconds. `request`: the request may be the reason.
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

    def __init__(self, source: Served, key: str) -> None:
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

    async def post(self, request: dict[str, Any], largest: int = LARGEST_REPLY) -> bytes:
        """Return the reply to a request, of at most `largest` bytes, after at most the allowed failures that may pass.

        Raises RefusedReply.
        """
        pause = FIRST_PAUSE
        for left in range(self._source.retries, -1, -1):
            try:
                return await self._post(request, largest)
            except RefusedReply as refused:
                if not refused.again or not left:
                    raise
                await asyncio.sleep(max(refused.wait, pause))
                pause = min(2 * pause, LONGEST_PAUSE)
        raise AssertionError

    async def models(self) -> dict[str, dict[str, Any]]:
        """Return what the server says of its models, by name; nothing where it says nothing that can be read."""
        try:
            _, _, body = await self._send("GET", "/models", None, LARGEST_REPLY)
            return {str(each["id"]): dict(each) for each in decoded(body, LARGEST_REPLY)["data"]}
        except (httpx.HTTPError, httpx.InvalidURL, OSError, ValueError, LookupError, TypeError, Undecodable):
            # What is wrong with the server is told as it is asked.
            return {}

    async def close(self) -> None:
        """Let go of its connections."""
        await self._client.aclose()

    def shown(self, body: bytes | str) -> str:
        """Return the first words of what a server says, or a word in their place if it was sent a key."""
        if self._key:
            return "… (its words may hold the key)"
        return shown(body.decode("utf-8", "replace") if isinstance(body, bytes) else body)

    async def _post(self, request: dict[str, Any], largest: int) -> bytes:
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
        """Status, headers and body, of bounded size and time: httpx itself only bounds the silence between two bytes."""
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
        says = f"HTTP {status}: {self.shown(_words_of(body))}".rstrip(": ")
        after = headers.get("retry-after", "")
        wait = min(float(after), LONGEST_WAIT) if after.isascii() and after.isdigit() else 0.0
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
        if status in _LATER:
            return RefusedReply(
                f"it fails ({says})",
                "see what the server says of itself; the same command goes on",
                again=True,
                wait=wait,
            )
        return RefusedReply(
            f"it refuses the request ({says})",
            "mend what it names; for a model with a short context write a smaller `max_tokens`",
            request=status in _OF_THIS_REQUEST,
        )


def _words_of(body: bytes) -> str:
    """Return a server's words about an error, as OpenAI's interface has them or as they are."""
    try:
        said = decoded(body, LARGEST_REPLY)
        fault = said.get("error", said)
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
