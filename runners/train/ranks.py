"""Share values between the processes that train one model; alone, nothing moves."""

from __future__ import annotations

import datetime
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeVar, cast

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor
from torch._C._distributed_c10d import Store
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh

from runners.machine.placement import set_nccl
from runners.machine.rendezvous import gloo_at

T = TypeVar("T")

_ROLLOUTS = datetime.timedelta(days=7)
"""Longest wait of the other processes while the first one generates and grades."""
COMPUTE = datetime.timedelta(minutes=10)
"""Longest wait for another process within a forward or backward pass."""


@dataclass(frozen=True, slots=True)
class Ranks:
    """This process among `world` that hold a model together; the first one, rank 0, also generates and writes.

    `mesh` is what the model is sharded over, None where this process trains alone with plain tensors; of two dimensions,
    its rows have a copy of the model each. `control` carries values on processors, with a patience of its own.
    """

    rank: int = 0
    world: int = 1
    mesh: DeviceMesh | None = None
    control: dist.ProcessGroup | None = None

    @property
    def first(self) -> bool:
        """Return whether this is the process that generates and writes."""
        return self.rank == 0

    @property
    def device(self) -> torch.device:
        """Return the device that numbers travel from, where there are others."""
        assert self.mesh is not None
        # Each process has made its own device the present one.
        return torch.device(self.mesh.device_type)

    @property
    def part(self) -> tuple[int, int]:
        """Return which part of the weights this process holds, of how many; each copy of the model has all parts."""
        parts = 1 if self.mesh is None else self.mesh.size(self.mesh.ndim - 1)
        return self.rank % parts, parts

    def share(self, value: T | None) -> T:
        """Return the first process's value on all of them; the values of the others are not looked at."""
        if self.world == 1:
            return cast(T, value)
        values: list[Any] = [value]
        dist.broadcast_object_list(values, src=0, group=self.control)
        return values[0]

    def gather(self, value: T) -> list[T]:
        """Return every process's value, by rank, on all of them."""
        if self.world == 1:
            return [value]
        values: list[Any] = [None] * self.world
        dist.all_gather_object(values, value, group=self.control)
        return values

    def join(self, numbers: Tensor) -> Tensor:
        """Return the numbers of all processes, [numbers], one after another by rank, on the processor of each.

        They travel between devices.
        """
        if self.world == 1:
            return numbers.cpu()
        counts = self.gather(len(numbers))
        most = max(counts)
        every = numbers.new_empty(self.world * most)
        dist.all_gather_into_tensor(every, F.pad(numbers, (0, most - len(numbers))))
        rows = every.cpu().view(self.world, most)
        return torch.cat([row[:count] for row, count in zip(rows, counts, strict=True)])

    def spread(self, tensors: Sequence[Tensor]) -> list[Tensor]:
        """Return the first process's tensors, on the processor of each; those of the others are not looked at.

        They travel between devices, one after another: pickled, a large batch would keep all GPUs waiting.
        """
        if self.world == 1:
            return list(tensors)
        spread = []
        for place, (shape, dtype) in enumerate(self.share([(each.shape, each.dtype) for each in tensors])):
            moved = (tensors[place] if self.first else torch.empty(shape, dtype=dtype)).to(self.device)
            dist.broadcast(moved, 0)
            spread.append(tensors[place] if self.first else moved.cpu())
        return spread

    def total(self, numbers: Sequence[float]) -> list[float]:
        """Return the sums of numbers over all processes, in order of rank, so that each has the same bits."""
        if self.world == 1:
            return list(numbers)
        return [sum(column) for column in zip(*self.gather(list(numbers)), strict=True)]

    def wait(self) -> None:
        """Wait until every process is here."""
        if self.world > 1:
            dist.barrier(group=self.control)


ALONE = Ranks()
"""A process that trains without others."""


def _backends(device: torch.device) -> str:
    """Return the backends between processes: gloo between processors, and the device's own between others."""
    if device.type == "cpu":
        return "gloo"
    return f"cpu:gloo,{device.type}:{dist.get_default_backend_for_device(device)}"


@contextmanager
def joined(
    rank: int,
    world: int,
    store: Store,
    device: torch.device,
    host: str | None = None,
    parts: int | None = None,
) -> Iterator[Ranks]:
    """Join the processes that have a store in common, until the block ends.

    `host` is the address at which processes on other machines reach this one; None where there are no others. As many
    neighbours as there are `parts` hold a copy of the model between them; None: all hold one.
    """
    parts = parts or world
    shape = (world // parts, parts) if parts < world else (world,)
    names = ("copies", "parts")[-len(shape) :]
    if device.type != "cpu":
        torch.get_device_module(device).set_device(device)
    set_nccl()
    with gloo_at(host):
        dist.init_process_group(
            _backends(device),
            store=store,
            rank=rank,
            world_size=world,
            timeout=COMPUTE,
        )
        try:
            control = dist.new_group(backend="gloo", timeout=_ROLLOUTS)
            yield Ranks(rank, world, init_device_mesh(device.type, shape, mesh_dim_names=names), control)
        except BaseException:
            if device.type != "cpu" and dist.is_initialized():
                # Others may still be in the middle of something, which an orderly end would wait for.
                dist.distributed_c10d._abort_process_group()
            raise
        finally:
            if dist.is_initialized():
                dist.destroy_process_group()
