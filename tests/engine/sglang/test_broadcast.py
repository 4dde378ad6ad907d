"""The group that weights are broadcast in: where it meets, and what becomes of it when a server does not take part."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import psutil
import pytest
import torch
from torch import distributed as dist

from runners.engine.sglang import weights
from runners.engine.sglang.control import Lines
from runners.engine.sglang.server import Address
from runners.engine.sglang.weights import _meeting, _Own, buckets, send


def test_where_servers_and_trainer_meet_is_not_reached_from_elsewhere() -> None:
    store, host, port = _meeting(Address("http://127.0.0.1:9", ""))
    heard = [
        each.laddr.ip
        for each in psutil.Process().net_connections("tcp")
        if each.status == psutil.CONN_LISTEN and each.laddr.port == port
    ]
    assert (host, heard) == ("127.0.0.1", ["127.0.0.1"])
    store.set("a", "b")
    assert store.get("a") == b"b"


def test_servers_that_wait_for_what_does_not_come_are_let_go_at_once_and_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A group of this process alone, whose second tensor nobody takes."""
    store, _, _ = _meeting(Address("http://127.0.0.1:9", ""))
    own = _Own("gloo", store, 1, "alone")
    real, sent, left = own._group, list[torch.Tensor](), list[Any]()

    class Failing:
        def broadcast(self, tensors: list[torch.Tensor], options: Any) -> Any:
            if sent:
                raise RuntimeError("Timed out waiting for send operation to complete")
            sent.extend(tensors)
            return real.broadcast(tensors, options)

    monkeypatch.setattr(dist, "destroy_process_group", left.append)
    monkeypatch.setattr(own, "_group", Failing())
    own.send(torch.ones(2))
    with pytest.raises(RuntimeError, match="Timed out"):
        own.send(torch.ones(3))
    assert [tensor.shape for tensor in sent] == [(2,)]
    assert left == [own._group]
    own.leave()
    assert len(left) == 1
    monkeypatch.undo()
    dist.destroy_process_group(real)


def test_no_more_than_a_bucket_and_the_one_before_it_are_held(monkeypatch: pytest.MonkeyPatch) -> None:
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
    monkeypatch.setattr(Lines, "ask", lambda self, path, *_: asked.append(path))
    monkeypatch.setattr(weights, "_group", group)
    monkeypatch.setattr(weights, "buckets", partial(buckets, size=16))
    send({f"{n}": torch.full((4,), float(n)) for n in range(6)}, [Address("http://127.0.0.1:9", "")], 1, 7)
    assert asked.count("/update_weights_from_distributed") == len(alive) == 6
    assert max(alive) <= 2
