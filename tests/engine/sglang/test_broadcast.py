"""The group that weights are broadcast in: where it meets, and what becomes of it when a server does not take part."""

from __future__ import annotations

import gc
import threading
import weakref
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psutil
import pytest
import torch
from torch import distributed as dist
from torch._C._distributed_c10d import PrefixStore, Store

from reodsl.diagnostics import Problem
from runners.engine.sglang import weights
from runners.engine.sglang.control import ServerGroupClient
from runners.engine.sglang.server import Address, add_settings
from runners.engine.sglang.settings import CHANNELS, Settings, find_interpreter
from runners.engine.sglang.weights import BroadcastGroup, _group, broadcast
from runners.machine.process import ProcessDied
from runners.machine.rendezvous import SharedFile
from tests.engine.sglang.many_servers import Servers, serving
from tests.listening import heard

PATIENCE = timedelta(seconds=60)


def test_servers_and_trainer_meet_in_a_folder_of_their_own_at_no_port(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked, listening = list[dict[str, Any]](), list[set[str]]()

    class Joining:
        servers = (Address("http://127.0.0.1:9", ""),)

        def ask(self, path: str, messages: Any) -> None:
            if path == "/destroy_weights_update_group":
                return
            file = Path(messages[0]["master_address"])
            assert file.parent.stat().st_mode & 0o777 == 0o700
            store = SharedFile(file, 2, PATIENCE)
            PrefixStore("named", store).set("a", "b")
            asked.extend(messages)

    class Own:
        def __init__(self, backend: str, store: Store, world: int, name: str, channels: int) -> None:
            assert channels == 0
            assert PrefixStore(name, store).get("a") == b"b"
            listening.append(heard(psutil.Process()))

        def leave(self, broken: bool) -> None:
            assert not broken

    monkeypatch.setattr(weights, "BroadcastGroup", Own)
    before = heard(psutil.Process())
    with _group(Joining(), 1, "gloo", "named", tmp_path / "aside"):  # type: ignore[arg-type]
        assert listening == [before]
    assert [(each["world_size"], each["rank_offset"]) for each in asked] == [(2, 1)]
    assert not list((tmp_path / "aside").iterdir())


@pytest.mark.parametrize("how", ["taken", "failed", "never taken"])
def test_servers_that_wait_for_what_does_not_come_are_let_go_in_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    """NCCL waits without an end for one that died or had no room for a tensor."""
    left, over = list[bool](), threading.Event()

    class Group:
        def __init__(self, *_: Any) -> None: ...

        def send(self, _: torch.Tensor) -> None:
            if how == "failed":
                raise RuntimeError("Timed out waiting for send operation to complete")
            if how == "never taken":
                over.wait(60)

        def leave(self, broken: bool) -> None:
            left.append(broken)

    monkeypatch.setattr(weights, "BroadcastGroup", Group)
    monkeypatch.setattr(weights, "_TIMEOUT_SECONDS", 0.5 if how == "never taken" else 60.0)
    with serving(Servers(2)) as servers:
        if how == "taken":
            broadcast([("one", torch.ones(2))], servers.addresses, 1, 7, tmp_path)
        else:
            words = "Timed out" if how == "failed" else "no answer came within 0.5 seconds"
            with pytest.raises(ProcessDied, match=words):
                broadcast([("one", torch.ones(2))], servers.addresses, 1, 7, tmp_path)
    over.set()
    assert left == [how != "taken"]


def test_an_orderly_end_is_not_waited_for_where_nccl_is_broken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = BroadcastGroup("gloo", SharedFile(tmp_path / "file", 1, PATIENCE), 1, "alone")
    ends = list[str]()
    with monkeypatch.context() as patched:
        patched.setattr(dist, "destroy_process_group", lambda _: ends.append("destroyed"))
        patched.setattr(dist.distributed_c10d, "_abort_process_group", lambda _: ends.append("aborted"))
        for nccl in (False, True):
            patched.setattr(own, "_nccl", nccl)
            own.leave(is_broken=True)
            own.leave(is_broken=False)
    assert ends == ["destroyed", "destroyed", "aborted", "destroyed"]
    own.send(torch.ones(2))
    own.leave(is_broken=False)


def test_nccl_takes_as_many_channels_as_exact_servers_of_several_gpus(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SGLang holds these to a number by NCCL's environment, which is read by each process for itself."""
    given = list[Any]()

    class Options:
        def __init__(self) -> None:
            self.config = SimpleNamespace(min_ctas=-1, max_ctas=-1)

    def make(*arguments: Any) -> tuple[object, None]:
        given.append(arguments[6])
        return object(), None

    monkeypatch.setattr(dist, "ProcessGroupNCCL", SimpleNamespace(Options=Options), raising=False)
    monkeypatch.setattr(dist.distributed_c10d, "_new_process_group_helper", make)
    monkeypatch.setattr(dist.distributed_c10d, "_pg_group_ranks", {})
    wide = {"enable_deterministic_inference": True, "tp_size": 2}
    there = Address("http://127.0.0.1:9", "")
    for settings in (wide, wide | {"tp_size": 1}, wide | {"enable_deterministic_inference": False}, {}):
        store = SharedFile(tmp_path / "file", 1, PATIENCE)
        BroadcastGroup("nccl", store, 1, "alone", add_settings(there, settings).channels)
    assert [None if each is None else each.config.min_ctas for each in given] == [CHANNELS, None, None, None]
    assert given[0].config.max_ctas == CHANNELS


def test_sglang_is_told_how_many_channels_these_are(tmp_path: Path) -> None:
    python = find_interpreter()
    if python is None:
        pytest.skip("needs SGLang")
    told = Settings(tmp_path, 100, 1, device="cuda", tensor_parallel=2).environment({}, "")
    (hook,) = python.parent.parent.glob("lib/python3*/site-packages/sglang/srt/arg_groups/attention_hook.py")
    for name in ("SGLANG_DETERMINISTIC_NCCL_NCHANNELS", "NCCL_MIN_NCHANNELS", "NCCL_MAX_NCHANNELS"):
        assert name in hook.read_text("utf-8")
    assert told["SGLANG_DETERMINISTIC_NCCL_NCHANNELS"] == str(CHANNELS)


def test_the_next_bucket_is_gathered_while_one_is_sent_and_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is sent arrives, and servers answer, once the next bucket is gathered: without the overlap they never would."""
    own = BroadcastGroup("gloo", SharedFile(tmp_path / "file", 1, PATIENCE), 1, "alone")
    real, sent, waited = own._group, list[list[float]](), list[int]()
    gathered = [threading.Event() for _ in range(4)]

    def pieces() -> Iterator[tuple[str, torch.Tensor]]:
        for number, event in enumerate(gathered):
            event.set()
            yield f"{number}", torch.full((4,), float(number))

    class Work:
        def __init__(self, number: int) -> None:
            self.after = gathered[min(number + 1, 3)]

        def wait(self) -> None:
            assert self.after.wait(20)
            waited.append(len(sent))

    def share(tensors: list[torch.Tensor], _: Any) -> Work:
        sent.append(tensors[0].view(torch.float32).tolist())
        return Work(len(sent) - 1)

    class Reading(Servers):
        def answer(self, number: int, path: str) -> bool:
            if path == "/update_weights_from_distributed":
                met = sum(path == other for other in self.paths(number))
                return gathered[min(met, 3)].wait(20) and super().answer(number, path)
            return super().answer(number, path)

    @contextmanager
    def group(*_: Any) -> Iterator[BroadcastGroup]:
        yield own

    monkeypatch.setattr(weights, "_TIMEOUT_SECONDS", 20.0)
    monkeypatch.setattr(weights, "_group", group)
    monkeypatch.setattr(weights, "SEND_BYTES", 16)
    monkeypatch.setattr(own, "_group", SimpleNamespace(broadcast=share))
    with serving(Reading(2)) as servers:
        broadcast(pieces(), servers.addresses, 1, 7, tmp_path)
        for told in servers.told:
            assert [body["names"] for _, body in told if "names" in body] == [["0"], ["1"], ["2"], ["3"]]
        assert not any(servers.open)
    assert sent == [[float(number)] * 4 for number in range(4)]
    assert waited == [1, 2, 3, 4]
    monkeypatch.undo()
    dist.destroy_process_group(real)


def test_a_failure_of_either_side_is_told_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tensors = {f"{number}": torch.full((4,), float(number)) for number in range(4)}

    class Breaking:
        def send(self, _: torch.Tensor) -> None:
            raise RuntimeError("weights were not taken")

    class Whole:
        def send(self, _: torch.Tensor) -> None: ...

    monkeypatch.setattr(weights, "SEND_BYTES", 16)
    for group, refused, message in ((Breaking(), 0, "not taken"), (Whole(), 1, "refused a request")):
        monkeypatch.setattr(weights, "_group", lambda *_, group=group: nullcontext(group))
        with serving(Servers(2)) as servers:
            servers.refuses[1]["/update_weights_from_distributed"] = refused
            with pytest.raises(Problem, match=message) as caught:
                broadcast(tensors.items(), servers.addresses, 1, 7, tmp_path)
            assert isinstance(caught.value, ProcessDied) == (not refused)
            # Nothing is sent after it.
            assert servers.paths(0).count("/update_weights_from_distributed") == 1


@pytest.mark.slow
def test_no_more_than_a_bucket_and_the_one_before_it_are_held(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made, alive = list[weakref.ref[torch.Tensor]](), list[int]()

    class Group:
        def send(self, tensor: torch.Tensor) -> None:
            made.append(weakref.ref(tensor))
            gc.collect()
            alive.append(sum(each() is not None for each in made))

    @contextmanager
    def group(*_: Any) -> Iterator[Group]:
        yield Group()

    asked = list[str]()
    monkeypatch.setattr(ServerGroupClient, "ask", lambda self, path, *_: asked.append(path))
    monkeypatch.setattr(weights, "_group", group)
    monkeypatch.setattr(weights, "SEND_BYTES", 16)
    broadcast(
        ((f"{n}", torch.full((4,), float(n))) for n in range(6)),
        [Address("http://127.0.0.1:9", "")],
        1,
        7,
        tmp_path,
    )
    assert asked.count("/update_weights_from_distributed") == len(alive) == 6
    assert max(alive) <= 2
