"""Ask a model behind an address for one reply, over OpenAI's interface of chat completions."""

from __future__ import annotations

import asyncio
import base64
import html
import json
import re
import threading
import unicodedata
import urllib.parse
from collections.abc import Coroutine, Iterator
from concurrent.futures import CancelledError
from dataclasses import dataclass
from typing import Any, TypeVar

import httpx

from runners.untrusted import Undecodable, decoded, shown

LARGEST_REPLY = 1 << 20
"""Bytes of a reply that are read."""
MOST_TOKENS = 10**9
"""Tokens that a reply may say it took."""
LONGEST_WAIT = 300.0
"""Seconds that a server may ask to be left alone."""
_LATER = frozenset({408, 409, 425, 429, *range(500, 600)})
_OF_THIS_ANSWER = frozenset({400, 413, 422})
_CHARACTERS_PER_TOKEN = 4
_SPELT = 8
"""Letters and digits of a key that are not shown in a row."""
_ESCAPED = re.compile(r"\\u([0-9a-fA-F]{4})|\\x([0-9a-fA-F]{2})")

Value = TypeVar("Value")


@dataclass(frozen=True, slots=True)
class Reply:
    """A model's text, whether it came to its end by itself, and the tokens that it read and wrote."""

    text: str
    ended: bool
    tokens: int


@dataclass(slots=True)
class Refused(Exception):
    """A refusal to reply.

    `again`: asking later may help. `wait`: the server names these seconds. `answer`: the answer may be the reason.
    """

    words: str
    help: str
    again: bool = False
    wait: float = 0.0
    answer: bool = False


class Chat:
    """A model at an address, usable from many threads, for which one thread speaks.

    `key` is sent and never shown. A reply has `seconds` by the clock, from the first byte that is sent to the last one
    that is received.
    """

    def __init__(self, address: str, model: str, key: str, seconds: float, at_once: int) -> None:
        self.address, self._model, self._key, self._seconds = address, model, key, seconds
        base = address.rstrip("/").removesuffix("/chat/completions")
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
        self._url = f"{base}/chat/completions"
        self._spellings = frozenset(_spellings(key)) if key else frozenset()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()

    def ask(self, instructions: str, message: str, max_tokens: int, temperature: float = 0.0) -> Reply:
        """Return the model's reply to a message, under instructions. Raises Refused."""
        request = {
            "model": self._model,
            "messages": [
                {"role": "system", "content": instructions},
                {"role": "user", "content": message},
            ],
            "max_tokens": max_tokens,
            "temperature": temperature,
        }
        try:
            status, headers, body = self._wait(self._send("POST", self._url, request))
        except (httpx.TimeoutException, TimeoutError):
            raise Refused(
                f"no reply came within {self._seconds:g} s",
                f"allow more: `seconds: {2 * self._seconds:g} seconds`, or ask less at a time: `at_once`",
                again=True,
            ) from None
        except CancelledError:
            raise Refused("the run ends", "give the same command once more to go on") from None
        except httpx.ConnectError:
            raise Refused(
                "nothing answers there",
                "start the server, or write the address that it has, with its `/v1`",
                again=True,
            ) from None
        except (httpx.HTTPError, httpx.InvalidURL, ValueError) as fault:
            raise Refused(
                f"the connection broke ({type(fault).__name__})",
                "see what the server says of itself",
                again=True,
            ) from None
        if status != 200:
            raise self._refusal(status, headers, body)
        reply = _reply_of(body, len(instructions) + len(message))
        if reply is None:
            raise Refused(
                f"what it sends is no chat completion: {self.shown(body)}",
                "give the address of OpenAI's interface, which ends in `/v1`",
                again=True,
            )
        return reply

    def other_model(self) -> str | None:
        """Return the one model that the server has, where it says so and it is another: some answer to any name."""
        try:
            url = self._url.removesuffix("/chat/completions") + "/models"
            _, _, body = self._wait(self._send("GET", url))
            names = [str(each["id"]) for each in decoded(body, LARGEST_REPLY)["data"]]
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
            return None
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
        self, method: str, url: str, request: dict[str, Any] | None = None
    ) -> tuple[int, httpx.Headers, bytes]:
        """Status, headers and body, of bounded size and time: httpx itself only bounds the silence between two bytes."""
        # Not ASCII alone: servers bound the bytes of a request.
        content = json.dumps(request, ensure_ascii=False).encode("utf-8", "replace") if request else None
        headers = {"Content-Type": "application/json"} if request else {}
        async with (
            asyncio.timeout(self._seconds),
            self._client.stream(method, url, content=content, headers=headers) as response,
        ):
            if response.headers.get("content-encoding", "identity").strip().lower() != "identity":
                raise ValueError("it is packed, though it was asked not to be")
            body = b""
            async for chunk in response.aiter_raw():
                body += chunk
                if len(body) > LARGEST_REPLY:
                    raise ValueError("too long")
            return response.status_code, response.headers, body

    def _refusal(self, status: int, headers: httpx.Headers, body: bytes) -> Refused:
        says = f"HTTP {status}: {self.shown(_words_of(body))}".rstrip(": ")
        if status in (401, 403):
            with_key = "refuses the key" if self._key else "asks for a key"
            return Refused(
                f"it {with_key} ({says})",
                'name the environment variable that has its key, `key: "JUDGE_KEY"`, and see that the key is valid',
            )
        if status == 404:
            return Refused(
                f"it has no model `{self._model}`, or no chat completions under this address ({says})",
                "write the model as its server calls it, and the address up to the `/v1`",
            )
        if 300 <= status < 400:
            return Refused(f"it leads elsewhere ({says})", "write the address that it leads to")
        if status == 429:
            return Refused(
                f"it is asked too often, or what you may spend there is used up ({says})",
                "ask less at a time, `at_once: 2`, or later: the same command goes on",
                again=True,
                wait=_seconds_of(headers.get("retry-after", "")),
            )
        if status in _LATER:
            return Refused(
                f"it fails ({says})",
                "see what the server says of itself; the same command goes on",
                again=True,
                wait=_seconds_of(headers.get("retry-after", "")),
            )
        return Refused(
            f"it refuses the request ({says})",
            "mend what it names; for a model with a short context write a smaller `max_tokens`",
            answer=status in _OF_THIS_ANSWER,
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


def _reply_of(body: bytes, asked: int) -> Reply | None:
    """Return the first choice of a completion, or None; a token has four characters if the server counts none."""
    try:
        said = decoded(body, LARGEST_REPLY)
        choice = said["choices"][0]
        text = choice["message"].get("content") or ""
        ended = choice.get("finish_reason") in ("stop", None)
        used = (said.get("usage") or {}).get("total_tokens")
    except (Undecodable, LookupError, TypeError, AttributeError):
        return None
    if not isinstance(text, str):
        return None
    if type(used) is not int or not 0 <= used <= MOST_TOKENS:
        used = (asked + len(text)) // _CHARACTERS_PER_TOKEN
    return Reply(text, ended, used)


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
