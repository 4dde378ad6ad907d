"""New weights for running servers: named tensors or a folder in, the same on every server out, by one of three ways.

From shared memory where server and trainer are on one machine, by broadcast where they are apart, through files else.
"""

from __future__ import annotations

import base64
import io
import json
import shutil
import socket
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import timedelta
from multiprocessing.reduction import ForkingPickler
from pathlib import Path
from typing import Any, Literal

import httpx
import torch
import torch.multiprocessing as sharing
from safetensors.torch import save_file
from torch import distributed as dist

from reodsl.diagnostics import first_line, problem
from runners.engine.sglang.control import Refused, ask, asking, client, together
from runners.engine.sglang.rounds import Lost
from runners.engine.sglang.server import Address

Way = Literal["tensor", "broadcast", "disk"]
State = Mapping[str, torch.Tensor]

_BUCKET = 1 << 29
"""Bytes of weights that are on their way at once."""
_JOIN = timedelta(seconds=60)
_WHOLE = "load the weights of the same model, whole"


def ways(near: bool) -> tuple[Way, ...]:
    """The ways to try, the fastest first. `near`: all servers are on this machine."""
    return ("tensor", "broadcast", "disk") if near else ("broadcast", "disk")


def require_shapes(state: State, shapes: Mapping[str, tuple[int, ...]]) -> None:
    """A server does not survive tensors of other sizes than its model's. Raises E0806."""
    for name, size in shapes.items():
        if name not in state:
            raise problem("E0806", f"the weights have no tensor `{name}`", help=_WHOLE)
        if tuple(state[name].shape) != size:
            found, wanted = "×".join(map(str, state[name].shape)), "×".join(map(str, size))
            told = f"the tensor `{name}` is {found}, and the servers' model has {wanted}"
            raise problem("E0806", told, help=_WHOLE)


def update(
    way: Way, state: State, servers: Sequence[Address], ranks: int, version: int, aside: Path, model: Path
) -> None:
    """Brings a state dict to every server. `ranks` is the number of processes of each.

    `aside` is where files may be laid down, `model` the folder with the config that belongs to them. Raises `Refused`
    where a server does not take them or this process cannot send them, `Lost` where a server does not answer.
    """
    try:
        if way == "disk":
            with _laid_down(state, aside, model) as folder:
                from_disk(folder, servers, version)
        elif way == "tensor":
            _from_tensor(state, servers, ranks, version)
        else:
            _broadcast(state, servers, ranks, version)
    except (RuntimeError, OSError, ValueError, TypeError) as fault:
        raise Refused(f"{type(fault).__name__}: {first_line(fault)}") from fault


def from_disk(folder: Path, servers: Sequence[Address], version: int) -> None:
    """Lets every server read the weights of a model folder. Raises `Refused`, `Lost`."""
    for address in servers:
        with client(address) as connection:
            told = {"model_path": str(folder.resolve()), "weight_version": str(version)}
            ask(connection, "/update_weights_from_disk", told)


def _from_tensor(state: State, servers: Sequence[Address], ranks: int, version: int) -> None:
    """Hands the servers pieces of shared memory (on a GPU: handles of its memory) to copy from."""
    for address in servers:
        with client(address) as connection, _session(connection):
            for part in _buckets(state):
                with _shared_by_name():
                    # A copy: the trainer's own tensors stay out of shared memory, and the servers' view of them does too.
                    named = [(name, tensor.detach().clone()) for name, tensor in part]
                    packed = base64.b64encode(_pickled(named)).decode()
                    told = {"serialized_named_tensors": [packed] * ranks, "weight_version": str(version)}
                    ask(connection, "/update_weights_from_tensor", told)


def _broadcast(state: State, servers: Sequence[Address], ranks: int, version: int) -> None:
    """Sends each tensor once to all servers: over NCCL from a GPU, over gloo from a CPU."""
    first = next(iter(state.values()))
    backend = "nccl" if first.is_cuda else "gloo"
    name = f"reodsl-{version}"
    connections = [client(address) for address in servers]
    try:
        store, host, port = _meeting(servers)
        world = 1 + ranks * len(servers)
        group_of: list[Any] = []

        def join() -> None:
            group_of.append(_group(backend, store, world, name))

        joining = [
            asking(connection, "/init_weights_update_group", told)
            for connection, told in zip(
                connections,
                (
                    {
                        "master_address": host,
                        "master_port": port,
                        "rank_offset": 1 + ranks * number,
                        "world_size": world,
                        "group_name": name,
                        "backend": backend,
                    }
                    for number in range(len(servers))
                ),
                strict=True,
            )
        ]
        together([*joining, join])
        group = group_of[0]
        try:
            for connection in connections:
                ask(connection, "/begin_weight_update", {})
            for part in _buckets(state):
                told = {
                    "names": [name for name, _ in part],
                    "dtypes": [str(tensor.dtype).removeprefix("torch.") for _, tensor in part],
                    "shapes": [list(tensor.shape) for _, tensor in part],
                    "group_name": name,
                    "weight_version": str(version),
                }

                def send(part: Sequence[tuple[str, torch.Tensor]] = part) -> None:
                    for _, tensor in part:
                        group.broadcast([tensor.detach().contiguous()], _from_first()).wait()

                together([*(asking(c, "/update_weights_from_distributed", told) for c in connections), send])
            for connection in connections:
                ask(connection, "/end_weight_update", {})
        finally:
            for connection in connections:
                # A server that is gone has none; what failed before is what is told.
                with suppress(Lost, Refused):
                    ask(connection, "/destroy_weights_update_group", {"group_name": name})
            dist.destroy_process_group(group)
    finally:
        for connection in connections:
            connection.close()


def _meeting(servers: Sequence[Address]) -> tuple[Any, str, int]:
    """A store on a free port of the address that the servers see this machine at, and of no other."""
    host, _, theirs = servers[0].url.removeprefix("http://").rpartition(":")
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


def _group(backend: str, store: Any, world: int, name: str) -> Any:
    """Rank 0 of a group that stands beside the trainer's own; torch has no public call for one."""
    from torch.distributed.distributed_c10d import Backend, PrefixStore, _new_process_group_helper, _world

    make: Any = _new_process_group_helper
    group, _ = make(world, 0, [], Backend(backend), PrefixStore(name, store), group_name=name, timeout=_JOIN)
    _world.pg_group_ranks[group] = {rank: rank for rank in range(world)}
    return group


def _from_first() -> Any:
    options = dist.BroadcastOptions()
    options.rootRank = 0
    return options


@contextmanager
def _laid_down(state: State, aside: Path, model: Path) -> Iterator[Path]:
    """A model folder with these tensors and the config of `model`, for as long as it is read."""
    aside.mkdir(parents=True, exist_ok=True)
    folder = Path(tempfile.mkdtemp(prefix="weights-", dir=aside))
    try:
        for name in ("config.json", "generation_config.json"):
            if (model / name).is_file():
                shutil.copyfile(model / name, folder / name)
        places: dict[str, str] = {}
        for number, part in enumerate(_buckets(state)):
            file = f"model-{number:05d}.safetensors"
            save_file({name: tensor.detach().cpu().contiguous() for name, tensor in part}, folder / file)
            places |= dict.fromkeys((name for name, _ in part), file)
        index = {"metadata": {}, "weight_map": places}
        (folder / "model.safetensors.index.json").write_text(json.dumps(index), "utf-8")
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def _session(connection: httpx.Client) -> Iterator[None]:
    ask(connection, "/begin_weight_update", {})
    yield
    ask(connection, "/end_weight_update", {})


@contextmanager
def _shared_by_name() -> Iterator[None]:
    """Tensors travel as names of shared memory: a server that is no child of ours cannot take our file descriptors."""
    before = sharing.get_sharing_strategy()
    sharing.set_sharing_strategy("file_system")
    try:
        yield
    finally:
        sharing.set_sharing_strategy(before)


def _pickled(value: object) -> bytes:
    buffer = io.BytesIO()
    ForkingPickler(buffer).dump(value)
    return buffer.getvalue()


def _buckets(state: State) -> Iterator[list[tuple[str, torch.Tensor]]]:
    """The tensors in their order, some at a time. A tensor that is tied to one before it is left out, as in files."""
    part: list[tuple[str, torch.Tensor]] = []
    held = 0
    seen: set[tuple[int, tuple[int, ...]]] = set()
    for name, tensor in state.items():
        mark = (tensor.data_ptr(), tuple(tensor.shape))
        if mark in seen and name.startswith("lm_head"):
            continue
        seen.add(mark)
        size = tensor.numel() * tensor.element_size()
        if part and held + size > _BUCKET:
            yield part
            part, held = [], 0
        part.append((name, tensor))
        held += size
    if part:
        yield part
