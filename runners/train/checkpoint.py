"""Load the model that is trained, and save the state of its training: a file for each part, and an index.

A state that some number of processes saved can be loaded by any other number, one included.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import save_file
from torch import Tensor, nn

from reodsl.diagnostics import first_line, problem
from reodsl.ir.training import Lora
from reodsl.store.files import replacing, write_atomic
from reodsl.store.live import mark_kept
from runners.models.folder import load_model, load_outline
from runners.models.tensors import TensorFiles, weight_files
from runners.train.adapters import adapt
from runners.train.optimizers import load_optimizer_state, optimizer_state
from runners.train.ranks import Ranks
from runners.train.sharding import Scorer, load_local_rows, read_local_rows, shard, to_local

Row = dict[str, float]
_INDEX = "shards.json"


@dataclass(frozen=True, slots=True)
class TrainingState:
    """The finished steps of a stage: their metrics, and the seconds they took."""

    rows: list[Row]
    seconds: list[Row]

    @property
    def steps(self) -> int:
        """Steps done."""
        return len(self.rows)


def save_tensors(path: Path, tensors: Mapping[str, Tensor], facts: Mapping[str, object]) -> None:
    """Write a safetensors file atomically, with facts as JSON in its header; `TensorFiles` reads it.

    Args:
        path: The file.
        tensors: Tensors by name, on any device.
        facts: What the header holds.
    """
    # Copied, so that tensors that share memory are stored each as a whole.
    copies = {name: tensor.detach().to("cpu", copy=True).contiguous() for name, tensor in tensors.items()}
    with replacing(path) as temporary:
        save_file(copies, temporary, metadata={"facts": json.dumps(facts)})


def _trained_parameters(model: nn.Module, teacher: nn.Module | None) -> dict[str, nn.Parameter]:
    """Return the parameters that steps change, and the parameters of a teacher that follows the policy."""
    own = {f"model/{name}": p for name, p in model.named_parameters() if p.requires_grad}
    followers = {} if teacher is None else dict(teacher.named_parameters())
    return own | {f"teacher/{name}": p for name, p in followers.items()}


def save_state(
    work: Path,
    model: nn.Module,
    optimizers: Sequence[torch.optim.Optimizer],
    state: TrainingState,
    ranks: Ranks,
    teacher: nn.Module | None = None,
) -> None:
    """Save in `work` everything that the next step depends on: a file for each shard of the model.

    A `teacher` that follows the policy is part of the state. The files of a step are all written before the index names
    that step; older files are removed then.
    """
    tensors: dict[str, Tensor] = {**_trained_parameters(model, teacher)}
    tensors |= {f"optimizer/{name}": value for name, value in optimizer_state(model, optimizers).items()}
    folder = work / f"shards-{state.steps:08d}"
    folder.mkdir(parents=True, exist_ok=True)
    part, parts = ranks.shard
    if ranks.rank == part:
        # Other copies have the same numbers.
        rows = {name: to_local(value) for name, value in tensors.items()}
        save_tensors(folder / _file(part, parts), rows, {"rank": part, "world": parts})
    ranks.barrier()
    if ranks.is_rank_zero:
        index = {"folder": folder.name, "world": parts, "rows": state.rows, "seconds": state.seconds}
        write_atomic(work / _INDEX, json.dumps(index).encode())
        mark_kept(work, state.steps)
        for old in work.glob("shards-*"):
            if old != folder:
                shutil.rmtree(old, ignore_errors=True)


def load_state(
    work: Path,
    model: nn.Module,
    optimizers: Sequence[torch.optim.Optimizer],
    ranks: Ranks,
    teacher: nn.Module | None = None,
) -> TrainingState:
    """Restore model, optimizers and a `teacher` that follows from the last `save_state`, and return that state.

    Without a saved state it has no steps. Raises E0939 if the state cannot be read, as that of an older version.
    """
    if not (work / _INDEX).is_file():
        return TrainingState([], [])
    try:
        index = json.loads((work / _INDEX).read_text("utf-8"))
        world, folder = int(index["world"]), work / index["folder"]
        stored = TensorFiles([folder / _file(rank, world) for rank in range(world)])
        _restore(iter_local_shards(stored, model, ranks), model, optimizers, teacher)
        rows, seconds = index["rows"], index["seconds"]
        assert isinstance(rows, list)
        assert isinstance(seconds, list)
        return TrainingState(rows, seconds)
    except (SafetensorError, OSError, ValueError, KeyError, TypeError, RuntimeError, AssertionError) as fault:
        raise problem(
            "E0939",
            "what an interrupted stage has left cannot be read",
            where=str(work),
            notes=[f"{type(fault).__name__}: {first_line(fault, '')}"],
            help="remove that folder, and the stage begins again",
        ) from fault


def _restore(
    tensors: Iterable[tuple[str, Tensor]],
    model: nn.Module,
    optimizers: Sequence[torch.optim.Optimizer],
    teacher: nn.Module | None,
) -> None:
    """Copy stored tensors into the model and optimizers, one at a time. Raises KeyError for a parameter that is missing."""
    missing = _trained_parameters(model, teacher)
    for name, value in tensors:
        kind, _, rest = name.partition("/")
        if kind == "optimizer":
            load_optimizer_state(model, optimizers, {rest: value})
        else:
            with torch.no_grad():
                missing.pop(name).copy_(value)
    if missing:
        raise KeyError(next(iter(missing)))


def iter_local_shards(stored: TensorFiles, model: nn.Module, ranks: Ranks) -> Iterator[tuple[str, Tensor]]:
    """Yield this rank's rows of each stored tensor, whose name ends in that of its parameter.

    Returns:
        Pairs of a name and a tensor, [rows of this rank, ...].
    """
    for name in stored.names:
        yield name, read_local_rows(stored, name, model.get_parameter(name.rsplit("/", 1)[1]), ranks)


def _file(rank: int, world: int) -> str:
    return f"{rank}-of-{world}.safetensors"


def load_trained_model(
    folder: Path,
    device: torch.device,
    precision: torch.dtype,
    ranks: Ranks,
    lora: Lora | None = None,
    seed: int = 0,
) -> tuple[Any, Scorer]:
    """Load a model in float32, and its pass in `precision`.

    Each process reads its rows of a sharded model. If the files have other names than the model (as those of mixtures
    of experts do), each process reads the full model, and keeps its rows. With `lora` the model has adapters, drawn
    from `seed`, and only they are trained. Raises as `load_model`, and E0940 for adapters that the model cannot have.
    """
    if ranks.mesh is None:
        model = load_model(folder)
        if lora is not None:
            adapt(model, lora, seed)
        return model.to(device), Scorer(model, precision, casts=precision != torch.float32)
    model, stored = load_outline(folder), TensorFiles(weight_files(folder))
    alike = _has_same_names(model, stored)
    if not alike:
        del stored
        model = load_model(folder)
    adapters = {} if lora is None else adapt(model, lora, seed)
    scorer = shard(model, ranks, precision)
    if alike:
        load_local_rows(model, stored, ranks, adapters)
    return model, scorer


def _has_same_names(model: Any, stored: TensorFiles) -> bool:
    """Return whether each tensor of the model is stored under its own name, and a tied tensor under one name only."""
    first = {name for name, _ in model.named_parameters()}
    tied = {name for name, _ in model.named_parameters(remove_duplicate=False)} - first
    names = set(stored.names)
    return set(model.state_dict()) - tied <= names and not tied & names
