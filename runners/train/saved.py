"""Save where training stands in one safetensors file: model, optimizers and rows of metrics."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors.torch import save_file
from torch import Tensor, nn

from runners.train.optimizers import load_optimizer_state, optimizer_state

Row = dict[str, float]


@dataclass(frozen=True, slots=True)
class Standing:
    """How far a stage is: steps done, their metrics, and the seconds they took."""

    rows: list[Row]
    seconds: list[Row]

    @property
    def steps(self) -> int:
        """Steps done."""
        return len(self.rows)


def save_tensors(path: Path, tensors: Mapping[str, Tensor], facts: Mapping[str, object]) -> None:
    """One safetensors file with facts as JSON in its header, put in place atomically; `Stored` reads it."""
    aside = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        # Cloned, so that tensors that share memory are stored each as a whole.
        copies = {name: tensor.detach().cpu().clone().contiguous() for name, tensor in tensors.items()}
        save_file(copies, aside, metadata={"facts": json.dumps(facts)})
        with aside.open("rb") as file:
            os.fsync(file.fileno())
        os.replace(aside, path)
    finally:
        aside.unlink(missing_ok=True)


def _trained(model: nn.Module) -> Iterator[tuple[str, nn.Parameter]]:
    """The parameters that a step changes: where training begins has all others."""
    return ((name, parameter) for name, parameter in model.named_parameters() if parameter.requires_grad)


def state_of(model: nn.Module, optimizers: Sequence[torch.optim.Optimizer]) -> dict[str, Tensor]:
    """All tensors that the next step depends on."""
    tensors: dict[str, Tensor] = {f"model/{name}": p for name, p in _trained(model)}
    tensors.update((f"optimizer/{name}", value) for name, value in optimizer_state(model, optimizers).items())
    return tensors


def put_back(
    tensors: Iterable[tuple[str, Tensor]], model: nn.Module, optimizers: Sequence[torch.optim.Optimizer]
) -> None:
    """Puts model and optimizers where `state_of` found them, a tensor at a time; sharded parameters take sharded ones.

    Raises KeyError where a parameter is not among the tensors.
    """
    missing = dict(_trained(model))
    for name, value in tensors:
        kind, _, rest = name.partition("/")
        if kind == "optimizer":
            load_optimizer_state(model, optimizers, {rest: value})
        else:
            with torch.no_grad():
                missing.pop(rest).copy_(value)
    if missing:
        raise KeyError(next(iter(missing)))


def save_standing(
    path: Path, model: nn.Module, optimizers: Sequence[torch.optim.Optimizer], standing: Standing
) -> None:
    """All that the next step depends on, and what the finished ones reported."""
    path.parent.mkdir(exist_ok=True)
    save_tensors(path, state_of(model, optimizers), {"rows": standing.rows, "seconds": standing.seconds})


def standing_of(facts: Mapping[str, object]) -> Standing:
    """The finished steps among a file's facts."""
    rows, seconds = facts["rows"], facts["seconds"]
    assert isinstance(rows, list)
    assert isinstance(seconds, list)
    return Standing(rows, seconds)
