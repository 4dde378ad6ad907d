"""Broadcast weights to servers, in one group of this process and all of theirs."""

from __future__ import annotations

import socket
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from functools import partial
from typing import Any

import torch
from torch import distributed as dist

from runners.engine.sglang.buckets import State, buckets, untied
from runners.engine.sglang.control import Lines, call_all, update_session
from runners.engine.sglang.server import Address
from runners.meeting import gloo_at, listen

_JOIN = timedelta(seconds=60)
"""Until everybody has joined, and each bucket has arrived."""


def send(state: State, servers: Sequence[Address], ranks: int, version: int) -> None:
    """Send weights to all servers, of `ranks` processes each: over NCCL from a GPU, over gloo from a CPU.

    Each bucket is sent once, and made only when the one before it has arrived. Raises `Refused`, `Lost`, and torch's
    RuntimeError where a bucket does not arrive.
    """
    on_gpu = next(iter(state.values())).is_cuda
    backend, name = "nccl" if on_gpu else "gloo", f"reodsl-{version}"
    with Lines(servers) as lines, _group(lines, ranks, backend, name) as group, update_session(lines):
        for bucket in buckets(untied(state)):
            message = {
                "names": [name for name, _ in bucket.tensors],
                "dtypes": [str(tensor.dtype).removeprefix("torch.") for _, tensor in bucket.tensors],
                "shapes": [list(tensor.shape) for _, tensor in bucket.tensors],
                "load_format": "flattened_bucket",
                "group_name": name,
                "weight_version": str(version),
            }
            taking = partial(lines.ask, "/update_weights_from_distributed", message)
            call_all([taking, partial(group.send, bucket.flat)])


class _Own:
    """Rank 0 of a group beside the trainer's own; torch has no public call for one."""

    def __init__(self, backend: str, store: Any, world: int, name: str) -> None:
        from torch.distributed.distributed_c10d import Backend, PrefixStore, _new_process_group_helper, _world

        make: Any = _new_process_group_helper
        stores = PrefixStore(name, store)
        self._group, _ = make(world, 0, [], Backend(backend), stores, group_name=name, timeout=_JOIN)
        _world.pg_group_ranks[self._group] = {rank: rank for rank in range(world)}
        self._left = False

    def send(self, tensor: torch.Tensor) -> None:
        """Send a tensor to all others. Where one does not take it the others, who wait for it, are let go."""
        options = dist.BroadcastOptions()
        options.rootRank = 0
        try:
            self._group.broadcast([tensor], options).wait()
        except RuntimeError:
            self.leave()
            raise

    def leave(self) -> None:
        """End the group on this side."""
        if not self._left:
            self._left = True
            dist.destroy_process_group(self._group)


@contextmanager
def _group(lines: Lines, ranks: int, backend: str, name: str) -> Iterator[_Own]:
    """Join this process and all servers in a group until the block ends."""
    store, host, port = _meeting(lines.servers[0])
    world = 1 + ranks * len(lines.servers)
    joined: list[_Own] = []
    meeting = {
        "master_address": host,
        "master_port": port,
        "world_size": world,
        "group_name": name,
        "backend": backend,
    }
    messages = [meeting | {"rank_offset": 1 + ranks * number} for number in range(len(lines.servers))]

    def join() -> None:
        with gloo_at(host):
            joined.append(_Own(backend, store, world, name))

    try:
        call_all([partial(lines.ask, "/init_weights_update_group", messages), join])
        yield joined[0]
    finally:
        # A server that is gone has none; the earlier failure is reported.
        lines.tell("/destroy_weights_update_group", {"group_name": name})
        for membership in joined:
            membership.leave()


def _meeting(server: Address) -> tuple[Any, str, int]:
    """Return a store on a free port of the address that a server sees this machine at, and of no other."""
    host, _, theirs = server.url.removeprefix("http://").rpartition(":")
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.connect((host, int(theirs)))
        address = probe.getsockname()[0]
    store, port = listen(address, _JOIN)
    return store, port.host, port.number
