"""Weights that each trainer's process hands to the server on its own device, with threads for processes."""

from __future__ import annotations

import inspect
import pickle
import threading
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch.multiprocessing import reductions

from reodsl.diagnostics import Problem
from runners.engine.protocol import SharedWeights
from runners.engine.sglang import weights
from runners.engine.sglang.fleet import Fleet
from runners.engine.sglang.server import Address, ServerHandle
from runners.engine.sglang.settings import Settings
from runners.engine.sglang.weights import by_identity, hand_over
from runners.machine.process import ProcessDied
from runners.models.folder import save
from runners.models.tokenizer import word_tokenizer
from tests.engine.engine_reference import VOCAB, make_model
from tests.engine.sglang.many_servers import Servers, serving

STATE = {name: torch.full((4,), float(number)) for number, name in enumerate("abcde")}
BUCKET = 2 * 4 * 4
"""Two tensors a bucket: three buckets."""


class Group:
    """Threads that gather values as processes do."""

    def __init__(self, world: int) -> None:
        self.world, self.raised = world, dict[int, Exception]()
        self._barrier, self._values = threading.Barrier(world, timeout=60), [None] * world

    def gather(self, rank: int, value: Any) -> list[Any]:
        self._values[rank] = value
        self._barrier.wait()
        # Processes get copies.
        found = pickle.loads(pickle.dumps(self._values))
        self._barrier.wait()
        return found

    def run_on_all(self, call: Callable[..., None], *arguments: Any) -> None:
        """`call` in every thread; what the first one raises."""

        def one(rank: int) -> None:
            try:
                call(iter(STATE.items()), rank, lambda value: self.gather(rank, value), *arguments)
            except Exception as fault:
                self.raised[rank] = fault

        threads = [
            threading.Thread(target=one, args=(rank,), name=f"rank-{rank}") for rank in range(self.world)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        if 0 in self.raised:
            raise self.raised[0]


@pytest.fixture(autouse=True)
def packing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Who packed what, in place of shared memory."""

    def pack(bucket: Any) -> str:
        return " ".join([threading.current_thread().name, *(name for name, _ in bucket.tensors)])

    monkeypatch.setattr(weights, "packed_tensors", pack)


def payloads(servers: Servers, number: int) -> list[list[str]]:
    """The names of tensors in each message to a server, for each of its processes."""
    return [
        [" ".join(packed.split()[1:]) for packed in body["serialized_named_tensors"]]
        for path, body in servers.told[number]
        if path == "/update_weights_from_tensor"
    ]


def packers(servers: Servers, number: int) -> set[tuple[str, ...]]:
    return {
        tuple(packed.split()[0] for packed in body["serialized_named_tensors"])
        for path, body in servers.told[number]
        if path == "/update_weights_from_tensor"
    }


@pytest.mark.parametrize(("world", "wide"), [(1, 1), (4, 1), (4, 2)])
def test_each_server_gets_all_weights_from_the_processes_on_its_own_devices(world: int, wide: int) -> None:
    count = world // wide
    with serving(Servers(count)) as servers:
        Group(world).run_on_all(hand_over, dict(enumerate(servers.addresses)), wide, 7, BUCKET)
        for number in range(count):
            assert payloads(servers, number) == [["a b"] * wide, ["c d"] * wide, ["e"] * wide]
        # No process packs for two places.
        chosen = [name for number in range(count) for names in packers(servers, number) for name in names]
        assert len(chosen) == len(set(chosen)) == world
        assert {body["weight_version"] for _, body in servers.told[0] if "weight_version" in body} == {"7"}
        assert not any(servers.open)


def test_the_next_bucket_is_put_together_while_a_server_reads_one() -> None:
    """A server answers once the next bucket is complete, so that without the overlap it would not."""
    made = [threading.Event() for _ in range(3)]

    def pieces() -> Iterator[tuple[str, torch.Tensor]]:
        for number, piece in enumerate(STATE.items()):
            if number and number % 2 == 0:
                # The first tensor that the bucket before has no room for.
                made[number // 2 - 1].set()
            yield piece
        made[2].set()

    read: list[bool] = []

    class Reading(Servers):
        def answer(self, number: int, path: str) -> bool:
            if path == "/update_weights_from_tensor":
                read.append(made[min(len(read) + 1, 2)].wait(20))
            return super().answer(number, path)

    with serving(Reading(1)) as servers:
        hand_over(pieces(), 0, lambda value: [value], {0: servers.addresses[0]}, 1, 7, BUCKET)
        assert payloads(servers, 0) == [["a b"], ["c d"], ["e"]]
    assert read == [True] * 3


def test_a_server_that_refuses_or_is_gone_ends_its_process() -> None:
    with serving(Servers(1)) as servers:
        for path, told in (("/begin_weight_update", 0), ("/update_weights_from_tensor", 1)):
            servers.refuses[0][path] = 1
            with pytest.raises(Problem, match="refused a request"):
                Group(1).run_on_all(hand_over, dict(enumerate(servers.addresses)), 1, 7, BUCKET)
            assert len(payloads(servers, 0)) == told
    with pytest.raises(ProcessDied):
        Group(1).run_on_all(hand_over, {0: Address("http://127.0.0.1:9", "")}, 1, 7, BUCKET)


def test_a_gpu_travels_by_what_it_is_and_not_by_its_number(monkeypatch: pytest.MonkeyPatch) -> None:
    """Trainer and server are shown different GPUs, so the same number means different ones."""
    names = list(inspect.signature(reductions.rebuild_cuda_tensor).parameters)
    assert names[weights._DEVICE_INDEX] == "storage_device"
    monkeypatch.setattr(
        torch.cuda, "get_device_properties", lambda number: SimpleNamespace(uuid=f"GPU-{number}")
    )
    arguments = tuple(names)
    given = (*arguments[: weights._DEVICE_INDEX], 3, *arguments[weights._DEVICE_INDEX + 1 :])
    function, found = by_identity((reductions.rebuild_cuda_tensor, given))
    assert function is reductions.rebuild_cuda_tensor
    assert found == (*arguments[: weights._DEVICE_INDEX], "GPU-3", *arguments[weights._DEVICE_INDEX + 1 :])
    assert by_identity((reductions.rebuild_tensor, (1, 2))) == (reductions.rebuild_tensor, (1, 2))


class Standing(ServerHandle):
    """A host of a stand-in that is always there."""

    alive = True

    def __init__(self, address: Address) -> None:
        self.address = address

    def start(self) -> Address:
        return self.address


@pytest.mark.parametrize("kind", ["cuda", "cpu"])
def test_memory_for_another_process_is_no_expandable_segment(
    monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    """Another process opens one by `pidfd_getfd`, which containers refuse, and a server ends of that."""
    told = ["max_split_size_mb:512,expandable_segments:True"]
    monkeypatch.setattr(torch._C, "_accelerator_getAllocatorSettings", lambda: told[-1])
    monkeypatch.setattr(torch._C, "_accelerator_setAllocatorSettings", told.append)
    with weights._shareable_memory(torch.device(kind)):
        wanted = "max_split_size_mb:512,expandable_segments:False" if kind == "cuda" else told[0]
        assert told[-1] == wanted
    assert told[-1] == told[0]


class Together(Group):
    """Weights of several processes, for an engine."""

    def __init__(self, world: int, state: Mapping[str, torch.Tensor]) -> None:
        super().__init__(world)
        self.state, self.asked = state, list[str]()

    @property
    def shared(self) -> SharedWeights:
        shapes = {name: tuple(tensor.shape) for name, tensor in self.state.items()}
        return SharedWeights(self.world, shapes, self.whole, self.pieces, self.run_on_all)

    def whole(self, device: str | None) -> Mapping[str, torch.Tensor]:
        self.asked.append(str(device))
        return self.state

    def pieces(self) -> Iterator[tuple[str, torch.Tensor]]:
        self.asked.append("first")
        yield from self.state.items()
        self.asked.append("last")


@pytest.fixture
def fleet(tmp_path: Path) -> Iterator[Callable[..., tuple[Fleet, Servers, Together]]]:
    model = make_model("qwen3-gqa-tied")
    save(model, word_tokenizer([f"w{i}" for i in range(5, VOCAB)]), tmp_path / "model")
    with serving(Servers(2)) as servers:

        def make(world: int = 2, **changes: Any) -> tuple[Fleet, Servers, Together]:
            settings = Settings(tmp_path / "model", 64, 64, **{"shares_device": True, **changes})
            hosts = [Standing(address) for address in servers.addresses]
            made = Fleet(hosts, settings, tmp_path / "aside")
            for told in servers.told:
                told.clear()
            return made, servers, Together(world, model.state_dict())

        yield make


def test_servers_that_take_turns_with_trainers_get_weights_from_each(fleet: Any) -> None:
    made, servers, spread = fleet()
    made.load(spread.shared, 3)
    assert spread.asked == []
    assert all("/update_weights_from_tensor" in servers.paths(number) for number in range(2))


def test_weights_of_another_model_are_not_handed_over(fleet: Any) -> None:
    made, servers, _ = fleet()
    other = {name: tensor[:-1] for name, tensor in make_model("qwen3-gqa-tied").state_dict().items()}
    with pytest.raises(Problem, match="and the servers' model has 40×48"):
        made.load(Together(2, other).shared, 3)
    assert not any(servers.told)


@pytest.mark.parametrize(("world", "changes"), [(2, {"shares_device": False}), (2, {"tensor_parallel": 2})])
def test_servers_apart_get_them_from_the_first_process(
    fleet: Any, world: int, changes: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent: list[list[str]] = []
    monkeypatch.setattr(weights, "broadcast", lambda pieces, *_: sent.append([name for name, _ in pieces]))
    made, servers, spread = fleet(world, **changes)
    made.load(spread.shared, 3)
    assert spread.asked == ["first", "last"]
    assert sent == [list(spread.state)]
    assert not any(servers.told)


def test_one_process_hands_them_to_the_server_on_its_device_alone(
    fleet: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another one would be ended by a handle of a GPU that it does not see, and gets them by broadcast."""
    sent: list[list[str]] = []
    monkeypatch.setattr(weights, "broadcast", lambda pieces, *_: sent.append([name for name, _ in pieces]))
    made, servers, spread = fleet()
    made.load(spread.state, 3)
    assert sent == [list(spread.state)[:-1]]
    for own in (made.hosts, made.servers):
        own.pop()
    made.load(spread.state, 4)
    assert len(sent) == 1
    assert "/update_weights_from_tensor" in servers.paths(0)
