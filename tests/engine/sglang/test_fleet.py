"""An engine's servers: what they are told around new weights, and one that ends."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from runners.engine.protocol import Limits, Request, TokenSampling
from runners.engine.sglang.engine import SGLangEngine
from runners.engine.sglang.server import Address, ServerHandle
from runners.engine.sglang.settings import Settings
from runners.machine.process import ProcessDied
from runners.models.folder import save
from runners.models.tokenizer import word_tokenizer
from tests.engine.engine_reference import VOCAB, make_model
from tests.engine.sglang.many_servers import Servers, serving

MODEL = make_model("qwen3-gqa-tied")
GIVEN_BACK = ["/pause_generation", "/flush_cache?timeout=60", "/release_memory_occupation"]
HANDED = ["/begin_weight_update", "/update_weights_from_tensor", "/end_weight_update"]
TAKEN = ["/resume_memory_occupation", "/continue_generation"]


class Told(ServerHandle):
    """A host whose life is in the test's hands."""

    alive = False

    def __init__(self, address: Address) -> None:
        self.address, self.stopped = address, False

    def start(self) -> Address:
        self.alive = True
        return self.address

    def kill(self) -> None:
        self.alive = False

    def stop(self) -> None:
        self.stopped = True


Opened = Callable[..., tuple[SGLangEngine, list[Told], Servers]]


@pytest.fixture
def opened(tmp_path: Path) -> Iterator[Opened]:
    save(MODEL, word_tokenizer([f"w{i}" for i in range(5, VOCAB)]), tmp_path / "model")
    (tmp_path / "log").write_text("CUDA error\n")
    with serving(Servers(1)) as servers:

        def make(**changes: Any) -> tuple[SGLangEngine, list[Told], Servers]:
            settings = Settings(tmp_path / "model", 64, 64, **changes)
            hosts = [Told(Address(each.url, "", log=tmp_path / "log")) for each in servers.addresses]
            return SGLangEngine(hosts, settings, Limits(64, VOCAB), tmp_path / "aside"), hosts, servers

        yield make


def since(servers: Servers) -> list[str]:
    """What the first server was told since this was last asked."""
    found = servers.paths()
    servers.told[0].clear()
    return found


@pytest.mark.parametrize("folder", [False, True])
def test_weights_are_sent_after_room_for_them_and_before_room_for_caches(
    opened: Opened, folder: bool
) -> None:
    engine, _, servers = opened(shares_device=True)
    state = engine.settings.model if folder else MODEL.state_dict()
    sent = ["/update_weights_from_disk"] if folder else HANDED
    engine.load_weights(state, 3)
    assert since(servers) == sent
    engine.release()
    assert since(servers) == GIVEN_BACK
    engine.load_weights(state, 4)
    assert since(servers) == ["/resume_memory_occupation", *sent, *TAKEN]
    engine.load_weights(state, 5)
    assert since(servers) == sent
    engine.close()


def test_servers_apart_keep_their_memory(opened: Opened) -> None:
    engine, _, servers = opened()
    engine.release()
    assert since(servers) == []
    engine.close()


@pytest.mark.parametrize("broken", ["/release_memory_occupation", "/update_weights_from_tensor"])
def test_a_server_whose_state_is_not_known_is_not_left_to_others(opened: Opened, broken: str) -> None:
    """The next task of a run may be given the same server, once this one is done with it."""
    engine, (host,), servers = opened(shares_device=True)
    engine.load_weights(MODEL.state_dict(), 3)
    servers.refuses[0][broken] = 1
    with pytest.raises(Exception, match=f"refused a request.*|{broken}"):
        engine.release() if "release" in broken else engine.load_weights(MODEL.state_dict(), 4)
    engine.close()
    assert (host.alive, host.stopped) == (False, False)
    whole, (other,), _ = opened(shares_device=True)
    whole.close()
    assert (other.alive, other.stopped) == (True, True)


def test_a_server_that_ends_ends_what_waits_for_it_with_the_end_of_its_log(
    opened: Opened, monkeypatch: pytest.MonkeyPatch, refusal: Callable[..., None]
) -> None:
    """Also where nothing but its host knows: a connection to a node that is gone may stay open."""
    monkeypatch.setattr("runners.engine.remote.POLL_SECONDS", 0.01)
    engine, (host,), servers = opened()
    servers.delay = 600.0
    host.alive = False
    with pytest.raises(ProcessDied) as caught:
        engine.generate([Request((5,), 1)], TokenSampling(1))
    port = host.address.url.rpartition(":")[2]
    refusal("engine/E0938.txt", caught.value, (f":{port}", ":PORT"), (str(host.address.log), "LOG"))
    engine.close()


def test_weights_of_another_shape_are_refused_before_they_are_sent(opened: Opened) -> None:
    engine, _, servers = opened()
    whole: dict[str, torch.Tensor] = MODEL.state_dict()
    for state in ({n: each[..., :-1] for n, each in whole.items()}, {n: whole[n] for n in list(whole)[1:]}):
        with pytest.raises(Exception, match="tensor"):
            engine.load_weights(state, 9)
    assert since(servers) == []
    engine.close()


def test_an_engine_gives_its_files_back_and_may_be_closed_twice(opened: Opened) -> None:
    engine, _, _ = opened()
    engine.close()
    engine.close()
    assert engine._loop._loop.is_closed()
