"""Control of servers that freeze, before a message of it or after: nothing of it is waited for for ever, nothing is lost."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
import torch

from runners.engine.protocol import Limits
from runners.engine.sglang import control, weights
from runners.engine.sglang.control import Hung, Lines, Lost, Refused, call_all
from runners.engine.sglang.engine import SGLangEngine
from runners.engine.sglang.server import Address, Host
from runners.engine.sglang.settings import Settings
from runners.models.folder import save
from runners.models.tokenizer import word_tokenizer
from tests.engine.engine_reference import VOCAB, make_model

pytestmark = pytest.mark.usefixtures("quick_silence")
MODEL = make_model("qwen3-gqa-tied")


@pytest.fixture(autouse=True)
def asked_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    """How often is another test's concern."""
    monkeypatch.setattr(control, "_ASKED", 2)


class Server:
    """Answers 200 to everything, and keeps what it was asked; `late` is answered only after it was asked how it is.

    `deadly` is answered never: it ends the server, which tells `last` then.
    """

    def __init__(self, late: str = "", status: int = 200, deadly: str = "") -> None:
        told: list[str] = []
        asked = threading.Event()
        self.last: Callable[[], None] = lambda: None
        ours = self

        class Answers(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                told.append(self.path)
                asked.set()
                self.send_response(200)
                self.end_headers()

            def do_POST(self) -> None:
                self.rfile.read(int(self.headers.get("content-length", 0)))
                told.append(self.path)
                if self.path == deadly:
                    ours.http.socket.close()
                    ours.last()
                    self.close_connection = True
                    return
                if self.path == late:
                    assert asked.wait(60)
                self.send_response(status)
                self.end_headers()

            def log_message(self, *_: object) -> None:
                """Nothing is written."""

        self.told = told
        self.http = ThreadingHTTPServer(("127.0.0.1", 0), Answers)
        self.address = Address(f"http://127.0.0.1:{self.http.server_port}", "")


@contextmanager
def serving(server: Server) -> Iterator[Server]:
    thread = threading.Thread(target=server.http.serve_forever, args=(0.02,))
    thread.start()
    try:
        yield server
    finally:
        server.http.shutdown()
        thread.join()
        server.http.server_close()


def test_a_server_that_hung_is_not_waited_for_again(frozen: Address, monkeypatch: pytest.MonkeyPatch) -> None:
    with Lines([frozen]) as lines:
        with pytest.raises(Hung) as caught:
            lines.ask("/begin_weight_update", {})
        assert caught.value.servers == (frozen,)
        # Not even once: it would be asked as many times anew.
        monkeypatch.setattr(Lines, "_post", None)
        with pytest.raises(Hung):
            lines.ask("/end_weight_update", {})


def test_a_server_that_takes_long_and_says_that_it_works_is_waited_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(control, "_ANSWER", 60.0)
    with serving(Server("/slow")) as server, Lines([server.address]) as lines:
        lines.ask("/slow", {})
    # Both are asked at once, by two connections.
    assert sorted(server.told[:2]) == ["/health_generate", "/slow"]


def test_what_a_server_refuses_and_one_that_is_gone_are_told_apart() -> None:
    with (
        serving(Server(status=400)) as server,
        Lines([server.address]) as lines,
        pytest.raises(Refused, match="400"),
    ):
        lines.ask("/any", {})
    with Lines([server.address]) as lines, pytest.raises(Lost) as caught:
        lines.ask("/any", {})
    assert not isinstance(caught.value, Hung)


def test_of_calls_that_fail_together_silence_is_told_first_and_of_every_server() -> None:
    one, two = (Address(f"http://127.0.0.1:{port}", "") for port in (1, 2))
    done: list[int] = []

    def fails(fault: Exception) -> None:
        raise fault

    def of(*faults: Exception) -> BaseException:
        with pytest.raises(Exception) as caught:  # noqa: PT011
            call_all([*(partial(fails, fault) for fault in faults), partial(done.append, 1)])
        return caught.value

    found = of(RuntimeError("tensors were not taken"), Hung(one), Lost("gone"), Hung(two))
    assert isinstance(found, Hung)
    assert set(found.servers) == {one, two}
    assert str(of(RuntimeError("tensors were not taken"), Lost("gone"))) == "gone"
    assert str(of(RuntimeError("tensors were not taken"))) == "tensors were not taken"
    assert done == [1] * 3


class Thawing(Host):
    """A host whose first life is frozen, and whose next one answers."""

    alive = False

    def __init__(self, frozen: Address, server: Address) -> None:
        self.lives, self.told = [frozen, server], list[str]()

    def start(self) -> Address:
        self.alive = True
        return self.lives.pop(0)

    def note(self, words: str) -> None:
        self.told.append(words)

    def kill(self) -> None:
        self.alive = False


@pytest.mark.parametrize("way", ["folder", "disk", "tensor", "broadcast"])
def test_a_server_that_freezes_as_weights_come_is_ended_and_the_next_one_gets_them(
    way: str, frozen: Address, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By whatever way they come; nobody joins a broadcast here, and so that one goes on through files."""
    monkeypatch.setattr(weights, "_JOIN", weights._JOIN / 200)
    save(MODEL, word_tokenizer([f"w{i}" for i in range(5, VOCAB)]), tmp_path / "model")
    state: Mapping[str, torch.Tensor] | Path = tmp_path / "model" if way == "folder" else MODEL.state_dict()
    with serving(Server()) as server:
        host = Thawing(frozen, server.address)
        engine = SGLangEngine(
            [host], Settings(tmp_path / "model", 64, 64), Limits(64, VOCAB), tmp_path / "aside"
        )
        if not isinstance(state, Path):
            engine.fleet.way = way  # type: ignore[assignment]
        engine.load_weights(state, 3)
        assert host.alive
        assert engine.fleet.servers == [server.address]
        assert host.told[0] == (
            "a server that was sent weights is ended: it is silent, and does not say that it works"
        )
        posted = [path for path in server.told if "update_weights" in path]
        assert f"/update_weights_from_{'tensor' if way == 'tensor' else 'disk'}" in posted
        engine.close()


@pytest.mark.parametrize("way", ["folder", "disk", "tensor"])
def test_a_server_that_dies_as_weights_come_is_started_again_and_gets_them(way: str, tmp_path: Path) -> None:
    save(MODEL, word_tokenizer([f"w{i}" for i in range(5, VOCAB)]), tmp_path / "model")
    state: Mapping[str, torch.Tensor] | Path = tmp_path / "model" if way == "folder" else MODEL.state_dict()
    path = f"/update_weights_from_{'tensor' if way == 'tensor' else 'disk'}"
    with serving(Server(deadly=path)) as first, serving(Server()) as second:
        host = Thawing(first.address, second.address)
        first.last = host.kill
        engine = SGLangEngine(
            [host], Settings(tmp_path / "model", 64, 64), Limits(64, VOCAB), tmp_path / "aside"
        )
        if not isinstance(state, Path):
            engine.fleet.way = way  # type: ignore[assignment]
        engine.load_weights(state, 3)
        assert engine.fleet.servers == [second.address]
        assert host.alive
        # It died on the first message of weights, and the next one got them all by the same way.
        assert first.told.count(path) == 1
        assert path in second.told
        assert engine.fleet.way == (None if way == "folder" else way)
        engine.close()
