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
from reodsl.store.manifest import read_record
from runners.engine.protocol import SharedWeights
from runners.engine.sglang import weights
from runners.engine.sglang.control import Hung, Lost, Refused
from runners.engine.sglang.fleet import Fleet
from runners.engine.sglang.server import Address, Host
from runners.engine.sglang.settings import Settings
from runners.engine.sglang.weights import by_identity, hand
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

    def each(self, call: Callable[..., None], *arguments: Any) -> None:
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
        Group(world).each(hand, dict(enumerate(servers.addresses)), wide, 7, BUCKET)
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
        hand(pieces(), 0, lambda value: [value], {0: servers.addresses[0]}, 1, 7, BUCKET)
        assert payloads(servers, 0) == [["a b"], ["c d"], ["e"]]
    assert read == [True] * 3


def test_one_server_that_was_lost_gets_its_weights_from_its_own_process() -> None:
    with serving(Servers(3)) as servers:
        Group(3).each(hand, {1: servers.addresses[1]}, 1, 7, BUCKET)
        assert [len(payloads(servers, number)) for number in range(3)] == [0, 3, 0]


def test_a_server_that_refuses_ends_it_for_all_after_the_same_bucket() -> None:
    group = Group(3)
    with serving(Servers(3)) as servers:
        servers.refuses[2]["/update_weights_from_tensor"] = 1
        with pytest.raises(Refused, match="/update_weights_from_tensor answered"):
            group.each(hand, dict(enumerate(servers.addresses)), 1, 7, BUCKET)
        assert [len(payloads(servers, number)) for number in range(3)] == [1, 1, 1]
        assert not any(servers.open)
    # The others wait for what the first one does about it.
    assert set(group.raised) == {0}


def test_a_server_that_opens_no_update_or_is_gone_ends_it_before_anything_is_sent() -> None:
    with serving(Servers(2)) as servers:
        servers.refuses[1]["/begin_weight_update"] = 2
        with pytest.raises(Refused, match="/begin_weight_update"):
            Group(2).each(hand, dict(enumerate(servers.addresses)), 1, 7, BUCKET)
        assert payloads(servers, 0) == []
        with pytest.raises(Lost) as caught:
            Group(2).each(hand, {0: servers.addresses[0], 1: Address("http://127.0.0.1:9", "")}, 1, 7, BUCKET)
        assert not isinstance(caught.value, Hung)
        assert not any(servers.open)


def test_a_process_that_cannot_share_its_memory_ends_it_for_all(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(bucket: Any) -> str:
        raise RuntimeError("no shared memory here")

    monkeypatch.setattr(weights, "packed_tensors", broken)
    with serving(Servers(2)) as servers:
        with pytest.raises(Refused, match="RuntimeError: no shared memory here"):
            Group(2).each(hand, dict(enumerate(servers.addresses)), 1, 7, BUCKET)
        assert not any(servers.open)


def test_who_hangs_is_known_in_other_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    class Silent(weights.Lines):
        def ask(self, path: str, *_: Any, **__: Any) -> None:
            if path == "/update_weights_from_tensor":
                raise Hung(*self.servers)

    monkeypatch.setattr(weights, "Lines", Silent)
    addresses = [Address(f"http://127.0.0.1:{port}", "key") for port in (8, 9)]
    with pytest.raises(Hung) as caught:
        Group(2).each(hand, dict(enumerate(addresses)), 1, 7, BUCKET)
    assert caught.value.servers == tuple(addresses)


def test_an_update_that_cannot_be_closed_is_told() -> None:
    with serving(Servers(2)) as servers:
        servers.refuses[1]["/end_weight_update"] = 1
        with pytest.raises(Refused, match="/end_weight_update"):
            Group(2).each(hand, dict(enumerate(servers.addresses)), 1, 7, BUCKET)


def test_a_gpu_travels_by_what_it_is_and_not_by_its_number(monkeypatch: pytest.MonkeyPatch) -> None:
    """Trainer and server are shown different GPUs, so the same number means different ones."""
    names = list(inspect.signature(reductions.rebuild_cuda_tensor).parameters)
    assert names[weights._DEVICE] == "storage_device"
    monkeypatch.setattr(
        torch.cuda, "get_device_properties", lambda number: SimpleNamespace(uuid=f"GPU-{number}")
    )
    arguments = tuple(names)
    given = (*arguments[: weights._DEVICE], 3, *arguments[weights._DEVICE + 1 :])
    function, found = by_identity((reductions.rebuild_cuda_tensor, given))
    assert function is reductions.rebuild_cuda_tensor
    assert found == (*arguments[: weights._DEVICE], "GPU-3", *arguments[weights._DEVICE + 1 :])
    assert by_identity((reductions.rebuild_tensor, (1, 2))) == (reductions.rebuild_tensor, (1, 2))


class Standing(Host):
    """A host of a stand-in that is always there."""

    alive = True

    def __init__(self, address: Address) -> None:
        self.address, self.notes = address, list[str]()

    def start(self) -> Address:
        return self.address

    def note(self, words: str) -> None:
        self.notes.append(words)


@pytest.mark.parametrize("kind", ["cuda", "cpu"])
def test_memory_for_another_process_is_no_expandable_segment(
    monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    """Another process opens one by `pidfd_getfd`, which containers refuse, and a server ends of that."""
    told = ["max_split_size_mb:512,expandable_segments:True"]
    monkeypatch.setattr(torch._C, "_accelerator_getAllocatorSettings", lambda: told[-1])
    monkeypatch.setattr(torch._C, "_accelerator_setAllocatorSettings", told.append)
    with weights._whole_segments(torch.device(kind)):
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
        return SharedWeights(self.world, shapes, self.whole, self.pieces, self.each)

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
            settings = Settings(tmp_path / "model", 64, 64, **{"in_turn": True, **changes})
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
    assert made.way == "tensor"
    assert all("/update_weights_from_tensor" in servers.paths(number) for number in range(2))
    # Again for one that was lost in the middle of rollouts.
    before = len(servers.told[0])
    made._renew([1])
    assert len(servers.told[0]) == before


def test_weights_of_another_model_are_not_handed_over(fleet: Any) -> None:
    made, servers, _ = fleet()
    other = {name: tensor[:-1] for name, tensor in make_model("qwen3-gqa-tied").state_dict().items()}
    with pytest.raises(Problem, match="and the servers' model has 40×48"):
        made.load(Together(2, other).shared, 3)
    assert not any(servers.told)


def test_files_are_next_where_processes_cannot_hand_over(fleet: Any, tmp_path: Path) -> None:
    made, servers, spread = fleet()
    for refuses in servers.refuses:
        refuses["/update_weights_from_tensor"] = 1
    made.load(spread.shared, 3)
    assert made.way == "disk"
    # In the processor's memory: the devices are the servers' then.
    assert spread.asked == ["cpu"]
    assert "weights do not go by tensor" in made.hosts[0].notes[0]
    assert read_record(tmp_path / "aside")["weights"] == ["by disk, not tensor"]


@pytest.mark.parametrize(("world", "changes"), [(2, {"in_turn": False}), (2, {"tensor_parallel": 2})])
def test_servers_apart_get_them_from_the_first_process(fleet: Any, world: int, changes: Any) -> None:
    made, servers, spread = fleet(world, **changes)
    made.load(spread.shared, 3)
    assert spread.asked == ["first", "last"]
    # They stay for one that is lost in the middle of rollouts.
    made._renew([1])
    assert spread.asked == ["first", "last"]
    assert payloads(servers, 1)[-1][0].split()[-1] == list(spread.state)[-2]


def test_processes_that_gather_weights_are_let_go_before_a_lost_server_starts_again(fleet: Any) -> None:
    """That takes longer than they wait for each other. The server that refuses half of the weights gets all of them."""
    made, servers, spread = fleet(in_turn=False)
    begun = list[list[str]]()
    servers.refuses[0]["/update_weights_from_tensor"] = 1
    standing = made._standing
    made._standing = lambda numbers: (begun.append(list(spread.asked)), standing(numbers))[1]
    made.load(spread.shared, 3)
    assert begun == [[], ["first", "last"], ["first", "last"]][: len(begun)]
    assert len(begun) > 1


def test_memory_of_a_gpu_is_shared_with_the_server_on_it_alone(fleet: Any) -> None:
    """Another one would be ended by a handle of a GPU that it does not see."""
    on_cpu, _, _ = fleet()
    assert on_cpu._share_memory([0, 1])
    many, _, _ = fleet(device="cuda")
    assert not many._share_memory([0])
    many.hosts.pop()
    assert many._share_memory([0])
    apart, _, _ = fleet(device="cuda", in_turn=False)
    apart.hosts.pop()
    assert not apart._share_memory([0])
    assert weights.ways(near=False) == ("broadcast", "disk")
