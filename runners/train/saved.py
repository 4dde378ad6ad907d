"""Where training stands: model, optimizers, and rows of metrics in one safetensors file, written whole or not at all."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors import safe_open
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
    """One safetensors file with facts as JSON in its header, put in place atomically."""
    aside = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        # Cloned, so that tensors that share memory are stored each as a whole.
        held = {name: tensor.detach().cpu().clone().contiguous() for name, tensor in tensors.items()}
        save_file(held, aside, metadata={"facts": json.dumps(facts)})
        with aside.open("rb") as file:
            os.fsync(file.fileno())
        os.replace(aside, path)
    finally:
        aside.unlink(missing_ok=True)


def load_tensors(path: Path) -> tuple[dict[str, Tensor], dict[str, object]]:
    """What `save_tensors` wrote."""
    with safe_open(path, framework="pt") as file:
        tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        facts = json.loads(file.metadata()["facts"])
    return tensors, facts


def state_of(model: nn.Module, optimizers: Sequence[torch.optim.Optimizer]) -> dict[str, Tensor]:
    """All tensors that the next step depends on."""
    tensors: dict[str, Tensor] = {f"model/{name}": p for name, p in model.named_parameters()}
    tensors.update((f"optimizer/{name}", value) for name, value in optimizer_state(model, optimizers).items())
    return tensors


def put_back(
    tensors: Mapping[str, Tensor], model: nn.Module, optimizers: Sequence[torch.optim.Optimizer]
) -> None:
    """Puts model and optimizers where `state_of` found them; sharded parameters take sharded tensors."""
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            parameter.copy_(tensors[f"model/{name}"])
    state = {
        name.removeprefix("optimizer/"): t for name, t in tensors.items() if name.startswith("optimizer/")
    }
    load_optimizer_state(model, optimizers, state)


def save_standing(
    path: Path, model: nn.Module, optimizers: Sequence[torch.optim.Optimizer], standing: Standing
) -> None:
    """All that the next step depends on, and what the finished ones reported."""
    path.parent.mkdir(exist_ok=True)
    save_tensors(path, state_of(model, optimizers), {"rows": standing.rows, "seconds": standing.seconds})


def load_standing(path: Path, model: nn.Module, optimizers: Sequence[torch.optim.Optimizer]) -> Standing:
    """Puts model and optimizers where `save_standing` found them; nothing done yet where there is no file."""
    if not path.is_file():
        return Standing([], [])
    tensors, facts = load_tensors(path)
    put_back(tensors, model, optimizers)
    return standing_of(facts)


def standing_of(facts: Mapping[str, object]) -> Standing:
    """The finished steps among a file's facts."""
    rows, seconds = facts["rows"], facts["seconds"]
    assert isinstance(rows, list)
    assert isinstance(seconds, list)
    return Standing(rows, seconds)
