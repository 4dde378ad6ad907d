"""Bring new weights to running servers, to all of them at once.

They go through shared memory where servers and trainer are on one machine, by broadcast between machines, and through
files where neither works.
"""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Literal

from safetensors.torch import save_file

from reodsl.diagnostics import first_line, problem
from runners.engine.protocol import Spread
from runners.engine.sglang.broadcast import send
from runners.engine.sglang.buckets import State, buckets, parts, untied
from runners.engine.sglang.control import Lines, Refused, update_session
from runners.engine.sglang.handing import packed_tensors
from runners.engine.sglang.server import Address

Way = Literal["tensor", "broadcast", "disk"]
_WHOLE = "load the weights of the same model, whole"


def ways(near: bool) -> tuple[Way, ...]:
    """Return the ways to try, the fastest first. `near`: all servers are on this machine."""
    return ("tensor", "broadcast", "disk") if near else ("broadcast", "disk")


def require_shapes(state: State | Spread, shapes: Mapping[str, tuple[int, ...]]) -> None:
    """Refuse tensors of other sizes than the servers' model's, which a server does not survive. Raises E0806."""
    given = state.shapes if isinstance(state, Spread) else {name: each.shape for name, each in state.items()}
    for name, size in shapes.items():
        if name not in given:
            raise problem("E0806", f"the weights have no tensor `{name}`", help=_WHOLE)
        if tuple(given[name]) != size:
            given_size, wanted = "×".join(map(str, given[name])), "×".join(map(str, size))
            message = f"the tensor `{name}` is {given_size}, and the servers' model has {wanted}"
            raise problem("E0806", message, help=_WHOLE)


def update(
    way: Way, state: State, servers: Sequence[Address], ranks: int, version: int, aside: Path, model: Path
) -> None:
    """Bring a state dict to every server. `ranks` is the number of processes of each.

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
            send(state, servers, ranks, version)
    except (RuntimeError, OSError, ValueError, TypeError) as fault:
        raise Refused(f"{type(fault).__name__}: {first_line(fault)}") from fault


def from_disk(folder: Path, servers: Sequence[Address], version: int) -> None:
    """Let every server read the weights of a model folder. Raises `Refused`, `Lost`."""
    message = {"model_path": str(folder.resolve()), "weight_version": str(version)}
    size = sum(path.stat().st_size for path in folder.glob("*.safetensors"))
    with Lines(servers) as lines:
        lines.ask("/update_weights_from_disk", message, size)


def _from_tensor(state: State, servers: Sequence[Address], ranks: int, version: int) -> None:
    """Hand servers pieces of shared memory (on a GPU: handles of its memory) to copy from, all of them the same."""
    with Lines(servers) as lines, update_session(lines):
        for bucket in buckets(untied(state)):
            packed = packed_tensors(bucket)
            message = {"serialized_named_tensors": [packed] * ranks, "weight_version": str(version)}
            lines.ask("/update_weights_from_tensor", message)


@contextmanager
def _laid_down(state: State, aside: Path, model: Path) -> Iterator[Path]:
    """Write a model folder with these tensors and the config of `model`, for as long as it is read."""
    aside.mkdir(parents=True, exist_ok=True)
    folder = Path(tempfile.mkdtemp(prefix="weights-", dir=aside))
    try:
        for name in ("config.json", "generation_config.json"):
            if (model / name).is_file():
                shutil.copyfile(model / name, folder / name)
        places: dict[str, str] = {}
        for number, part in enumerate(parts(untied(state))):
            file = f"model-{number:05d}.safetensors"
            save_file({name: tensor.detach().cpu().contiguous() for name, tensor in part}, folder / file)
            places |= dict.fromkeys((name for name, _ in part), file)
        index = {"metadata": {}, "weight_map": places}
        (folder / "model.safetensors.index.json").write_text(json.dumps(index), "utf-8")
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
