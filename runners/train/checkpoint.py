"""Load the model to train, and save and load the state of its training: a file per shard of the model, and an index.

A state that was saved by any number of processes can be loaded by any other number of processes.
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
        """The number of finished steps."""
        return len(self.rows)


def save_tensors(path: Path, tensors: Mapping[str, Tensor], facts: Mapping[str, object]) -> None:
    """Write a safetensors file atomically; `TensorFiles` reads it.

    Args:
        path: The file.
        tensors: Tensors by name, on any device.
        facts: Values for the file's header, where they are stored as JSON under the key `facts`.
    """
    # Copies, because safetensors refuses tensors that share memory.
    copies = {name: tensor.detach().to("cpu", copy=True).contiguous() for name, tensor in tensors.items()}
    with replacing(path) as temporary:
        save_file(copies, temporary, metadata={"facts": json.dumps(facts)})


def _trained_parameters(model: nn.Module, teacher: nn.Module | None) -> dict[str, nn.Parameter]:
    """Return the parameters to save, by prefixed name: the model's trainable ones, and all of a moving teacher's.

    Args:
        model: The policy; its parameter names get the prefix `model/`.
        teacher: A model that follows the policy by a moving average; its parameter names get the prefix `teacher/`.
    """
    trained = {f"model/{name}": p for name, p in model.named_parameters() if p.requires_grad}
    followers = {} if teacher is None else dict(teacher.named_parameters())
    return trained | {f"teacher/{name}": p for name, p in followers.items()}


def save_state(
    work: Path,
    model: nn.Module,
    optimizers: Sequence[torch.optim.Optimizer],
    state: TrainingState,
    ranks: Ranks,
    teacher: nn.Module | None = None,
) -> None:
    """Save weights, optimizers and metrics, from which training continues, as one file per shard of the model.

    All ranks must call this. If copies of the model exist, only the first copy's ranks write. The index is written after
    all files of the step, and older files are then removed; an interruption thus leaves a complete state.

    Args:
        work: The stage's working directory.
        model: The policy.
        optimizers: The optimizers of the policy.
        state: The number of finished steps, a row of metrics for each, and the seconds they took.
        ranks: The processes of the training.
        teacher: A model that follows the policy by a moving average, if there is a moving teacher.
    """
    tensors: dict[str, Tensor] = {**_trained_parameters(model, teacher)}
    tensors |= {f"optimizer/{name}": value for name, value in optimizer_state(model, optimizers).items()}
    folder = work / f"shards-{state.steps:08d}"
    folder.mkdir(parents=True, exist_ok=True)
    shard, shards = ranks.shard
    if ranks.rank == shard:
        # Ranks above hold replicas of the same shards.
        local_shards = {name: to_local(value) for name, value in tensors.items()}
        save_tensors(folder / _shard_file_name(shard, shards), local_shards, {"rank": shard, "world": shards})
    ranks.barrier()
    if ranks.is_rank_zero:
        index = {"folder": folder.name, "world": shards, "rows": state.rows, "seconds": state.seconds}
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
    """Restore model, optimizers and teacher in place from the last `save_state`, if a state was saved.

    The arguments are those of `save_state`. The state may have been saved by another number of processes.

    Returns:
        The finished steps; no steps if nothing was saved.

    Raises:
        Problem: E0939, if the saved state cannot be read, e.g. because an older version wrote it.
    """
    if not (work / _INDEX).is_file():
        return TrainingState([], [])
    try:
        index = json.loads((work / _INDEX).read_text("utf-8"))
        world, folder = int(index["world"]), work / index["folder"]
        stored = TensorFiles([folder / _shard_file_name(rank, world) for rank in range(world)])
        _restore(iter_local_shards(stored, model, ranks), model, optimizers, teacher)
        rows, seconds = index["rows"], index["seconds"]
        assert isinstance(rows, list)
        assert isinstance(seconds, list)
        return TrainingState(rows, seconds)
    except (SafetensorError, OSError, ValueError, KeyError, TypeError, RuntimeError, AssertionError) as fault:
        raise problem(
            "E0939",
            "the saved state of an interrupted stage cannot be read",
            where=str(work),
            notes=[f"{type(fault).__name__}: {first_line(fault, '')}"],
            help="remove this folder to start the stage again from its first step",
        ) from fault


def _restore(
    tensors: Iterable[tuple[str, Tensor]],
    model: nn.Module,
    optimizers: Sequence[torch.optim.Optimizer],
    teacher: nn.Module | None,
) -> None:
    """Copy stored tensors into the model, teacher and optimizers, one tensor at a time.

    Args:
        tensors: Pairs of a stored name (`model/…`, `teacher/…` or `optimizer/…`) and this rank's rows.
        model: The policy.
        optimizers: The optimizers of the policy.
        teacher: A model that follows the policy by a moving average; None if there is no such teacher.

    Raises:
        KeyError: A parameter was not stored, or a stored name is unknown.
    """
    missing = _trained_parameters(model, teacher)
    for name, value in tensors:
        prefix, _, suffix = name.partition("/")
        if prefix == "optimizer":
            load_optimizer_state(model, optimizers, {suffix: value})
        else:
            with torch.no_grad():
                missing.pop(name).copy_(value)
    if missing:
        raise KeyError(next(iter(missing)))


def iter_local_shards(stored: TensorFiles, model: nn.Module, ranks: Ranks) -> Iterator[tuple[str, Tensor]]:
    """Yield this rank's rows of each stored tensor.

    Args:
        stored: The files. A tensor's name ends in a slash and the name of a parameter of the model. The tensor is
            sharded like this parameter.
        model: The policy.
        ranks: The processes of the training.

    Yields:
        Pairs of a stored name and a tensor, [rows of this rank, ...].
    """
    for name in stored.names:
        yield name, read_local_rows(stored, name, model.get_parameter(name.rsplit("/", 1)[1]), ranks)


def _shard_file_name(rank: int, world: int) -> str:
    return f"{rank}-of-{world}.safetensors"


def load_trained_model(
    folder: Path,
    device: torch.device,
    precision: torch.dtype,
    ranks: Ranks,
    lora: Lora | None = None,
    seed: int = 0,
) -> tuple[Any, Scorer]:
    """Load a model in float32 for training, with a scorer that runs its forward pass in `precision`.

    A single process without a mesh loads the full model. Otherwise the model is sharded, and each process reads only its
    own rows from the files. This needs equal names in the files and in the model. If they differ, as for mixtures of
    experts, each process reads the full model and keeps its own rows.

    Args:
        folder: The checkpoint.
        device: The device of the model.
        precision: The precision of the forward pass.
        ranks: The processes of the training.
        lora: The settings of LoRA adapters; if given, the adapters alone are trained.
        seed: The seed of the adapters' initial values.

    Returns:
        The model, and its scorer.

    Raises:
        Problem: As `load_model`; or E0940, if the model lacks a matrix that `lora` adapts.
    """
    if ranks.mesh is None:
        model = load_model(folder)
        if lora is not None:
            adapt(model, lora, seed)
        return model.to(device), Scorer(model, precision, casts=precision != torch.float32)
    model, stored = load_outline(folder), TensorFiles(weight_files(folder))
    has_same_names = _has_same_names(model, stored)
    if not has_same_names:
        del stored
        model = load_model(folder)
    adapters = {} if lora is None else adapt(model, lora, seed)
    scorer = shard(model, ranks, precision)
    if has_same_names:
        load_local_rows(model, stored, ranks, adapters)
    return model, scorer


def _has_same_names(model: Any, stored: TensorFiles) -> bool:
    """Return whether the files have every tensor of the model under the model's name, and no second name of tied ones.

    Tied tensors share memory; only the first of their names may occur in the files.
    """
    parameter_names = {name for name, _ in model.named_parameters()}
    tied = {name for name, _ in model.named_parameters(remove_duplicate=False)} - parameter_names
    stored_names = set(stored.names)
    return set(model.state_dict()) - tied <= stored_names and not tied & stored_names
