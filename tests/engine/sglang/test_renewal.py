"""Weights for servers that die on the way, with hosts that only say what is done to them."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import pytest

from reodsl.diagnostics import Problem
from runners.engine.protocol import Limits, Request, TokenSampling
from runners.engine.sglang import fleet, rounds, weights
from runners.engine.sglang.control import Hung, Lost, Refused
from runners.engine.sglang.engine import SGLangEngine
from runners.engine.sglang.server import Address, Host
from runners.engine.sglang.settings import Settings
from runners.models.folder import save
from runners.models.tokenizer import word_tokenizer
from tests.engine.engine_reference import VOCAB, make_model

MODEL = make_model("qwen3-gqa-tied")


class Told(Host):
    """A host whose life is in the test's hands."""

    alive = False

    def __init__(self) -> None:
        self.lives, self.stopped = 0, False

    def start(self) -> Address:
        self.lives, self.alive = self.lives + 1, True
        return Address(f"http://127.0.0.1:{self.lives}", "")

    def kill(self) -> None:
        self.alive = False

    def stop(self) -> None:
        self.stopped = True


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
        host = engine.fleet.hosts[1]
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
        engine.fleet.hosts[1].kill()
    engine.load_weights(engine.settings.model if whole_folder else MODEL.state_dict(), 3)
    assert sent == ([("1", "2")] if when == "before" else [("1", "1"), ("1", "2")])
    assert engine.fleet.way == (None if whole_folder else "tensor")
    engine.close()


def test_servers_that_die_of_every_way_are_given_up(
    engine: SGLangEngine, monkeypatch: pytest.MonkeyPatch, refusal: Callable[..., None]
) -> None:
    sent, send = dying(engine, 100)
    monkeypatch.setattr(weights, "update", send)
    with pytest.raises(Problem) as caught:
        engine.load_weights(MODEL.state_dict(), 3)
    refusal("engine/E0826.txt", caught.value)
    assert len(sent) == 6
    engine.close()


async def answered(client: httpx.AsyncClient, _: dict[str, Any]) -> dict[str, Any]:
    """One token from any server but the first life of the first host."""
    if client.base_url.port == 1:
        raise Lost("no answer")
    meta = {"output_token_logprobs": [[-1.0, 5, None]], "weight_version": "3"}
    return {"output_ids": [5], "meta_info": meta}


def test_a_server_that_answers_no_more_and_has_not_ended_yet_is_waited_for(
    engine: SGLangEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its sockets close before its process is gone; asked again at once, it would be given up for good."""
    host, waited = Told(), list[float]()
    alone = SGLangEngine([host], engine.settings, engine._limits, engine.fleet._aside)

    def sleep(seconds: float) -> None:
        waited.append(seconds)
        host.alive = len(waited) < 3

    monkeypatch.setattr("runners.engine.sglang.fleet.time.sleep", sleep)
    monkeypatch.setattr(rounds, "_ask", answered)
    (found,) = alone.generate([Request((5,), 1)], TokenSampling(1))
    assert (found.tokens, host.lives, waited) == ((5,), 2, [1.0, 2.0, 3.0])
    alone.close()
    engine.close()


def test_a_server_that_is_lost_each_time_is_given_up_with_its_last_words(
    engine: SGLangEngine, monkeypatch: pytest.MonkeyPatch, refusal: Callable[..., None]
) -> None:
    async def mute(*_: object) -> None:
        raise Lost("no answer")

    host = Told()
    monkeypatch.setattr(host, "said", lambda: ["torch.OutOfMemoryError: CUDA out of memory."])
    monkeypatch.setattr("runners.engine.sglang.fleet.time.sleep", lambda _: host.kill())
    monkeypatch.setattr(rounds, "_ask", mute)
    alone = SGLangEngine([host], engine.settings, engine._limits, engine.fleet._aside)
    with pytest.raises(Problem) as caught:
        alone.generate([Request((5,), 1)], TokenSampling(1))
    refusal("engine/E0827.txt", caught.value, (f":{host.lives}", ":PORT"))
    alone.close()
    engine.close()


def test_the_others_answer_while_a_lost_server_is_started_again_with_the_present_weights(
    tmp_path: Path, engine: SGLangEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers, all_there = list[int](), threading.Event()

    class Slow(Told):
        """It is back only when all of its requests were answered by another server."""

        def start(self) -> Address:
            if self.lives:
                assert all_there.wait(60)
            return super().start()

    async def ask(client: httpx.AsyncClient, message: dict[str, Any]) -> dict[str, Any]:
        found = await answered(client, message)
        answers.append(client.base_url.port or 0)
        if len(answers) == 6:
            all_there.set()
        return found

    slow, other = Slow(), Told()
    other.lives = 6
    two = SGLangEngine([slow, other], engine.settings, engine._limits, tmp_path / "two")
    sent: list[list[str]] = []
    monkeypatch.setattr(
        weights, "update", lambda way, state, servers, *_: sent.append([s.url for s in servers])
    )
    two.load_weights(MODEL.state_dict(), 3)
    slow.alive = False
    monkeypatch.setattr(rounds, "_ask", ask)
    found = two.generate([Request((number,), number) for number in range(5, 11)], TokenSampling(1))
    assert [(one.tokens, one.weight_versions) for one in found] == [((5,), (3,))] * 6
    assert answers == [7] * 6
    assert slow.lives == 2
    assert sent == [["http://127.0.0.1:1", "http://127.0.0.1:7"], ["http://127.0.0.1:2"]]
    two.close()
    engine.close()


def test_a_server_that_hangs_is_ended_and_started_again(
    engine: SGLangEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its process runs: whether it is alive is not asked."""
    host = Told()
    alone = SGLangEngine([host], engine.settings, engine._limits, engine.fleet._aside)

    async def ask(client: httpx.AsyncClient, message: dict[str, Any]) -> dict[str, Any]:
        if host.lives == 1:
            raise Hung()
        meta = {"output_token_logprobs": [[-1.0, 5, None]], "weight_version": "0"}
        return {"output_ids": [5], "meta_info": meta}

    monkeypatch.setattr(rounds, "_ask", ask)
    (found,) = alone.generate([Request((5,), 1)], TokenSampling(1))
    assert (found.tokens, host.lives) == ((5,), 2)
    alone.close()
    engine.close()


class Turns:
    """What servers in turn with a trainer are told, and by which of them it is not done."""

    def __init__(self, engine: SGLangEngine, monkeypatch: pytest.MonkeyPatch) -> None:
        self.told: list[str] = []
        self.failing: dict[str, Exception] = {}
        monkeypatch.setattr(engine.fleet, "_settings", replace(engine.settings, in_turn=True))
        for name in ("release_memory", "resume_weights", "resume_kv_cache"):
            monkeypatch.setattr(fleet, name, partial(self.call, name))
        monkeypatch.setattr(weights, "update", self.update)
        monkeypatch.setattr(weights, "from_disk", lambda _, servers, __: self.update("folder", {}, servers))

    def call(self, name: str, address: Address) -> None:
        words = f"{name} {address.url[-1]}"
        if words in self.failing:
            raise self.failing.pop(words)
        self.told.append(words)

    def update(self, way: str, _: object, servers: Sequence[Address], *__: object) -> None:
        if way in self.failing:
            raise self.failing.pop(way)
        self.told.append(" ".join([way, *(address.url[-1] for address in servers)]))

    def since(self) -> list[str]:
        """What was told since this was last asked; servers are told at once, in any order."""
        found, self.told[:] = list(self.told), []
        return found


@pytest.fixture
def turns(engine: SGLangEngine, monkeypatch: pytest.MonkeyPatch) -> Turns:
    for number, host in enumerate(engine.fleet.hosts):
        assert isinstance(host, Told)
        host.lives = 2 * number
        engine.fleet.servers[number] = host.start()
    return Turns(engine, monkeypatch)


@pytest.mark.parametrize("way", ["tensor", "broadcast", "disk", "folder"])
def test_weights_are_sent_after_room_for_them_and_before_room_for_caches(
    engine: SGLangEngine, turns: Turns, way: str
) -> None:
    engine.fleet.way = None if way == "folder" else way  # type: ignore[assignment]
    state = engine.settings.model if way == "folder" else MODEL.state_dict()
    engine.load_weights(state, 3)
    assert turns.since() == [f"{way} 1 3"]
    engine.release()
    assert sorted(turns.since()) == ["release_memory 1", "release_memory 3"]
    # A copy of the old weights may be on the trainer's device.
    assert engine.fleet._weights == (engine.settings.model, 0)
    engine.load_weights(state, 4)
    found = turns.since()
    assert sorted(found[:2]) == ["resume_weights 1", "resume_weights 3"]
    assert found[2] == f"{way} 1 3"
    assert sorted(found[3:]) == ["resume_kv_cache 1", "resume_kv_cache 3"]
    engine.load_weights(state, 5)
    assert turns.since() == [f"{way} 1 3"]
    engine.close()


def test_the_first_weights_are_sent_again_after_memory_was_given_back(
    engine: SGLangEngine, turns: Turns
) -> None:
    """What is mapped again has no content, whatever was there."""
    engine.release()
    turns.since()
    engine.load_weights(engine.settings.model, 0)
    assert "folder 1 3" in turns.since()
    engine.close()


@pytest.mark.parametrize("fault", [Refused("no"), Lost("gone")], ids=["refused", "lost"])
@pytest.mark.parametrize("call", ["release_memory", "resume_weights"])
def test_a_server_that_does_not_do_so_is_started_again_for_the_next_weights(
    engine: SGLangEngine, turns: Turns, call: str, fault: Exception, caplog: pytest.LogCaptureFixture
) -> None:
    """Its memory is in a state that is not known; a new one has all of it, and is asked for none."""
    turns.failing[f"{call} 3"] = fault
    engine.release()
    engine.load_weights(MODEL.state_dict(), 3)
    other = ["release_memory 3"] if call == "resume_weights" else []
    assert sorted(turns.since()) == [
        "release_memory 1",
        *other,
        "resume_kv_cache 1",
        "resume_weights 1",
        "tensor 1 4",
    ]
    assert str(fault) in caplog.text
    engine.release()
    assert sorted(turns.since()) == ["release_memory 1", "release_memory 4"]
    engine.close()


def test_a_server_that_died_meanwhile_has_nothing_to_take_again(engine: SGLangEngine, turns: Turns) -> None:
    engine.release()
    engine.fleet.hosts[1].kill()
    turns.failing["resume_weights 3"] = Lost("gone")
    engine.load_weights(MODEL.state_dict(), 3)
    assert sorted(turns.since()) == [
        "release_memory 1",
        "release_memory 3",
        "resume_kv_cache 1",
        "resume_weights 1",
        "tensor 1 4",
    ]
    engine.close()


@pytest.mark.parametrize("released", [False, True])
def test_a_server_without_its_memory_is_not_left_to_others(
    engine: SGLangEngine, turns: Turns, released: bool
) -> None:
    """The next task of a run may be given the same server, once this one is done with it."""
    if released:
        engine.release()
    engine.close()
    for host in engine.fleet.hosts:
        assert isinstance(host, Told)
        assert (host.alive, host.stopped) == (not released, True)


def test_servers_apart_keep_their_memory(
    engine: SGLangEngine, turns: Turns, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engine.fleet, "_settings", replace(engine.settings, in_turn=False))
    engine.load_weights(MODEL.state_dict(), 3)
    engine.release()
    assert engine.fleet._weights == (engine.settings.model, 0)
    engine.load_weights(MODEL.state_dict(), 4)
    assert turns.since() == ["tensor 1 3", "tensor 1 3"]
    engine.close()


def test_an_engine_gives_its_files_back_and_may_be_closed_twice(engine: SGLangEngine) -> None:
    engine.close()
    engine.close()
    assert engine._loop._loop.is_closed()
