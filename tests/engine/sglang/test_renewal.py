"""Weights for servers that die on the way, with hosts that only say what is done to them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from reodsl.diagnostics import Problem
from runners.engine.protocol import Request, Response, Sampling
from runners.engine.requests import Limits
from runners.engine.sglang import weights
from runners.engine.sglang.engine import SGLangEngine
from runners.engine.sglang.rounds import Lost, Work
from runners.engine.sglang.server import Address
from runners.engine.sglang.settings import Settings
from runners.models.folder import save
from runners.models.tokenizer import word_tokenizer
from tests.engine.engine_reference import VOCAB, make_model

MODEL = make_model("qwen3-gqa-tied")


class Told:
    """A host whose life is in the test's hands."""

    near = True

    def __init__(self) -> None:
        self.lives = 0
        self.alive = False

    def start(self) -> Address:
        self.lives, self.alive = self.lives + 1, True
        return Address(f"http://127.0.0.1:{self.lives}", "")

    def said(self) -> list[str]:
        return []

    def note(self, words: str) -> None:
        """Nothing is kept."""

    def stop(self) -> None:
        self.alive = False


@pytest.fixture
def engine(tmp_path: Path) -> SGLangEngine:
    folder = tmp_path / "model"
    save(MODEL, word_tokenizer([f"w{i}" for i in range(5, VOCAB)]), folder)
    settings = Settings(folder, context=64, token_bytes=64)
    return SGLangEngine([Told(), Told()], settings, Limits(64, VOCAB), tmp_path)


def dying(engine: SGLangEngine, deaths: int) -> tuple[list[tuple[str, ...]], Callable[..., None]]:
    """Sending that loses the second server so often; and the addresses that were sent to."""
    sent: list[tuple[str, ...]] = []

    def send(*given: object) -> None:
        servers = next(each for each in given if isinstance(each, list))
        sent.append(tuple(address.url[-1] for address in servers))
        host = engine._hosts[1]
        assert isinstance(host, Told)
        if len(sent) <= deaths:
            host.alive = False
        if not host.alive:
            raise Lost("no answer")

    return sent, send


@pytest.mark.parametrize("whole_folder", [False, True])
@pytest.mark.parametrize("when", ["before", "meanwhile"])
def test_a_server_that_dies_is_started_again_and_sent_the_weights_the_same_way(
    engine: SGLangEngine, monkeypatch: pytest.MonkeyPatch, when: str, whole_folder: bool
) -> None:
    sent, send = dying(engine, 1 if when == "meanwhile" else 0)
    monkeypatch.setattr(weights, "from_disk" if whole_folder else "update", send)
    if when == "before":
        engine._hosts[1].stop()
    engine.load_weights(engine._settings.model if whole_folder else MODEL.state_dict(), 3)
    assert sent == ([("1", "2")] if when == "before" else [("1", "1"), ("1", "2")])
    assert engine._way == (None if whole_folder else "tensor")
    engine.close()


def test_servers_that_die_of_every_way_are_given_up(
    engine: SGLangEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent, send = dying(engine, 100)
    monkeypatch.setattr(weights, "update", send)
    with pytest.raises(Problem) as caught:
        engine.load_weights(MODEL.state_dict(), 3)
    (found,) = caught.value.diagnostics
    assert found.code == "E0826"
    assert found.notes == tuple(f"{way}: no answer" for way in ("tensor", "broadcast", "disk"))
    assert len(sent) == 6
    engine.close()


def test_a_server_that_answers_no_more_and_has_not_ended_yet_is_waited_for(
    engine: SGLangEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its sockets close before its process is gone; asked again at once, it would be given up for good."""
    host, waited = engine._hosts[0], list[float]()
    assert isinstance(host, Told)

    def sleep(seconds: float) -> None:
        waited.append(seconds)
        host.alive = len(waited) < 3

    async def ask(works: Sequence[Work], servers: Sequence[Address], *_: object) -> None:
        for work in works:
            if servers[work.server].url.endswith("2"):
                work.response = Response((5,), (0.0,), (0.0,), "length", (0,))

    monkeypatch.setattr("runners.engine.sglang.engine.time.sleep", sleep)
    monkeypatch.setattr("runners.engine.sglang.engine.work_through", ask)
    (found,) = engine.generate([Request((5,), 1)], Sampling(1))
    assert (found.tokens, host.lives, waited) == ((5,), 2, [1.0, 2.0, 3.0])
    engine.close()


def test_an_engine_gives_its_files_back_and_may_be_closed_twice(engine: SGLangEngine) -> None:
    engine.close()
    engine.close()
    assert engine._loop._loop.is_closed()
