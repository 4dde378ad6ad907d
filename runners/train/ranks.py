"""Communication between the processes that train one model; a single process communicates with nobody."""

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
"""The longest wait of other processes while rank 0 generates and grades."""
COMPUTE_TIMEOUT = datetime.timedelta(minutes=10)
"""The longest wait for another process within a forward or backward pass."""


@dataclass(frozen=True, slots=True)
class Ranks:
    """The rank of this process among the `world` processes that train a model; rank 0 also generates and writes.

    The model is sharded over `mesh`; None if this process trains alone with plain tensors. If the mesh has two
    dimensions, each of its rows has a full copy of the model. `control` is a gloo group for Python values, with a
    longer timeout.
    """

    rank: int = 0
    world: int = 1
    mesh: DeviceMesh | None = None
    control: dist.ProcessGroup | None = None

    @property
    def is_rank_zero(self) -> bool:
        """Return whether this process is rank 0, which also generates and writes."""
        return self.rank == 0

    @property
    def device(self) -> torch.device:
        """Return the device whose tensors collectives exchange; only for processes with a mesh."""
        assert self.mesh is not None
        # `join_ranks` has made this process's device the current device.
        return torch.device(self.mesh.device_type)

    @property
    def shard(self) -> tuple[int, int]:
        """Return the index of this process's shard of the weights, and the number of shards of one copy of the model."""
        num_shards = 1 if self.mesh is None else self.mesh.size(self.mesh.ndim - 1)
        return self.rank % num_shards, num_shards

    def broadcast(self, value: T | None) -> T:
        """Return rank 0's picklable value on all ranks; values of other ranks are ignored."""
        if self.world == 1:
            return cast(T, value)
        values: list[Any] = [value]
        dist.broadcast_object_list(values, src=0, group=self.control)
        return values[0]

    def all_gather_objects(self, value: T) -> list[T]:
        """Return the picklable values of all ranks, in order of rank, on every rank."""
        if self.world == 1:
            return [value]
        values: list[Any] = [None] * self.world
        dist.all_gather_object(values, value, group=self.control)
        return values

    def all_gather(self, numbers: Tensor) -> Tensor:
        """Concatenate one-dimensional tensors of all ranks in order of rank; all ranks must call this.

        Args:
            numbers: This process's tensor, [n]; n may differ between processes.

        Returns:
            All numbers, [sum of n], on the CPU of each process.
        """
        if self.world == 1:
            return numbers.cpu()
        counts = self.all_gather_objects(len(numbers))
        longest = max(counts)
        padded = numbers.new_empty(self.world * longest)
        dist.all_gather_into_tensor(padded, F.pad(numbers, (0, longest - len(numbers))))
        rows = padded.cpu().view(self.world, longest)
        return torch.cat([row[:count] for row, count in zip(rows, counts, strict=True)])

    def broadcast_tensors(self, tensors: Sequence[Tensor]) -> list[Tensor]:
        """Return rank 0's tensors on all ranks; tensors of other ranks are ignored.

        The tensors are sent between devices. Pickling a large batch instead would keep all GPUs waiting.

        Args:
            tensors: Tensors of any shapes on the CPU.

        Returns:
            The tensors of rank 0, on the CPU of each process.
        """
        if self.world == 1:
            return list(tensors)
        received = []
        layouts = self.broadcast([(tensor.shape, tensor.dtype) for tensor in tensors])
        for i, (shape, dtype) in enumerate(layouts):
            on_device = (tensors[i] if self.is_rank_zero else torch.empty(shape, dtype=dtype)).to(self.device)
            dist.broadcast(on_device, 0)
            received.append(tensors[i] if self.is_rank_zero else on_device.cpu())
        return received

    def all_reduce_sum(self, numbers: Sequence[float]) -> list[float]:
        """Sum numbers over all ranks; all ranks must call this.

        Each rank adds in order of rank, so all ranks get equal bits.

        Args:
            numbers: This process's numbers; every process passes equally many.

        Returns:
            The sum of each number over ranks.
        """
        if self.world == 1:
            return list(numbers)
        return [sum(column) for column in zip(*self.all_gather_objects(list(numbers)), strict=True)]

    def barrier(self) -> None:
        """Wait until every rank has reached this call."""
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
    copy_size: int | None = None,
) -> Iterator[Ranks]:
    """Join the process group of a training for the duration of a `with` block, which gets the `Ranks`.

    If an exception leaves the block on a GPU, the process group is aborted, because an orderly end could wait forever.

    Args:
        rank: The rank of this process.
        world: The number of processes.
        store: The key-value store by which all processes find each other.
        device: The device of this process.
        host: The address at which processes on other machines reach this process; None if all processes are on one
            machine.
        copy_size: The number of neighbouring ranks that hold one copy of the model together; None for all ranks.
    """
    copy_size = copy_size or world
    shape = (world // copy_size, copy_size) if copy_size < world else (world,)
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
                # Abort: an orderly end would wait for collectives that other ranks are still in.
                dist.distributed_c10d._abort_process_group()
            raise
        finally:
            if dist.is_initialized():
                dist.destroy_process_group()
