"""Save where sharded training stands: a safetensors file for each process, then the index that makes them count.

A standing that some number of processes left can be taken on by any other number, one included.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path

import torch
from safetensors import SafetensorError
from torch import Tensor, nn

from reodsl.diagnostics import first_line, problem
from reodsl.store.files import write_atomic
from runners.models.stored import Stored
from runners.train.ranks import Ranks
from runners.train.saved import (
    Standing,
    put_back,
    save_standing,
    save_tensors,
    standing_of,
    state_of,
)
from runners.train.sharding import local, own_part

_WHOLE, _INDEX = "standing.safetensors", "shards.json"


def save_anywhere(
    work: Path,
    model: nn.Module,
    optimizers: Sequence[torch.optim.Optimizer],
    standing: Standing,
    ranks: Ranks,
) -> None:
    """Leaves in `work` all that the next step depends on: one file where the model is not sharded, else one a process.

    The files of a step are all written before the index names that step; the ones before are removed then.
    """
    if ranks.mesh is None:
        save_standing(work / _WHOLE, model, optimizers, standing)
        return
    folder = work / f"shards-{standing.steps:08d}"
    folder.mkdir(parents=True, exist_ok=True)
    parts = {name: local(value) for name, value in state_of(model, optimizers).items()}
    save_tensors(folder / _file(ranks.rank, ranks.world), parts, {"rank": ranks.rank, "world": ranks.world})
    ranks.wait()
    if ranks.first:
        index = {
            "folder": folder.name,
            "world": ranks.world,
            "rows": standing.rows,
            "seconds": standing.seconds,
        }
        write_atomic(work / _INDEX, json.dumps(index).encode())
        for old in work.glob("shards-*"):
            if old != folder:
                shutil.rmtree(old, ignore_errors=True)


def load_anywhere(
    work: Path, model: nn.Module, optimizers: Sequence[torch.optim.Optimizer], ranks: Ranks
) -> Standing:
    """Puts model and optimizers where the furthest `save_anywhere` found them; nothing done yet where there was none.

    Raises E0939 where what is there cannot be read, as that of an older version.
    """
    try:
        return _load(work, model, optimizers, ranks)
    except (SafetensorError, OSError, ValueError, KeyError, TypeError, RuntimeError, AssertionError) as fault:
        raise problem(
            "E0939",
            "what an interrupted stage has left cannot be read",
            where=str(work),
            notes=[f"{type(fault).__name__}: {first_line(fault, '')}"],
            help="remove that folder, and the stage begins again",
        ) from fault


def _load(
    work: Path, model: nn.Module, optimizers: Sequence[torch.optim.Optimizer], ranks: Ranks
) -> Standing:
    index = json.loads((work / _INDEX).read_text("utf-8")) if (work / _INDEX).is_file() else None
    whole = Stored([work / _WHOLE]) if (work / _WHOLE).is_file() else None
    if whole is not None and (index is None or len(whole.facts["rows"]) > len(index["rows"])):
        put_back(own_parts(whole, model, ranks), model, optimizers)
        return standing_of(whole.facts)
    if index is None:
        return Standing([], [])
    world = int(index["world"])
    parts = Stored([work / index["folder"] / _file(rank, world) for rank in range(world)])
    put_back(own_parts(parts, model, ranks), model, optimizers)
    return standing_of(index)


def own_parts(stored: Stored, model: nn.Module, ranks: Ranks) -> Iterator[tuple[str, Tensor]]:
    """What this process has of each stored tensor, one after another; they are named by what they belong to and, after the
    last stroke, a parameter.
    """
    for name in stored.names:
        yield name, own_part(stored, name, model.get_parameter(name.rsplit("/", 1)[1]), ranks)


def _file(rank: int, world: int) -> str:
    return f"{rank}-of-{world}.safetensors"
