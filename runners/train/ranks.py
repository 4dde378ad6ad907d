"""Share values between the processes that train one model; alone, nothing moves."""

from __future__ import annotations

import datetime
import os
import socket
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar, cast

import psutil
import torch
import torch.distributed as dist
from torch._C._distributed_c10d import FileStore, Store
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh

T = TypeVar("T")

_ROLLOUTS = datetime.timedelta(days=7)
"""Longest wait of the other processes while the first one generates and grades."""
_COMPUTE = datetime.timedelta(minutes=10)
"""Longest wait for another process within a forward or backward pass."""


@dataclass(frozen=True, slots=True)
class Ranks:
    """This process among `world` that hold a model together; the first one, rank 0, also generates and writes.

    `mesh` is what the model is sharded over, None where this process trains alone with plain tensors. `control` carries
    values on processors, with a patience of its own.
    """

    rank: int = 0
    world: int = 1
    mesh: DeviceMesh | None = None
    control: dist.ProcessGroup | None = None

    @property
    def first(self) -> bool:
        """Whether this is the process that generates and writes."""
        return self.rank == 0

    def share(self, value: T | None) -> T:
        """The first process's value, on all of them; what the others give is not looked at."""
        if self.world == 1:
            return cast(T, value)
        values: list[Any] = [value]
        dist.broadcast_object_list(values, src=0, group=self.control)
        return values[0]

    def gather(self, value: T) -> list[T]:
        """Every process's value, by rank, on all of them."""
        if self.world == 1:
            return [value]
        values: list[Any] = [None] * self.world
        dist.all_gather_object(values, value, group=self.control)
        return values

    def total(self, numbers: Sequence[float]) -> list[float]:
        """The sums of numbers over all processes, in order of rank, so that each has the same bits."""
        if self.world == 1:
            return list(numbers)
        return [sum(column) for column in zip(*self.gather(list(numbers)), strict=True)]

    def wait(self) -> None:
        """Until every process is here."""
        if self.world > 1:
            dist.barrier(group=self.control)


def interface(store: Store, rank: int, world: int, host: str | None) -> str | None:
    """The network interface that this process listens at: the loopback where all are on one machine, else that of `host`.

    None where there is no such interface.
    """
    store.set(f"machine/{rank}", _machine())
    machines = {store.get(f"machine/{other}") for other in range(world)}
    if len(machines) == 1:
        # What stays on this machine is not to be reached from others.
        return next((name for _, name in socket.if_nameindex() if name.startswith("lo")), None)
    every = psutil.net_if_addrs().items()
    return next((name for name, addresses in every if host in [one.address for one in addresses]), None)


def _machine() -> str:
    """What processes have in common that share a loopback: a system since its start, and in it a network."""
    try:
        return (
            f"{Path('/proc/sys/kernel/random/boot_id').read_text('ascii')}{os.readlink('/proc/self/ns/net')}"
        )
    except OSError:
        return socket.gethostname()


ALONE = Ranks()
"""A process that trains without others."""


def _backends(device: torch.device) -> str:
    """What carries tensors between processes: gloo those of processors, and of another device what is made for it."""
    if device.type == "cpu":
        return "gloo"
    return f"cpu:gloo,{device.type}:{dist.get_default_backend_for_device(device)}"


@contextmanager
def joined(
    rank: int, world: int, meeting: Path, device: torch.device, host: str | None = None
) -> Iterator[Ranks]:
    """The processes that have a new file in common, `meeting`, until the block ends; no socket listens for that.

    `host` is the address by which processes on other machines reach this one, where there are any.
    """
    if device.type != "cpu":
        torch.get_device_module(device).set_device(device)
    store = FileStore(str(meeting), world)
    store.set_timeout(_COMPUTE)
    before = os.environ.get("GLOO_SOCKET_IFNAME")
    name = interface(store, rank, world, host)
    if before is None and name is not None:
        os.environ["GLOO_SOCKET_IFNAME"] = name
    try:
        dist.init_process_group(
            _backends(device),
            store=store,
            rank=rank,
            world_size=world,
            timeout=_COMPUTE,
        )
        try:
            control = dist.new_group(backend="gloo", timeout=_ROLLOUTS)
            yield Ranks(rank, world, init_device_mesh(device.type, (world,)), control)
        except BaseException:
            if device.type != "cpu":
                # Others may still be in the middle of something, which an orderly end would wait for.
                dist.distributed_c10d._abort_process_group()
            raise
        finally:
            if dist.is_initialized():
                dist.destroy_process_group()
    finally:
        if before is None:
            os.environ.pop("GLOO_SOCKET_IFNAME", None)
