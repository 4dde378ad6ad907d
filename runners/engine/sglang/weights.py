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

_REMEDY = "load all weights of the servers' model"
State = Mapping[str, torch.Tensor]


def require_shapes(state: State | SharedWeights, shapes: Mapping[str, tuple[int, ...]]) -> None:
    """Check that new weights have every tensor of the servers' model in its shape, since a server would crash otherwise.

    Args:
        state: The new weights.
        shapes: The shapes of the servers' model by tensor name.

    Raises:
        Problem: E0803 for the first tensor that is missing or has another shape.
    """
    sizes = (
        state.shapes
        if isinstance(state, SharedWeights)
        else {name: tensor.shape for name, tensor in state.items()}
    )
    for name, size in shapes.items():
        if name not in sizes:
            raise problem("E0803", f"the weights have no tensor `{name}`", help=_REMEDY)
        if tuple(sizes[name]) != size:
            given_size, expected_size = "×".join(map(str, sizes[name])), "×".join(map(str, size))
            message = f"the tensor `{name}` is {given_size}, and the servers' model has {expected_size}"
            raise problem("E0803", message, help=_REMEDY)


def load_from_disk(folder: Path, servers: Sequence[Address], version: int) -> None:
    """Let every server load the weights of a model folder, and wait until all have.

    Args:
        folder: A folder that `transformers` wrote, which the servers can read.
        servers: The servers.
        version: The number of the weights.

    Raises:
        Problem: E0824 if a server refuses the weights; ProcessDied if a server died.
    """
    with ServerGroupClient(servers) as lines:
        message = {"model_path": str(folder.resolve()), "weight_version": str(version)}
        lines.ask("/update_weights_from_disk", message)


SEND_BYTES = BUCKET_BYTES // 2
"""The most bytes of a bucket of weights. A larger tensor is a bucket by itself."""


@dataclass(frozen=True, slots=True)
class Bucket:
    """Tensors of a model that are sent together: named views of `flat`, a contiguous tensor of bytes."""

    flat: torch.Tensor
    tensors: tuple[tuple[str, torch.Tensor], ...]


def buckets(tensors: Iterable[tuple[str, torch.Tensor]], size: int = SEND_BYTES) -> Iterator[Bucket]:
    """Yield copies of named tensors in buckets, in their order.

    Servers read the copies, never the trainer's own tensors. A copy stays on the device of its tensor. All numbers of a
    bucket have the same width in bytes, which keeps every view in `flat` aligned.

    Args:
        tensors: Full tensors by name.
        size: The most bytes of a bucket, except for a single larger tensor.
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
    """Turn expandable segments of torch's allocator off inside a `with` block, if the user has turned them on.

    Servers have to open the memory that is allocated in the block. To open an expandable segment, a server would need a
    system call that containers forbid. On a CPU the block changes nothing.
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
    """A reader of buckets that copies the next bucket while servers read the last; `bucket` is the newest copy."""

    def __init__(self, tensors: Iterable[tuple[str, torch.Tensor]], size: int | None = None) -> None:
        """Copy the first bucket of full tensors by name, of at most `size` bytes (None for `SEND_BYTES`)."""
        self._upcoming = buckets(tensors, size or SEND_BYTES)
        self.put_together()

    def put_together(self) -> None:
        """Copy the next tensors into a new `bucket`, or set it to None after the last."""
        self.bucket = next(self._upcoming, None)


def group_tensors(
    tensors: Iterable[tuple[str, torch.Tensor]], size: int = SEND_BYTES
) -> Iterator[list[tuple[str, torch.Tensor]]]:
    """Yield groups of consecutive named tensors whose numbers have the same width in bytes.

    A new group begins if the next tensor has numbers of another width, or would make the group larger than `size`.

    Args:
        tensors: Full tensors by name.
        size: The most bytes of a group, except for a single larger tensor.
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
    """Yield the names and tensors of a state dict, except an output head whose memory was yielded before.

    With tied weights the output head (`lm_head…`) is the same memory as the embeddings, which come first.
    """
    seen: set[tuple[int, tuple[int, ...]]] = set()
    for name, tensor in state.items():
        memory = (tensor.data_ptr(), tuple(tensor.shape))
        if not (memory in seen and name.startswith("lm_head")):
            yield name, tensor
        seen.add(memory)


_TIMEOUT_SECONDS = 60.0
"""Seconds until all processes have joined, and until each bucket has arrived."""


def broadcast(
    pieces: Iterable[tuple[str, torch.Tensor]],
    servers: Sequence[Address],
    ranks: int,
    version: int,
    scratch_dir: Path,
) -> None:
    """Broadcast weights from this process to all servers: by NCCL from a GPU, by gloo from a CPU.

    The next bucket is copied while servers receive a bucket.

    Args:
        pieces: Full tensors by name.
        servers: The servers.
        ranks: The number of processes of each server.
        version: The number of the weights.
        scratch_dir: The folder for the rendezvous file, which the servers can read and write.

    Raises:
        Problem: E0824 if a server refuses the weights; ProcessDied if a server died or a bucket does not arrive.
    """
    fetcher, name = BucketPrefetcher(pieces), f"reodsl-{version}"
    assert fetcher.bucket is not None
    backend = "nccl" if fetcher.bucket.flat.is_cuda else "gloo"
    try:
        with (
            ServerGroupClient(servers) as client,
            _group(client, ranks, backend, name, scratch_dir) as group,
            update_session(client),
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
                receive = partial(client.ask, "/update_weights_from_distributed", message)
                call_all([receive, partial(group.send, bucket.flat)], fetcher.put_together, _TIMEOUT_SECONDS)
    except RuntimeError as fault:
        raise explain_loss(servers[0], first_line(fault)) from fault


class BroadcastGroup:
    """This process's membership, as rank 0, in a process group with servers.

    A trainer already has a default group, and torch has no public call for a second group with other processes.
    """

    def __init__(self, backend: str, store: Any, world: int, name: str, channels: int = 0) -> None:
        """Join the group as rank 0.

        Args:
            backend: `nccl` or `gloo`.
            store: The store of the rendezvous.
            world: The number of processes of the group.
            name: The name of the group.
            channels: The number of NCCL channels in the servers' processes; 0 if NCCL chooses the number.
        """
        from torch.distributed.distributed_c10d import Backend, PrefixStore, _new_process_group_helper, _world

        make: Any = _new_process_group_helper
        self._store, self._nccl = store, backend == "nccl"
        # NCCL's watchdog kills the process at its timeout, which has to come after the timeout of `call_all`.
        timeout, options = timedelta(seconds=_TIMEOUT_SECONDS * (4 if self._nccl else 1)), None
        if self._nccl and channels:
            options = dist.ProcessGroupNCCL.Options()
            options.config.min_ctas = options.config.max_ctas = channels
            options._timeout = timeout
        prefixed = PrefixStore(name, store)
        self._group, _ = make(world, 0, [], Backend(backend), prefixed, name, options, timeout)
        _world.pg_group_ranks[self._group] = {rank: rank for rank in range(world)}

    def send(self, tensor: torch.Tensor) -> None:
        """Broadcast a tensor, and return when all ranks have it. The call may wait forever for a rank that died.

        Args:
            tensor: The bytes of a bucket, [bytes].
        """
        options = dist.BroadcastOptions()
        options.rootRank = 0
        self._group.broadcast([tensor], options).wait()
        if tensor.is_cuda:
            # NCCL's `wait` does not wait for the GPU.
            torch.cuda.current_stream(tensor.device).synchronize()

    def leave(self, is_broken: bool) -> None:
        """Leave the group; if `is_broken`, abort NCCL's pending work instead of waiting for it."""
        if is_broken and self._nccl:
            dist.distributed_c10d._abort_process_group(self._group)
        else:
            dist.destroy_process_group(self._group)


@contextmanager
def _group(
    client: ServerGroupClient, ranks: int, backend: str, name: str, scratch_dir: Path
) -> Iterator[BroadcastGroup]:
    """Form a process group of this process (rank 0) and all processes of the servers for a `with` block.

    If the block raises an exception, the servers are not asked to leave the group, and pending work is aborted.

    Args:
        client: The connections to the servers.
        ranks: The number of processes of each server.
        backend: `nccl` or `gloo`.
        name: The name of the group.
        scratch_dir: The folder for the rendezvous file, which the servers can read and write.
    """
    world, joined = 1 + ranks * len(client.servers), list[BroadcastGroup]()
    scratch_dir.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="meeting-", dir=scratch_dir, ignore_cleanup_errors=True) as path:
        file = Path(path).resolve() / "file"
        # `launch.meet_in_file` recognises a path by its first letter. A port would be open to everybody.
        rendezvous = {
            "master_address": str(file),
            "master_port": 0,
            "world_size": world,
            "group_name": name,
            "backend": backend,
        }
        messages = [rendezvous | {"rank_offset": 1 + ranks * number} for number in range(len(client.servers))]

        def join() -> None:
            """Join the group in this process, which waits until all servers have joined."""
            set_nccl()
            with gloo_at(_local_address(client.servers[0])):
                store, channels = (
                    SharedFile(file, world, timedelta(seconds=_TIMEOUT_SECONDS)),
                    client.servers[0].channels,
                )
                joined.append(BroadcastGroup(backend, store, world, name, channels))

        is_broken = True
        try:
            call_all(
                [partial(client.ask, "/init_weights_update_group", messages), join], patience=_TIMEOUT_SECONDS
            )
            yield joined[0]
            client.ask("/destroy_weights_update_group", {"group_name": name})
            is_broken = False
        finally:
            for membership in joined:
                membership.leave(is_broken)


def _local_address(server: Address) -> str:
    """Return the IP address of this machine from which packets to a server are sent."""
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
    per_server: int,
    version: int,
    size: int = SEND_BYTES,
) -> None:
    """Hand all weights to the server on this process's device through shared memory, bucket by bucket.

    Every rank of a trainer calls this function (see `SharedWeights.run_on_all`). Server i has `per_server` processes.
    They run on the devices of the ranks i × per_server to (i + 1) × per_server - 1. The first of these ranks gathers
    the handles of their buckets and sends them to the server. Ranks without a server only take part in `gather`. While
    a server reads a bucket, the next is copied.

    Args:
        pieces: Full tensors by name.
        rank: The rank of this process.
        gather: Returns the values that all processes pass to it, by rank.
        servers: The servers by number.
        per_server: The number of processes of each server.
        version: The number of the weights.
        size: The most bytes of a bucket.

    Raises:
        Problem: E0824 if a server refuses the weights; ProcessDied if a server died.
    """
    number, rank_in_server = divmod(rank, per_server)
    address = servers.get(number)
    with ExitStack() as session:
        client: ServerGroupClient | None = None
        if address is not None and rank_in_server == 0:
            client = session.enter_context(ServerGroupClient([address]))
            session.enter_context(update_session(client))
        fetcher, in_use = BucketPrefetcher(pieces, size), None
        while (bucket := fetcher.bucket) is not None:
            # Servers may read the last bucket until all ranks are here, so `in_use` keeps its memory until then.
            payloads = gather(packed_tensors(bucket) if address is not None else "")
            in_use = bucket
            if client is None:
                fetcher.put_together()
                continue
            message = {
                "serialized_named_tensors": payloads[number * per_server : (number + 1) * per_server],
                "weight_version": str(version),
            }
            client.ask("/update_weights_from_tensor", message, fetcher.put_together)
        gather(None)
        del in_use


def packed_tensors(bucket: Bucket) -> str:
    """Return a bucket's tensors in SGLang's format: base64 of pickled handles of shared memory or GPU memory."""
    with _shared_by_name():
        buffer = io.BytesIO()
        _Pickler(buffer).dump(list(bucket.tensors))
        return base64.b64encode(buffer.getvalue()).decode()


class _Pickler(ForkingPickler):
    """A pickler that writes a GPU's UUID instead of its index, which differs between processes."""

    def reducer_override(self, value: Any) -> Any:
        """Return how to pickle a CUDA tensor; `NotImplemented`, the default of pickle, for any other value."""
        if not (isinstance(value, torch.Tensor) and value.is_cuda):
            return NotImplemented
        return by_identity(reductions.reduce_tensor(value))


def by_identity(reduced: tuple[Any, tuple[Any, ...]]) -> tuple[Any, tuple[Any, ...]]:
    """Replace the index of the device by its UUID, which SGLang also reads, in the pickled form of a CUDA tensor.

    Args:
        reduced: The function that rebuilds the tensor and its arguments, from `reduce_tensor`.

    Returns:
        The function and the changed arguments; `reduced` itself if it is no CUDA tensor with an index.
    """
    function, arguments = reduced
    if function is not reductions.rebuild_cuda_tensor or not isinstance(arguments[_DEVICE_INDEX], int):
        return reduced
    identity = str(torch.cuda.get_device_properties(arguments[_DEVICE_INDEX]).uuid)
    return function, (*arguments[:_DEVICE_INDEX], identity, *arguments[_DEVICE_INDEX + 1 :])


@contextmanager
def _shared_by_name() -> Iterator[None]:
    """Pickle CPU tensors as names of shared memory inside a `with` block, instead of file descriptors.

    A server is not a child of this process, and cannot receive its file descriptors.
    """
    former = sharing.get_sharing_strategy()
    sharing.set_sharing_strategy("file_system")
    try:
        yield
    finally:
        sharing.set_sharing_strategy(former)
