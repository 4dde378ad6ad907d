"""Ask a model behind an address over HTTP, within bounds of time and bytes, and never show its key."""

from __future__ import annotations

import asyncio
import base64
import html
import json
import os
import re
import threading
import unicodedata
import urllib.parse
from collections.abc import Callable, Coroutine, Iterator, Sequence
from concurrent.futures import CancelledError, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, TypeVar, cast

import httpx

from runners.sandbox.untrusted import Undecodable, decoded, shown

LARGEST_REPLY = 1 << 20
"""Bytes of a reply that are read, unless a request allows more."""
LONGEST_WAIT = 300.0
"""Seconds that a server may ask to be left alone."""
FIRST_PAUSE, LONGEST_PAUSE = 1.0, 60.0
"""Seconds between a failure and the next request: twice as many after each."""
_LATER = frozenset({408, 409, 425, 429, *range(500, 600)})
_OF_THIS_REQUEST = frozenset({400, 413, 422})
_SPELT = 8
"""Letters and digits of a key that are not shown in a row."""
_ESCAPED = re.compile(r"\\u([0-9a-fA-F]{4})|\\x([0-9a-fA-F]{2})")

Item = TypeVar("Item")
Value = TypeVar("Value")


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
    """A model at an address, usable from many threads, for which one thread speaks.

    `key` is sent and never shown. A reply has `seconds` by the clock, from the first byte that is sent to the last one
    that is received.
    """

    def __init__(self, address: str, path: str, model: str, key: str, seconds: float, at_once: int) -> None:
        self._path, self._model, self._key, self._seconds = path, model, key, seconds
        self._base = address.rstrip("/").removesuffix(path)
        # A server on this machine is behind no proxy.
        here = address.startswith("http://")
        # What is packed may take any memory to unpack.
        headers = {"Accept-Encoding": "identity"} | ({"Authorization": f"Bearer {key}"} if key else {})
        self._client = httpx.AsyncClient(
            headers=headers,
            timeout=seconds,
            trust_env=not here,
            limits=httpx.Limits(max_connections=at_once, max_keepalive_connections=at_once),
        )
        self._spellings = frozenset(_spellings(key)) if key else frozenset()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()

    def post(self, request: dict[str, Any], largest: int = LARGEST_REPLY) -> bytes:
        """Return the reply to a request, of at most `largest` bytes. Raises Refused."""
        try:
            status, headers, body = self._wait(self._send("POST", self._path, request, largest))
        except (httpx.TimeoutException, TimeoutError):
            raise RefusedReply(
                f"no reply came within {self._seconds:g} s",
                f"allow more: `seconds: {2 * self._seconds:g} seconds`, or ask less at a time: `at_once`",
                again=True,
            ) from None
        except CancelledError:
            raise RefusedReply("the run ends", "give the same command once more to go on") from None
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

    def models(self) -> dict[str, dict[str, Any]]:
        """Return what the server says of its models, by name; nothing where it says nothing that can be read."""
        try:
            _, _, body = self._wait(self._send("GET", "/models"))
            return {str(each["id"]): dict(each) for each in decoded(body, LARGEST_REPLY)["data"]}
        except (
            httpx.HTTPError,
            httpx.InvalidURL,
            OSError,
            ValueError,
            LookupError,
            TypeError,
            Undecodable,
        ):
            # What is wrong with the server is told as it is asked.
            return {}

    def other_model(self) -> str | None:
        """Return the one model that the server has, where it says so and it is another: some answer to any name."""
        names = list(self.models())
        return self.shown(names[0]) if len(names) == 1 and names[0] != self._model else None

    def close(self) -> None:
        """Let go of its connections, and of who waits for one."""
        if not self._loop.is_closed():
            self._wait(self._end())
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join()
            self._loop.close()

    async def _end(self) -> None:
        others = asyncio.all_tasks() - {asyncio.current_task()}
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)
        await self._client.aclose()

    def _wait(self, work: Coroutine[Any, Any, Value]) -> Value:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()

    async def _send(
        self, method: str, path: str, request: dict[str, Any] | None = None, largest: int = LARGEST_REPLY
    ) -> tuple[int, httpx.Headers, bytes]:
        """Status, headers and body, of bounded size and time: httpx itself only bounds the silence between two bytes."""
        # Not ASCII alone: servers bound the bytes of a request.
        content = json.dumps(request, ensure_ascii=False).encode("utf-8", "replace") if request else None
        headers = {"Content-Type": "application/json"} if request else {}
        url = f"{self._base}{path}"
        async with (
            asyncio.timeout(self._seconds),
            self._client.stream(method, url, content=content, headers=headers) as response,
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
        if status in (401, 403):
            with_key = "refuses the key" if self._key else "asks for a key"
            return RefusedReply(
                f"it {with_key} ({says})",
                'name the environment variable that has its key, `key: "ITS_KEY"`, and see that the key is valid',
            )
        if status == 404:
            return RefusedReply(
                f"it has no model `{self._model}`, or nothing at `{self._path}` under this address ({says})",
                "write the model as its server calls it, and the address up to the `/v1`",
            )
        if 300 <= status < 400:
            return RefusedReply(f"it leads elsewhere ({says})", "write the address that it leads to")
        if status == 429:
            return RefusedReply(
                f"it is asked too often, or what you may spend there is used up ({says})",
                "ask less at a time, `at_once: 2`, or later: the same command goes on",
                again=True,
                wait=_seconds_of(headers.get("retry-after", "")),
            )
        if status in _LATER:
            return RefusedReply(
                f"it fails ({says})",
                "see what the server says of itself; the same command goes on",
                again=True,
                wait=_seconds_of(headers.get("retry-after", "")),
            )
        return RefusedReply(
            f"it refuses the request ({says})",
            "mend what it names; for a model with a short context write a smaller `max_tokens`",
            request=status in _OF_THIS_REQUEST,
        )

    def shown(self, body: bytes | str) -> str:
        """Return the first words of what a server says, or a word in their place where they spell its key, as some do."""
        words = shown(body.decode("utf-8", "replace") if isinstance(body, bytes) else body)
        forms = [_letters(form) for form in _unescaped(words)]
        spelt = any(part in form for part in self._spellings for form in forms)
        return "… (its words hold the key)" if spelt else words


def _spellings(key: str) -> Iterator[str]:
    """Yield the parts of a key, as it is, backwards, in hexadecimal digits and in base64 wherever in a text it begins."""
    data = key.encode()
    yield from _parts(key)
    yield from _parts(key[::-1])
    yield from _parts(data.hex())
    for before in range(3):
        whole = base64.b64encode(b"\0" * before + data).decode()
        yield from _parts(whole[4 if before else 0 : -4] if len(whole) > 2 * _SPELT else "")


def _parts(text: str) -> Iterator[str]:
    """Yield the runs of `_SPELT` letters and digits of a text, and of a shorter one all of it."""
    plain = _letters(text)
    yield from (plain[at : at + _SPELT] for at in range(max(1, len(plain) - _SPELT + 1)) if plain)


def _letters(text: str) -> str:
    return "".join(filter(str.isalnum, unicodedata.normalize("NFKC", text))).casefold()


def _unescaped(text: str) -> Iterator[str]:
    """Yield a text as it is, and as JSON, HTML and addresses would read it."""
    yield text
    yield _ESCAPED.sub(lambda each: chr(int(each[1] or each[2], 16)), text)
    yield html.unescape(text)
    yield urllib.parse.unquote(text)


def _words_of(body: bytes) -> str:
    """Return a server's words about an error, as OpenAI's interface has them or as they are."""
    try:
        said = decoded(body, LARGEST_REPLY)
        fault = said.get("error", said)
        words = fault.get("message", fault) if isinstance(fault, dict) else fault
    except (Undecodable, AttributeError):
        return body.decode("utf-8", "replace")
    return words if isinstance(words, str) else json.dumps(words)


def _seconds_of(text: str) -> float:
    """Return the seconds of `Retry-After`, if it is a number."""
    return min(float(text), LONGEST_WAIT) if text.isascii() and text.isdigit() else 0.0


def read_key(variable: str | None) -> str:
    """Return the key in an environment variable; empty without a variable. Raises Refused if it holds none."""
    if variable is None:
        return ""
    key = os.environ.get(variable, "").strip()
    if not key or not key.isascii() or not key.isprintable():
        raise RefusedReply(
            f"`${variable}` " + ("is not a key" if key else "is not set where the task runs"),
            f"set it before the run, `export {variable}=…`; on a cluster, where its processes start",
        )
    return key


def try_again(ask: Callable[[], Value], retries: int, wait: Callable[[float], bool]) -> Value | None:
    """Return what `ask` returns, after at most `retries` failures that may pass; None if `wait` gives up. Raises Refused."""
    pause = FIRST_PAUSE
    for left in range(retries, -1, -1):
        try:
            return ask()
        except RefusedReply as refused:
            if not refused.again or not left:
                raise
            if wait(max(refused.wait, pause)):
                return None
            pause = min(2 * pause, LONGEST_PAUSE)
    raise AssertionError


def ask_together(
    ask: Callable[[Item], Value],
    items: Sequence[Item],
    at_once: int,
    give_up: Callable[[], None],
    let_go: Callable[[], None] = lambda: None,
) -> list[Value]:
    """Return what `ask` returns for each item, so many at a time.

    The first failure ends it, after what is under way; `give_up` is called then, so that nobody waits to ask again. Where
    it is interrupted, `let_go` may end what is under way.
    """
    faults: list[BaseException] = []

    def ask_one(item: Item) -> Value | None:
        try:
            return None if faults else ask(item)
        except BaseException as fault:
            faults.append(fault)
            give_up()
            return None

    with ThreadPoolExecutor(min(at_once, max(1, len(items)))) as threads:
        try:
            made = list(threads.map(ask_one, items))
        except BaseException:
            give_up()
            threads.shutdown(wait=False, cancel_futures=True)
            let_go()
            raise
    if faults:
        raise faults[0]
    return cast(list[Value], made)
