"""A model behind an address: replies that never end, what is packed, and a key that is shown in no spelling."""

from __future__ import annotations

import base64
import gzip
import json
import socket
import threading
import time
import urllib.parse
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

import pytest

from runners.engine.remote import RefusedReply, Remote, read_key


def remote(address: str, key: str = "", seconds: float = 30.0) -> Remote:
    return Remote(address, "/completions", "big", key, seconds, 1)


@pytest.mark.parametrize(("value", "words"), [(None, "is not set"), ("a\nb", "is not a key")])
def test_a_key_that_is_none_is_told_before_anything_is_asked(
    monkeypatch: pytest.MonkeyPatch, value: str | None, words: str
) -> None:
    monkeypatch.delenv("SERVER_KEY", raising=False)
    if value is not None:
        monkeypatch.setenv("SERVER_KEY", value)
    with pytest.raises(RefusedReply) as caught:
        read_key("SERVER_KEY")
    assert words in caught.value.words
    assert value is None or value not in caught.value.words


@contextmanager
def speaks(parts: Callable[[], Iterator[bytes]]) -> Iterator[str]:
    """The address of a server that sends these bytes to whoever connects, and reads what it is asked."""
    listener = socket.create_server(("127.0.0.1", 0))
    ending = threading.Event()

    def serve(client: socket.socket) -> None:
        with client, suppress(OSError):
            client.recv(2**16)
            for part in parts():
                if ending.is_set():
                    return
                client.sendall(part)

    def accept() -> None:
        with suppress(OSError):
            while True:
                threading.Thread(target=serve, args=(listener.accept()[0],), daemon=True).start()

    threading.Thread(target=accept, daemon=True).start()
    yield f"http://127.0.0.1:{listener.getsockname()[1]}/v1"
    ending.set()
    listener.close()


def slowly(part: bytes, first: bytes = b"") -> Callable[[], Iterator[bytes]]:
    def parts() -> Iterator[bytes]:
        yield first
        while True:
            yield part
            time.sleep(0.02)

    return parts


NEVER = {
    "headers a byte at a time": slowly(b"x", b"HTTP/1.1 200 OK\r\nx: "),
    "processing": slowly(b"HTTP/1.1 102 Processing\r\n\r\n"),
    "a name that never ends in what is packed": slowly(
        b"n" * 64, b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\n\r\n\x1f\x8b\x08\x08\0\0\0\0\0\0"
    ),
    "a body a byte at a time": slowly(b" ", b"HTTP/1.1 200 OK\r\n\r\n"),
    "nothing": slowly(b""),
}


@pytest.mark.parametrize("name", NEVER)
def test_a_model_that_never_ends_is_let_go_at_its_deadline(name: str) -> None:
    packed = name.startswith("a name")
    with speaks(NEVER[name]) as address:
        # What is packed is refused as it comes, on a busy machine too.
        model = remote(address, seconds=60.0 if packed else 0.5)
        started = time.monotonic()
        with pytest.raises(RefusedReply) as caught:
            model.post({"prompt": "this"})
        assert time.monotonic() - started < 60
        model.close()
    assert caught.value.words == (
        "the connection broke (ValueError)" if packed else "no reply came within 0.5 s"
    )


def test_what_is_packed_is_never_unpacked() -> None:
    body = gzip.compress(gzip.compress(b" " * 2**26))
    head = f"HTTP/1.1 200 OK\r\nContent-Encoding: gzip, gzip\r\nContent-Length: {len(body)}\r\n\r\n"
    with speaks(lambda: iter([head.encode() + body])) as address:
        model = remote(address)
        with pytest.raises(RefusedReply, match="the connection broke"):
            model.post({"prompt": "this"})
        model.close()


def test_closing_ends_who_waits() -> None:
    with speaks(slowly(b"")) as address:
        model = remote(address, seconds=600.0)
        threading.Timer(0.5, model.close).start()
        with pytest.raises(RefusedReply, match="the run ends"):
            model.post({"prompt": "this"})


KEY = "sk-proj-4/8aZ+Qw17/tgB"
SPELLINGS = {
    "as it is": KEY,
    "escaped": KEY.replace("/", "\\/"),
    "in escapes": "".join(f"\\u{ord(each):04x}" for each in KEY),
    "spaced": " ".join(KEY),
    "dashed and in capitals": "-".join(KEY).upper(),
    "as of addresses": urllib.parse.quote(KEY, safe=""),
    "as of HTML": "".join(f"&#{ord(each)};" for each in KEY),
    "in hexadecimal digits": KEY.encode().hex(),
    "in base64": base64.b64encode(b"Bearer " + KEY.encode()).decode(),
    "backwards": KEY[::-1],
    "wide": "".join(chr(ord(each) + 0xFEE0) for each in KEY),
    "half of it": KEY[: len(KEY) // 2 + 2],
}


@pytest.mark.parametrize("name", SPELLINGS)
def test_a_key_is_shown_in_no_spelling(name: str) -> None:
    spelling = SPELLINGS[name]

    def replies(body: str) -> Callable[[], Iterator[bytes]]:
        head = f"HTTP/1.1 401 No\r\nContent-Length: {len(body.encode())}\r\nConnection: close\r\n\r\n"
        return lambda: iter([(head + body).encode()])

    with speaks(replies(f'{{"error": {{"message": "not {spelling} ')) as address:
        model = remote(address, KEY)
        with pytest.raises(RefusedReply) as caught:
            model.post({"prompt": "this"})
        assert "its words hold the key" in caught.value.words
        model.close()
    with speaks(replies(json.dumps({"data": [{"id": spelling}]}))) as address:
        model = remote(address, KEY)
        assert model.other_model() == "… (its words hold the key)"
        model.close()


def test_words_without_the_key_are_shown() -> None:
    model = remote("http://127.0.0.1:9/v1", KEY)
    assert model.shown("the project has no model sk-4") == "the project has no model sk-4"
    model.close()
