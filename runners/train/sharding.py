"""A model sharded over processes by FSDP2: a `transformers` decoder in, its parameters spread, and whole tensors back."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn
from torch.distributed.fsdp import FSDPModule, MixedPrecisionPolicy, fully_shard
from torch.distributed.tensor import DTensor

from runners.train.forward import plain_forward
from runners.train.logprobs import token_logprobs
from runners.train.ranks import Ranks


class Scorer(nn.Module):
    """Log-probabilities of tokens as one module, so that sharded parameters are whole from the embedding to the loss."""

    def __init__(self, model: Any, precision: torch.dtype) -> None:
        """`precision` is that of the passes."""
        super().__init__()
        self.model, self.precision = model, precision
        self.hidden = plain_forward(model).hidden

    def forward(self, ids: Tensor, at: Tensor, targets: Tensor, temperature: float) -> Tensor:
        """As `token_logprobs`, for ids [rows, width] and flat positions `at` in them; [positions]."""
        hidden = self.hidden(ids, at, ())
        return token_logprobs(hidden, self.model.get_output_embeddings().weight, targets, temperature)


def shard(model: Any, ranks: Ranks, precision: torch.dtype) -> Scorer:
    """Spreads the parameters over `ranks.mesh`, layer by layer, as float32 shards; passes run in `precision`.

    Gradients are summed over processes in float32, not averaged: a loss carries its mean over all of them. The root's
    weights too are given back after each pass, since a step may change shards without a backward pass.
    """
    rule = MixedPrecisionPolicy(param_dtype=precision, reduce_dtype=torch.float32)
    scorer = Scorer(model, precision)
    for layer in model.get_submodule("model").layers:
        fully_shard(layer, mesh=ranks.mesh, mp_policy=rule, reshard_after_forward=True)
    fully_shard(scorer, mesh=ranks.mesh, mp_policy=rule, reshard_after_forward=True)
    for module in scorer.modules():
        if isinstance(module, FSDPModule):
            module.set_gradient_divide_factor(1.0)
            module.set_force_sum_reduction_for_comms(True)
    return scorer


def whole(value: Tensor) -> Tensor:
    """A sharded tensor put together from all processes, each of which has to ask; a plain one as it is."""
    return value.full_tensor() if isinstance(value, DTensor) else value


def whole_state(model: Any, ranks: Ranks, device: torch.device, precision: torch.dtype) -> dict[str, Tensor]:
    """All tensors by their `transformers` names on the first process, nothing on the others; all have to ask.

    A tied matrix is there under each of its names. Rounded to `precision` before they travel.
    """
    found: dict[str, Tensor] = {}
    names: dict[int, str] = {}
    for name, parameter in (*model.named_parameters(remove_duplicate=False), *_buffers(model)):
        if id(parameter) in names:
            found.update({name: found[names[id(parameter)]]} if ranks.first else {})
            continue
        names[id(parameter)] = name
        made = whole(parameter.detach().to(precision))
        if ranks.first:
            found[name] = made.to(device)
    return found


def _buffers(model: Any) -> Iterator[tuple[str, Tensor]]:
    kept = set(model.state_dict())
    return ((name, buffer) for name, buffer in model.named_buffers() if name in kept)


def own_part(value: Tensor, ranks: Ranks) -> Tensor:
    """This process's rows of a whole tensor, in the way that FSDP2 cuts it: even parts, the last ones shorter or empty."""
    if value.ndim == 0:
        return value
    parts = value.chunk(ranks.world)
    return parts[ranks.rank] if ranks.rank < len(parts) else value[:0]


def like(part: Tensor, parameter: Tensor) -> Tensor:
    """This process's rows as the sharded tensor that they are part of, laid out as `parameter` is."""
    if part.ndim == 0 or not isinstance(parameter, DTensor):
        return part
    return DTensor.from_local(
        part.to(parameter.device),
        parameter.device_mesh,
        parameter.placements,
        shape=parameter.shape,
        stride=parameter.stride(),
    )


def local(value: Tensor) -> Tensor:
    """This process's rows of a sharded tensor; a plain one as it is."""
    return value.to_local() if isinstance(value, DTensor) else value
