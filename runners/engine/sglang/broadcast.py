"""Weights by broadcast: tensors and addresses in; one group of this process and all servers for as long as they are sent."""

from __future__ import annotations

import socket
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from datetime import timedelta
from functools import partial
from typing import Any

import torch
from torch import distributed as dist

from runners.engine.sglang.control import Line, Refused, asking, together
from runners.engine.sglang.server import Address
from runners.engine.sglang.silence import Lost

Part = Sequence[tuple[str, torch.Tensor]]

_JOIN = timedelta(seconds=60)
"""Until everybody has joined, and each tensor has arrived."""


def send(parts: Iterator[Part], servers: Sequence[Address], ranks: int, version: int) -> None:
    """Sends each tensor once to all servers, of `ranks` processes each: over NCCL from a GPU, over gloo from a CPU.

    Raises `Refused`, `Lost`, and torch's RuntimeError where tensors do not arrive.
    """
    first = next(parts)
    with ExitStack() as stack:
        lines = [stack.enter_context(Line(address)) for address in servers]
        backend = "nccl" if first[0][1].is_cuda else "gloo"
        name = f"reodsl-{version}"
        with _group(lines, servers[0], ranks, backend, name) as group:
            for line in lines:
                line.ask("/begin_weight_update", {})
            for part in (first, *parts):
                told = {
                    "names": [name for name, _ in part],
                    "dtypes": [str(tensor.dtype).removeprefix("torch.") for _, tensor in part],
                    "shapes": [list(tensor.shape) for _, tensor in part],
                    "group_name": name,
                    "weight_version": str(version),
                }
                taking = [asking(line, "/update_weights_from_distributed", told) for line in lines]
                together([*taking, partial(group.send, [tensor for _, tensor in part])])
            for line in lines:
                line.ask("/end_weight_update", {})


class _Own:
    """Rank 0 of a group that stands beside the trainer's own; torch has no public call for one."""

    def __init__(self, backend: str, store: Any, world: int, name: str) -> None:
        from torch.distributed.distributed_c10d import Backend, PrefixStore, _new_process_group_helper, _world

        make: Any = _new_process_group_helper
        stores = PrefixStore(name, store)
        self._group, _ = make(world, 0, [], Backend(backend), stores, group_name=name, timeout=_JOIN)
        _world.pg_group_ranks[self._group] = {rank: rank for rank in range(world)}
        self._left = False

    def send(self, tensors: Sequence[torch.Tensor]) -> None:
        """Sends them to all others. Where one does not take them the others, who wait for more, are let go."""
        options = dist.BroadcastOptions()
        options.rootRank = 0
        try:
            for tensor in tensors:
                self._group.broadcast([tensor.detach().contiguous()], options).wait()
        except RuntimeError:
            self.leave()
            raise

    def leave(self) -> None:
        """Ends it on this side."""
        if not self._left:
            self._left = True
            dist.destroy_process_group(self._group)


@contextmanager
def _group(lines: Sequence[Line], one: Address, ranks: int, backend: str, name: str) -> Iterator[_Own]:
    """This process and all servers, joined until the block ends."""
    store, host, port = _meeting(one)
    world = 1 + ranks * len(lines)
    joined: list[_Own] = []
    told = {"master_address": host, "master_port": port, "world_size": world, "group_name": name}
    joining = [
        asking(
            line,
            "/init_weights_update_group",
            told | {"rank_offset": 1 + ranks * number, "backend": backend},
        )
        for number, line in enumerate(lines)
    ]

    def join() -> None:
        joined.append(_Own(backend, store, world, name))

    try:
        together([*joining, join])
        yield joined[0]
    finally:
        for line in lines:
            # A server that is gone has none; what failed before is what is told.
            with suppress(Lost, Refused):
                line.ask("/destroy_weights_update_group", {"group_name": name})
        for own in joined:
            own.leave()


def _meeting(server: Address) -> tuple[Any, str, int]:
    """A store on a free port of the address that a server sees this machine at, and of no other."""
    host, _, theirs = server.url.removeprefix("http://").rpartition(":")
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.connect((host, int(theirs)))
        own = probe.getsockname()[0]
    from torch._C._distributed_c10d import TCPStore

    # By itself it would listen on every address.
    listening = socket.create_server((own, 0))
    port = listening.getsockname()[1]
    store = TCPStore(
        own,
        port,
        is_master=True,
        wait_for_workers=False,
        timeout=_JOIN,
        master_listen_fd=listening.detach(),
    )
    return store, own, port
