"""Bring new weights to running servers, to all of them at once.

Each trainer hands them to the server on its own devices, through shared memory or handles of a GPU's; other servers get
them by broadcast, and the checkpoint of a task from its files.
"""

from __future__ import annotations

import base64
import io
import socket
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from multiprocessing.reduction import ForkingPickler
from pathlib import Path
from typing import Any

import torch
import torch.multiprocessing as sharing
from torch import distributed as dist
from torch.multiprocessing import reductions

from reodsl.diagnostics import first_line, problem
from reodsl.price.memory import BUCKET_BYTES
from runners.engine.protocol import SharedWeights
from runners.engine.sglang.control import ServerGroupClient, call_all, explain_loss, update_session
from runners.engine.sglang.server import Address
from runners.engine.sglang.settings import EXPANDABLE
from runners.machine.placement import set_nccl
from runners.machine.rendezvous import SharedFile, gloo_at

_REMEDY = "load the weights of the same model, whole"
State = Mapping[str, torch.Tensor]


def require_shapes(state: State | SharedWeights, shapes: Mapping[str, tuple[int, ...]]) -> None:
    """Refuse tensors of other sizes than the servers' model, because a server would end. Raises E0803."""
    sizes = (
        state.shapes
        if isinstance(state, SharedWeights)
        else {name: tensor.shape for name, tensor in state.items()}
    )
    for name, size in shapes.items():
        if name not in sizes:
            raise problem("E0803", f"the weights have no tensor `{name}`", help=_REMEDY)
        if tuple(sizes[name]) != size:
            given_size, size_there = "×".join(map(str, sizes[name])), "×".join(map(str, size))
            message = f"the tensor `{name}` is {given_size}, and the servers' model has {size_there}"
            raise problem("E0803", message, help=_REMEDY)


def load_from_disk(folder: Path, servers: Sequence[Address], version: int) -> None:
    """Let every server read the weights of a model folder. Raises as `ServerGroupClient.ask`."""
    with ServerGroupClient(servers) as lines:
        message = {"model_path": str(folder.resolve()), "weight_version": str(version)}
        lines.ask("/update_weights_from_disk", message)


SEND_BYTES = BUCKET_BYTES // 2
"""Bytes of weights that travel at once. A larger tensor is a bucket of its own."""


@dataclass(frozen=True, slots=True)
class Bucket:
    """Tensors of a model, as views of `flat`, a tensor of bytes in which they follow each other."""

    flat: torch.Tensor
    tensors: tuple[tuple[str, torch.Tensor], ...]


def buckets(tensors: Iterable[tuple[str, torch.Tensor]], size: int = SEND_BYTES) -> Iterator[Bucket]:
    """Yield named tensors in their order, copied into buckets.

    The copy is made on the tensors' own device, bucket by bucket, so that no reader of a bucket sees the trainer's own
    memory. Tensors of one width follow each other; a bucket never mixes widths, so each view is aligned.

    Args:
        tensors: Full tensors by name.
        size: The most bytes of a bucket.
    """
    for group in group_tensors(tensors, size):
        length = sum(tensor.numel() * tensor.element_size() for _, tensor in group)
        device = group[0][1].device
        with _shareable_memory(device):
            flat = torch.empty(length, dtype=torch.uint8, device=device)
        views: list[tuple[str, torch.Tensor]] = []
        start = 0
        for name, tensor in group:
            end = start + tensor.numel() * tensor.element_size()
            view = flat[start:end].view(tensor.dtype).view(tensor.shape)
            view.copy_(tensor.detach())
            views.append((name, view))
            start = end
        yield Bucket(flat, tuple(views))


@contextmanager
def _shareable_memory(device: torch.device) -> Iterator[None]:
    """Allocate memory in this block so that another process may open it, whatever the user has set.

    Another process opens an expandable segment through a file that it asks the system for, which containers do not
    allow.
    """
    settings = torch._C._accelerator_getAllocatorSettings() if device.type == "cuda" else ""
    if not EXPANDABLE.search(settings):
        yield
        return
    torch._C._accelerator_setAllocatorSettings(EXPANDABLE.sub(r"\1False", settings))
    try:
        yield
    finally:
        torch._C._accelerator_setAllocatorSettings(settings)


class BucketPrefetcher:
    """Buckets, the next of which is copied while `bucket` is read; None after the last."""

    def __init__(self, tensors: Iterable[tuple[str, torch.Tensor]], size: int | None = None) -> None:
        self._upcoming = buckets(tensors, size or SEND_BYTES)
        self.put_together()

    def put_together(self) -> None:
        """Copy the next bucket."""
        self.bucket = next(self._upcoming, None)


def group_tensors(
    tensors: Iterable[tuple[str, torch.Tensor]], size: int = SEND_BYTES
) -> Iterator[list[tuple[str, torch.Tensor]]]:
    """Yield named tensors in their order, in groups of equal width.

    Args:
        tensors: Full tensors by name.
        size: The most bytes of a group.
    """
    group: list[tuple[str, torch.Tensor]] = []
    filled = 0
    for name, tensor in tensors:
        bytes_ = tensor.numel() * tensor.element_size()
        if group and (filled + bytes_ > size or tensor.element_size() != group[0][1].element_size()):
            yield group
            group, filled = [], 0
        group.append((name, tensor))
        filled += bytes_
    if group:
        yield group


def iter_untied(state: State) -> Iterator[tuple[str, torch.Tensor]]:
    """Yield the tensors of a state dict without a head that is tied to the embeddings before it.

    Returns:
        Pairs of a name and a tensor, as files of weights have them.
    """
    seen: set[tuple[int, tuple[int, ...]]] = set()
    for name, tensor in state.items():
        mark = (tensor.data_ptr(), tuple(tensor.shape))
        if not (mark in seen and name.startswith("lm_head")):
            yield name, tensor
        seen.add(mark)


_TIMEOUT_SECONDS = 60.0
"""Seconds until all processes have joined, and until each bucket has arrived."""


def broadcast(
    pieces: Iterable[tuple[str, torch.Tensor]],
    servers: Sequence[Address],
    ranks: int,
    version: int,
    scratch_dir: Path,
) -> None:
    """Broadcast weights to all servers: over NCCL from a GPU, over gloo from a CPU.

    Each bucket is sent once. While it travels and is read, the next is copied.

    Args:
        pieces: Full tensors by name.
        servers: The servers.
        ranks: Processes of each server.
        version: The version of the weights.
        scratch_dir: The folder in which all meet, which the servers see.

    Raises:
        Problem: As `ServerGroupClient.ask`; ProcessDied if a bucket does not arrive.
    """
    fetcher, name = BucketPrefetcher(pieces), f"reodsl-{version}"
    assert fetcher.bucket is not None
    backend = "nccl" if fetcher.bucket.flat.is_cuda else "gloo"
    try:
        with (
            ServerGroupClient(servers) as lines,
            _group(lines, ranks, backend, name, scratch_dir) as group,
            update_session(lines),
        ):
            while (bucket := fetcher.bucket) is not None:
                message = {
                    "names": [name for name, _ in bucket.tensors],
                    "dtypes": [str(tensor.dtype).removeprefix("torch.") for _, tensor in bucket.tensors],
                    "shapes": [list(tensor.shape) for _, tensor in bucket.tensors],
                    "load_format": "flattened_bucket",
                    "group_name": name,
                    "weight_version": str(version),
                }
                taking = partial(lines.ask, "/update_weights_from_distributed", message)
                call_all([taking, partial(group.send, bucket.flat)], fetcher.put_together, _TIMEOUT_SECONDS)
    except RuntimeError as fault:
        raise explain_loss(servers[0], first_line(fault)) from fault


class BroadcastGroup:
    """Rank 0 of a group besides the trainer's own; torch has no public call for a second group."""

    def __init__(self, backend: str, store: Any, world: int, name: str, channels: int = 0) -> None:
        """Join the group; `channels` are NCCL's in the servers' processes, 0 if NCCL chooses everywhere."""
        from torch.distributed.distributed_c10d import Backend, PrefixStore, _new_process_group_helper, _world

        make: Any = _new_process_group_helper
        self._store, self._nccl = store, backend == "nccl"
        # NCCL's own watch ends the whole process, so it has to be the later to notice.
        late, options = timedelta(seconds=_TIMEOUT_SECONDS * (4 if self._nccl else 1)), None
        if self._nccl and channels:
            options = dist.ProcessGroupNCCL.Options()
            options.config.min_ctas = options.config.max_ctas = channels
            options._timeout = late
        prefixed = PrefixStore(name, store)
        self._group, _ = make(world, 0, [], Backend(backend), prefixed, name, options, late)
        _world.pg_group_ranks[self._group] = {rank: rank for rank in range(world)}

    def send(self, tensor: torch.Tensor) -> None:
        """Broadcast a tensor, and return when all ranks have it. The call may wait for ever for a rank that died.

        Args:
            tensor: A bucket's bytes, [bytes].
        """
        options = dist.BroadcastOptions()
        options.rootRank = 0
        self._group.broadcast([tensor], options).wait()
        if tensor.is_cuda:
            # NCCL's `wait` returns at once.
            torch.cuda.current_stream(tensor.device).synchronize()

    def leave(self, broken: bool) -> None:
        """Leave the group; if it is `broken`, without waiting for NCCL's pending work."""
        if broken and self._nccl:
            dist.distributed_c10d._abort_process_group(self._group)
        else:
            dist.destroy_process_group(self._group)


@contextmanager
def _group(
    lines: ServerGroupClient, ranks: int, backend: str, name: str, scratch_dir: Path
) -> Iterator[BroadcastGroup]:
    """Join this process and all servers in a group until the block ends."""
    world, joined = 1 + ranks * len(lines.servers), list[BroadcastGroup]()
    scratch_dir.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="meeting-", dir=scratch_dir, ignore_cleanup_errors=True) as path:
        file = Path(path).resolve() / "file"
        # The launcher knows a file by its first letter. A port would answer everybody.
        meeting = {
            "master_address": str(file),
            "master_port": 0,
            "world_size": world,
            "group_name": name,
            "backend": backend,
        }
        messages = [meeting | {"rank_offset": 1 + ranks * number} for number in range(len(lines.servers))]

        def join() -> None:
            set_nccl()
            with gloo_at(_seen_at(lines.servers[0])):
                store, channels = (
                    SharedFile(file, world, timedelta(seconds=_TIMEOUT_SECONDS)),
                    lines.servers[0].channels,
                )
                joined.append(BroadcastGroup(backend, store, world, name, channels))

        broken = True
        try:
            call_all(
                [partial(lines.ask, "/init_weights_update_group", messages), join], patience=_TIMEOUT_SECONDS
            )
            yield joined[0]
            lines.ask("/destroy_weights_update_group", {"group_name": name})
            broken = False
        finally:
            for membership in joined:
                membership.leave(broken)


def _seen_at(server: Address) -> str:
    """Return the address at which a server sees this machine."""
    host, _, port = server.url.removeprefix("http://").rpartition(":")
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.connect((host, int(port)))
        return str(probe.getsockname()[0])


_DEVICE_INDEX = 6
"""The position of the device's number among the arguments of `rebuild_cuda_tensor`."""


def hand_over(
    pieces: Iterator[tuple[str, torch.Tensor]],
    rank: int,
    gather: Callable[[Any], list[Any]],
    servers: Mapping[int, Address],
    wide: int,
    version: int,
    size: int = SEND_BYTES,
) -> None:
    """Hand all weights to the server on this process's device, bucket by bucket; see `SharedWeights.run_on_all`.

    While a server reads a bucket, the next is copied. Server number i has `wide` processes, on the devices of ranks i ×
    wide and on. The first of these ranks sends the messages for all of them.

    Args:
        pieces: Full tensors by name.
        rank: This process's rank.
        gather: Gives every process the values of all, by rank.
        servers: Servers by number.
        wide: Processes of each server.
        version: The version of the weights.
        size: The most bytes of a bucket.

    Raises:
        Problem: As `ServerGroupClient.ask`.
    """
    number, rank_in_server = divmod(rank, wide)
    address = servers.get(number)
    with ExitStack() as session:
        lines: ServerGroupClient | None = None
        if address is not None and rank_in_server == 0:
            lines = session.enter_context(ServerGroupClient([address]))
            session.enter_context(update_session(lines))
        fetcher, read = BucketPrefetcher(pieces, size), None
        while (bucket := fetcher.bucket) is not None:
            # Until all have come here, servers may still read what this process handed out before.
            payloads = gather(packed_tensors(bucket) if address is not None else "")
            read = bucket
            if lines is None:
                fetcher.put_together()
                continue
            message = {
                "serialized_named_tensors": payloads[number * wide : (number + 1) * wide],
                "weight_version": str(version),
            }
            lines.ask("/update_weights_from_tensor", message, fetcher.put_together)
        gather(None)
        del read


def packed_tensors(bucket: Bucket) -> str:
    """Return a bucket's tensors as a server reads them: names of shared memory, or handles of a GPU's memory."""
    with _shared_by_name():
        buffer = io.BytesIO()
        _Pickler(buffer).dump(list(bucket.tensors))
        return base64.b64encode(buffer.getvalue()).decode()


class _Pickler(ForkingPickler):
    """A pickler that names a GPU by its identity and not by its number: each process counts the GPUs that it sees."""

    def reducer_override(self, value: Any) -> Any:
        if not (isinstance(value, torch.Tensor) and value.is_cuda):
            return NotImplemented
        return by_identity(reductions.reduce_tensor(value))


def by_identity(reduced: tuple[Any, tuple[Any, ...]]) -> tuple[Any, tuple[Any, ...]]:
    """Return a reduced CUDA tensor with its device's identity in place of its number, which SGLang reads as well."""
    function, arguments = reduced
    if function is not reductions.rebuild_cuda_tensor or not isinstance(arguments[_DEVICE_INDEX], int):
        return reduced
    identity = str(torch.cuda.get_device_properties(arguments[_DEVICE_INDEX]).uuid)
    return function, (*arguments[:_DEVICE_INDEX], identity, *arguments[_DEVICE_INDEX + 1 :])


@contextmanager
def _shared_by_name() -> Iterator[None]:
    """Let tensors travel as names of shared memory: a server that is no child of ours cannot take our file descriptors."""
    before = sharing.get_sharing_strategy()
    sharing.set_sharing_strategy("file_system")
    try:
        yield
    finally:
        sharing.set_sharing_strategy(before)
