"""What stands in for servers in rehearsals: it answers as the embedded engine does, and takes weights every way."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import ThreadingHTTPServer
from pathlib import Path
from typing import Any

import httpx
import pytest

from runners.engine.embedded import EmbeddedEngine
from runners.engine.protocol import Request, TokenSampling
from runners.engine.sglang.messages import Draft, forced_message, forced_tokens
from runners.engine.sglang.server import FORCED, Address, read_settings
from runners.engine.sglang.weights import broadcast, hand_over, load_from_disk
from runners.models.folder import save
from runners.models.tokenizer import word_tokenizer
from tests.engine.engine_reference import STOP, VOCAB, make_model
from tests.engine.sglang import served_double

REQUEST, SAMPLING = Request((5, 6, 7), 11), TokenSampling(12, 0.9, 0.8, stop_ids=(STOP,))
RANKS = 2


@pytest.fixture(scope="module")
def model() -> Any:
    return make_model("qwen3-gqa-tied")


@pytest.fixture
def address(model: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Address]:
    """A stand-in of two processes in a thread of this one."""
    save(model, word_tokenizer([f"w{i}" for i in range(5, VOCAB)]), tmp_path / "model")
    monkeypatch.setattr(
        served_double.Connection, "served", served_double.ServedDouble(tmp_path / "model", RANKS), False
    )
    monkeypatch.setattr(served_double.Connection, "key", "a key", False)
    with ThreadingHTTPServer(("127.0.0.1", 0), served_double.Connection) as server:
        threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
        yield Address(f"http://127.0.0.1:{server.server_port}", "a key")
        server.shutdown()


def ask(address: Address, path: str, message: dict[str, Any]) -> Any:
    reply = httpx.post(f"{address.url}{path}", json=message, headers=address.headers, trust_env=False)
    reply.raise_for_status()
    return reply.json()


def test_it_answers_with_the_key_as_the_embedded_engine_does(address: Address, model: Any) -> None:
    assert read_settings(address).version == served_double.VERSION
    draft = Draft(REQUEST, SAMPLING)
    found = draft.take(ask(address, "/generate", draft.message()))
    (wanted,) = EmbeddedEngine(model.config, model.state_dict()).generate([REQUEST], SAMPLING)
    assert found is not None
    assert (found.tokens, found.finish) == (wanted.tokens, wanted.finish)
    assert found.logprobs == pytest.approx(wanted.logprobs)
    assert found.sampling_logprobs == pytest.approx(wanted.sampling_logprobs)
    forced = forced_message(REQUEST.prompt, (1, 3), (8,), (1, 2), SAMPLING)
    one, other = ask(address, FORCED, forced), ask(address, "/generate", served_double.spell_out(forced))
    assert one == other
    assert [len(forced_tokens(each, SAMPLING)) > 0 for each in one] == [True, True]
    for message in (json.dumps(draft.message()), "[" * 5000):
        stranger = httpx.post(f"{address.url}/generate", content=message, trust_env=False)
        assert stranger.status_code == 401


@pytest.mark.parametrize("way", ["tensor", "broadcast", "disk"])
def test_new_weights_come_every_way(way: Any, address: Address, tmp_path: Path) -> None:
    state = {name: value + 0.01 for name, value in make_model("qwen3-gqa-tied").state_dict().items()}
    if way == "tensor":
        hand_over(iter(state.items()), 0, lambda one: [one] * RANKS, {0: address}, RANKS, 3)
    elif way == "broadcast":
        broadcast(state.items(), [address], RANKS, 3, tmp_path / "aside")
    else:
        moved = make_model("qwen3-gqa-tied")
        moved.load_state_dict(state)
        save(moved, word_tokenizer([f"w{i}" for i in range(5, VOCAB)]), tmp_path / "moved")
        load_from_disk(tmp_path / "moved", [address], 3)
    engine: Any = served_double.Connection.served._engine
    wanted = EmbeddedEngine(make_model("qwen3-gqa-tied").config, state)
    assert engine.generate([REQUEST], SAMPLING) == [
        type(each)(**{**_fields(each), "weight_versions": (3,)})
        for each in wanted.generate([REQUEST], SAMPLING)
    ]


def _fields(response: Any) -> dict[str, Any]:
    return {name: getattr(response, name) for name in response.__dataclass_fields__}
