"""A model behind an address: replies that never end, what is packed, and a key that no message shows."""

from __future__ import annotations

import gzip
import json
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

import pytest

from reodsl.ir.model import Folder, ServedModel
from runners.engine.protocol import cancellable
from runners.engine.remote import Loop, RefusedReply, Remote, read_key


class Asker:
    """A remote of one model that is asked once, without trying again."""

    def __init__(self, address: str, key: str = "", seconds: float = 30.0) -> None:
        tokenizer = Folder(path="tok")
        source = ServedModel(
            model="big", address=address, tokenizer=tokenizer, seconds=seconds, at_once=1, retries=0
        )
        self.loop, self.remote = Loop(), Remote(source, key)

    def post(self) -> bytes:
        return self.loop.run(self.remote.post({"prompt": "this"}))

    def close(self) -> None:
        self.loop.run(self.remote.close())
        self.loop.close()


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
        model = Asker(address, seconds=60.0 if packed else 0.5)
        started = time.monotonic()
        with pytest.raises(RefusedReply) as caught:
            model.post()
        assert time.monotonic() - started < 60
        model.close()
    assert caught.value.words == (
        "the connection broke (ValueError)" if packed else "no reply came within 0.5 s"
    )


def test_what_is_packed_is_never_unpacked() -> None:
    body = gzip.compress(gzip.compress(b" " * 2**26))
    head = f"HTTP/1.1 200 OK\r\nContent-Encoding: gzip, gzip\r\nContent-Length: {len(body)}\r\n\r\n"
    with speaks(lambda: iter([head.encode() + body])) as address:
        model = Asker(address)
        with pytest.raises(RefusedReply, match="the connection broke"):
            model.post()
        model.close()


def test_an_interruption_ends_who_waits() -> None:
    def interrupt() -> None:
        raise KeyboardInterrupt

    started = time.monotonic()
    with speaks(slowly(b"")) as address:
        model = Asker(address, seconds=600.0)
        with cancellable(interrupt), pytest.raises(KeyboardInterrupt):
            model.post()
        model.close()
    assert time.monotonic() - started < 60


def replies(status: int, body: str) -> Callable[[], Iterator[bytes]]:
    size = len(body.encode())
    head = f"HTTP/1.1 {status} No\r\nContent-Length: {size}\r\nConnection: close\r\n\r\n"
    return lambda: iter([(head + body).encode()])


@pytest.mark.parametrize("status", [302, 400, 401, 404, 429, 500])
def test_no_words_of_a_server_that_has_a_key_are_shown(status: int) -> None:
    """It may say the key backwards, in base64 or in any other way: the status alone is told."""
    key = "sk-proj-4/8aZ+Qw17/tgB"
    said = json.dumps({"error": {"message": f"not {key[::-1]}"}})
    with speaks(replies(status, said)) as address:
        model = Asker(address, key)
        with pytest.raises(RefusedReply) as caught:
            model.post()
        assert f"(HTTP {status}: … (its words may hold the key))" in caught.value.words
        model.close()


def test_words_of_a_server_without_a_key_are_shown() -> None:
    with speaks(replies(400, '{"error": {"message": "no model sk-4"}}')) as address:
        model = Asker(address)
        with pytest.raises(RefusedReply, match="HTTP 400: no model sk-4"):
            model.post()
        model.close()
