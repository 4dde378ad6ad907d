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

_ROLLOUT_TIMEOUT = datetime.timedelta(days=7)
"""Longest wait of the other processes while the first one generates and grades."""
COMPUTE_TIMEOUT = datetime.timedelta(minutes=10)
"""Longest wait for another process within a forward or backward pass."""


@dataclass(frozen=True, slots=True)
class Ranks:
    """The rank of this process among the `world` processes that hold a model together. Rank 0 also generates and writes.

    `mesh` is what the model is sharded over, None if this process trains alone with plain tensors; each row of a mesh
    of two dimensions has a copy of the model. `control` carries values between processors, with a timeout of its own.
    """

    rank: int = 0
    world: int = 1
    mesh: DeviceMesh | None = None
    control: dist.ProcessGroup | None = None

    @property
    def is_rank_zero(self) -> bool:
        """Return whether this process generates and writes."""
        return self.rank == 0

    @property
    def device(self) -> torch.device:
        """Return the device from which tensors travel to other processes; a mesh must exist."""
        assert self.mesh is not None
        # Each process has made its own device the present one.
        return torch.device(self.mesh.device_type)

    @property
    def shard(self) -> tuple[int, int]:
        """Return the index of the shard of the weights that this process holds, and the number of shards of a copy."""
        parts = 1 if self.mesh is None else self.mesh.size(self.mesh.ndim - 1)
        return self.rank % parts, parts

    def broadcast(self, value: T | None) -> T:
        """Return rank 0's value on all processes; the values of the other ranks are ignored."""
        if self.world == 1:
            return cast(T, value)
        values: list[Any] = [value]
        dist.broadcast_object_list(values, src=0, group=self.control)
        return values[0]

    def all_gather_objects(self, value: T) -> list[T]:
        """Return every process's value, by rank, on all of them."""
        if self.world == 1:
            return [value]
        values: list[Any] = [None] * self.world
        dist.all_gather_object(values, value, group=self.control)
        return values

    def all_gather(self, numbers: Tensor) -> Tensor:
        """Concatenate the numbers of all processes in order of rank; they travel between devices.

        Args:
            numbers: This process's numbers, [n]; n may differ between processes.

        Returns:
            All numbers, [sum of n], on the CPU of each process.
        """
        if self.world == 1:
            return numbers.cpu()
        counts = self.all_gather_objects(len(numbers))
        most = max(counts)
        every = numbers.new_empty(self.world * most)
        dist.all_gather_into_tensor(every, F.pad(numbers, (0, most - len(numbers))))
        rows = every.cpu().view(self.world, most)
        return torch.cat([row[:count] for row, count in zip(rows, counts, strict=True)])

    def broadcast_tensors(self, tensors: Sequence[Tensor]) -> list[Tensor]:
        """Return rank 0's tensors on all processes; the tensors of the other ranks are ignored.

        They travel between devices, one after another: pickled, a large batch would keep all GPUs waiting.

        Args:
            tensors: Tensors of any shapes on the CPU.

        Returns:
            The tensors of rank 0, on the CPU of each process.
        """
        if self.world == 1:
            return list(tensors)
        spread = []
        kinds = self.broadcast([(tensor.shape, tensor.dtype) for tensor in tensors])
        for i, (shape, dtype) in enumerate(kinds):
            moved = (tensors[i] if self.is_rank_zero else torch.empty(shape, dtype=dtype)).to(self.device)
            dist.broadcast(moved, 0)
            spread.append(tensors[i] if self.is_rank_zero else moved.cpu())
        return spread

    def all_reduce_sum(self, numbers: Sequence[float]) -> list[float]:
        """Sum numbers over all processes, in order of rank, so that each process has the same bits.

        Args:
            numbers: This process's numbers, as many as on every other process.

        Returns:
            The sum of each number.
        """
        if self.world == 1:
            return list(numbers)
        return [sum(column) for column in zip(*self.all_gather_objects(list(numbers)), strict=True)]

    def barrier(self) -> None:
        """Wait until every process has come to this call."""
        if self.world > 1:
            dist.barrier(group=self.control)


ALONE = Ranks()
"""A process that trains without others."""


def _backends(device: torch.device) -> str:
    """Return the backends of collectives: gloo on the CPU, and the device's own backend for its tensors."""
    if device.type == "cpu":
        return "gloo"
    return f"cpu:gloo,{device.type}:{dist.get_default_backend_for_device(device)}"


@contextmanager
def join_ranks(
    rank: int,
    world: int,
    store: Store,
    device: torch.device,
    host: str | None = None,
    parts: int | None = None,
) -> Iterator[Ranks]:
    """Join the processes that have a store in common, until the block ends.

    `host` is the address at which processes on other machines reach this process, None if all are on one machine. Each
    copy of the model is held by `parts` neighbouring processes; if None, by all of them together.
    """
    parts = parts or world
    shape = (world // parts, parts) if parts < world else (world,)
    names = ("copies", "parts")[-len(shape) :]
    if device.type != "cpu":
        torch.get_device_module(device).set_device(device)
    set_nccl()
    with gloo_at(host):
        dist.init_process_group(
            _backends(device), store=store, rank=rank, world_size=world, timeout=COMPUTE_TIMEOUT
        )
        try:
            control = dist.new_group(backend="gloo", timeout=_ROLLOUT_TIMEOUT)
            yield Ranks(rank, world, init_device_mesh(device.type, shape, mesh_dim_names=names), control)
        except BaseException:
            if device.type != "cpu" and dist.is_initialized():
                # Others may still be in the middle of something, which an orderly end would wait for.
                dist.distributed_c10d._abort_process_group()
            raise
        finally:
            if dist.is_initialized():
                dist.destroy_process_group()
