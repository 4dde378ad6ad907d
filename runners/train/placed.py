"""Place a model where it trains: all of a checkpoint's weights, or this process's share of them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

from reodsl.ir.training import Lora
from runners.models.folder import load_model, outline
from runners.models.stored import Stored
from runners.models.tensors import weight_files
from runners.train.adapters import adapt
from runners.train.ranks import Ranks
from runners.train.sharding import Scorer, fill, shard


def place(
    folder: Path,
    device: torch.device,
    precision: torch.dtype,
    ranks: Ranks,
    lora: Lora | None = None,
    seed: int = 0,
) -> tuple[Any, Scorer | None]:
    """A model in float32, and its pass in `precision` where it is sharded over `ranks`.

    Of a sharded model each process reads its own rows. Where the files have other names than the model (as those of
    mixtures of experts do) each reads it whole, and keeps its rows. With `lora` the model has adapters, drawn from `seed`,
    and they alone are trained. Raises as `load_model`, and E0940 for adapters that it cannot have.
    """
    if ranks.mesh is None:
        model = load_model(folder)
        if lora is not None:
            adapt(model, lora, seed)
        return model.to(device), None
    model = outline(folder)
    stored = Stored(weight_files(folder))
    alike = _named_alike(model, stored)
    if not alike:
        del stored
        model = load_model(folder)
    adapters = {} if lora is None else adapt(model, lora, seed)
    scorer = shard(model, ranks, precision)
    if alike:
        fill(model, stored, ranks, adapters)
    return model, scorer


def _named_alike(model: Any, stored: Stored) -> bool:
    """Whether each tensor of the model is stored under its own name, and a tied one under one name alone."""
    first = {name for name, _ in model.named_parameters()}
    every = set(model.state_dict())
    again = {name for name, _ in model.named_parameters(remove_duplicate=False)} - first
    names = set(stored.names)
    return every - again <= names and not again & names
