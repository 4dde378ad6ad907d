"""Bring new weights to running servers, to all of them at once.

Each trainer hands them to the server on its own devices, through shared memory or handles of a GPU's; servers apart get
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
from runners.engine.sglang.control import Lines, call_all, lost, update_session
from runners.engine.sglang.server import Address
from runners.engine.sglang.settings import EXPANDABLE
from runners.machine.placement import set_nccl
from runners.machine.rendezvous import SharedFile, gloo_at

_WHOLE = "load the weights of the same model, whole"
State = Mapping[str, torch.Tensor]


def require_shapes(state: State | SharedWeights, shapes: Mapping[str, tuple[int, ...]]) -> None:
    """Refuse tensors of other sizes than the servers' model's, which a server does not survive. Raises E0803."""
    given = (
        state.shapes
        if isinstance(state, SharedWeights)
        else {name: each.shape for name, each in state.items()}
    )
    for name, size in shapes.items():
        if name not in given:
            raise problem("E0803", f"the weights have no tensor `{name}`", help=_WHOLE)
        if tuple(given[name]) != size:
            given_size, wanted = "×".join(map(str, given[name])), "×".join(map(str, size))
            message = f"the tensor `{name}` is {given_size}, and the servers' model has {wanted}"
            raise problem("E0803", message, help=_WHOLE)


def from_disk(folder: Path, servers: Sequence[Address], version: int) -> None:
    """Let every server read the weights of a model folder. Raises what `Lines.ask` does."""
    with Lines(servers) as lines:
        message = {"model_path": str(folder.resolve()), "weight_version": str(version)}
        lines.ask("/update_weights_from_disk", message)


SIZE = BUCKET_BYTES // 2
"""Bytes of weights that are on their way at once. A single larger tensor is a bucket of its own."""


@dataclass(frozen=True, slots=True)
class Bucket:
    """Some tensors of a model, as views of `flat`, a tensor of bytes in which one follows the other."""

    flat: torch.Tensor
    tensors: tuple[tuple[str, torch.Tensor], ...]


def buckets(tensors: Iterable[tuple[str, torch.Tensor]], size: int = SIZE) -> Iterator[Bucket]:
    """Yield named tensors in their order, copied into buckets of at most `size` bytes each.

    The copy is made on the tensors' own device, bucket by bucket, so that nobody who reads a bucket sees the trainer's own
    memory. Tensors of one width follow each other; a bucket never mixes widths, so each view is aligned.
    """
    for part in parts(tensors, size):
        whole = sum(tensor.numel() * tensor.element_size() for _, tensor in part)
        device = part[0][1].device
        with _whole_segments(device):
            flat = torch.empty(whole, dtype=torch.uint8, device=device)
        views: list[tuple[str, torch.Tensor]] = []
        at = 0
        for name, tensor in part:
            end = at + tensor.numel() * tensor.element_size()
            view = flat[at:end].view(tensor.dtype).view(tensor.shape)
            view.copy_(tensor.detach())
            views.append((name, view))
            at = end
        yield Bucket(flat, tuple(views))


@contextmanager
def _whole_segments(device: torch.device) -> Iterator[None]:
    """Let memory that is taken in this block be such as another process may open, whatever the user has set for others.

    Of expandable segments it gets a file's number and asks the system for the file, which containers do not allow.
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
    """Buckets, the next of which is put together while `bucket` is read; None after the last."""

    def __init__(self, tensors: Iterable[tuple[str, torch.Tensor]], size: int | None = None) -> None:
        self._upcoming = buckets(tensors, size or SIZE)
        self.put_together()

    def put_together(self) -> None:
        self.bucket = next(self._upcoming, None)


def parts(
    tensors: Iterable[tuple[str, torch.Tensor]], size: int = SIZE
) -> Iterator[list[tuple[str, torch.Tensor]]]:
    """Yield named tensors in their order, as many at a time as `size` bytes hold."""
    part: list[tuple[str, torch.Tensor]] = []
    filled = 0
    for name, tensor in tensors:
        bytes_ = tensor.numel() * tensor.element_size()
        if part and (filled + bytes_ > size or tensor.element_size() != part[0][1].element_size()):
            yield part
            part, filled = [], 0
        part.append((name, tensor))
        filled += bytes_
    if part:
        yield part


def untied(state: State) -> Iterator[tuple[str, torch.Tensor]]:
    """Yield the tensors of a state dict without a head that is tied to the embeddings before it, as in files of weights."""
    seen: set[tuple[int, tuple[int, ...]]] = set()
    for name, tensor in state.items():
        mark = (tensor.data_ptr(), tuple(tensor.shape))
        if not (mark in seen and name.startswith("lm_head")):
            yield name, tensor
        seen.add(mark)


_PATIENCE = 60.0
"""Seconds until everybody has joined, and until each bucket has arrived."""


def send(
    pieces: Iterable[tuple[str, torch.Tensor]],
    servers: Sequence[Address],
    ranks: int,
    version: int,
    aside: Path,
) -> None:
    """Send weights to all servers, of `ranks` processes each: over NCCL from a GPU, over gloo from a CPU.

    All meet in a folder within `aside`, which the servers see. Each bucket is sent once. While it is on its way and read,
    the next one is put together. Raises what `Lines.ask` does, and ProcessDied where a bucket does not arrive.
    """
    ahead, name = BucketPrefetcher(pieces), f"reodsl-{version}"
    assert ahead.bucket is not None
    backend = "nccl" if ahead.bucket.flat.is_cuda else "gloo"
    try:
        with (
            Lines(servers) as lines,
            _group(lines, ranks, backend, name, aside) as group,
            update_session(lines),
        ):
            while (bucket := ahead.bucket) is not None:
                message = {
                    "names": [name for name, _ in bucket.tensors],
                    "dtypes": [str(tensor.dtype).removeprefix("torch.") for _, tensor in bucket.tensors],
                    "shapes": [list(tensor.shape) for _, tensor in bucket.tensors],
                    "load_format": "flattened_bucket",
                    "group_name": name,
                    "weight_version": str(version),
                }
                taking = partial(lines.ask, "/update_weights_from_distributed", message)
                call_all([taking, partial(group.send, bucket.flat)], ahead.put_together, _PATIENCE)
    except RuntimeError as fault:
        raise lost(servers[0], first_line(fault)) from fault


class BroadcastGroup:
    """Rank 0 of a group beside the trainer's own; torch has no public call for one."""

    def __init__(self, backend: str, store: Any, world: int, name: str, channels: int = 0) -> None:
        """`channels` are those that NCCL takes in the others' processes, 0 where it chooses in all."""
        from torch.distributed.distributed_c10d import Backend, PrefixStore, _new_process_group_helper, _world

        make: Any = _new_process_group_helper
        self._store, self._nccl = store, backend == "nccl"
        # NCCL's own watch ends the whole process, so it has to be the later to notice.
        late, options = timedelta(seconds=_PATIENCE * (4 if self._nccl else 1)), None
        if self._nccl and channels:
            options = dist.ProcessGroupNCCL.Options()
            options.config.min_ctas = options.config.max_ctas = channels
            options._timeout = late
        prefixed = PrefixStore(name, store)
        self._group, _ = make(world, 0, [], Backend(backend), prefixed, name, options, late)
        _world.pg_group_ranks[self._group] = {rank: rank for rank in range(world)}

    def send(self, tensor: torch.Tensor) -> None:
        """Send a tensor to all others, and return once all have it. It may wait for ever for one that died."""
        options = dist.BroadcastOptions()
        options.rootRank = 0
        self._group.broadcast([tensor], options).wait()
        if tensor.is_cuda:
            # NCCL's `wait` returns at once.
            torch.cuda.current_stream(tensor.device).synchronize()

    def leave(self, broken: bool) -> None:
        """End the group on this side; a `broken` one without waiting for what NCCL still has to do."""
        if broken and self._nccl:
            dist.distributed_c10d._abort_process_group(self._group)
        else:
            dist.destroy_process_group(self._group)


@contextmanager
def _group(lines: Lines, ranks: int, backend: str, name: str, aside: Path) -> Iterator[BroadcastGroup]:
    """Join this process and all servers in a group until the block ends."""
    world, joined = 1 + ranks * len(lines.servers), list[BroadcastGroup]()
    aside.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="meeting-", dir=aside, ignore_cleanup_errors=True) as folder:
        file = Path(folder).resolve() / "file"
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
                    SharedFile(file, world, timedelta(seconds=_PATIENCE)),
                    lines.servers[0].channels,
                )
                joined.append(BroadcastGroup(backend, store, world, name, channels))

        broken = True
        try:
            call_all([partial(lines.ask, "/init_weights_update_group", messages), join], patience=_PATIENCE)
            yield joined[0]
            lines.ask("/destroy_weights_update_group", {"group_name": name})
            broken = False
        finally:
            for membership in joined:
                membership.leave(broken)


def _seen_at(server: Address) -> str:
    """Return the address that a server sees this machine at."""
    host, _, port = server.url.removeprefix("http://").rpartition(":")
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.connect((host, int(port)))
        return str(probe.getsockname()[0])


_DEVICE = 6
"""The place of the device's number among the arguments of `rebuild_cuda_tensor`."""


def hand(
    pieces: Iterator[tuple[str, torch.Tensor]],
    rank: int,
    gather: Callable[[Any], list[Any]],
    servers: Mapping[int, Address],
    wide: int,
    version: int,
    size: int = SIZE,
) -> None:
    """Hand all weights to the server that this process's device belongs to, bucket by bucket; see `Spread.each`.

    While a server reads a bucket, the next one is put together.

    Server number i has `wide` processes, on the devices of ranks i × wide and on. The first of these ranks tells it, for
    all of them. Raises what `Lines.ask` does.
    """
    number, place = divmod(rank, wide)
    address = servers.get(number)
    with ExitStack() as session:
        lines: Lines | None = None
        if address is not None and place == 0:
            lines = session.enter_context(Lines([address]))
            session.enter_context(update_session(lines))
        ahead, read = BucketPrefetcher(pieces, size), None
        while (bucket := ahead.bucket) is not None:
            # Until all have come here, servers may still read what this process handed out before.
            payloads = gather(packed_tensors(bucket) if address is not None else "")
            read = bucket
            if lines is None:
                ahead.put_together()
                continue
            message = {
                "serialized_named_tensors": payloads[number * wide : (number + 1) * wide],
                "weight_version": str(version),
            }
            lines.ask("/update_weights_from_tensor", message, ahead.put_together)
        gather(None)
        del read


def packed_tensors(bucket: Bucket) -> str:
    """Return a bucket's tensors as a server reads them: names of shared memory, on a GPU handles of its memory."""
    with _shared_by_name():
        buffer = io.BytesIO()
        _Pickler(buffer).dump(list(bucket.tensors))
        return base64.b64encode(buffer.getvalue()).decode()


class _Pickler(ForkingPickler):
    """Names a GPU by what it is, and not by its number: each process counts those that it is shown."""

    def reducer_override(self, value: Any) -> Any:
        if not (isinstance(value, torch.Tensor) and value.is_cuda):
            return NotImplemented
        return by_identity(reductions.reduce_tensor(value))


def by_identity(reduced: tuple[Any, tuple[Any, ...]]) -> tuple[Any, tuple[Any, ...]]:
    """Return a reduced CUDA tensor with its device's identity in place of its number, which SGLang reads as well."""
    function, arguments = reduced
    if function is not reductions.rebuild_cuda_tensor or not isinstance(arguments[_DEVICE], int):
        return reduced
    identity = str(torch.cuda.get_device_properties(arguments[_DEVICE]).uuid)
    return function, (*arguments[:_DEVICE], identity, *arguments[_DEVICE + 1 :])


@contextmanager
def _shared_by_name() -> Iterator[None]:
    """Let tensors travel as names of shared memory: a server that is no child of ours cannot take our file descriptors."""
    before = sharing.get_sharing_strategy()
    sharing.set_sharing_strategy("file_system")
    try:
        yield
    finally:
        sharing.set_sharing_strategy(before)
