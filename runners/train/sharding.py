"""A decoder's pass as one module, FSDP2's shards of it over processes, and its tensors put together again.

Rows are padded on the right, which a causal decoder never looks at, so no mask is needed; or packed into one.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.distributed.fsdp import FSDPModule, MixedPrecisionPolicy, fully_shard
from torch.distributed.tensor import DTensor
from transformers.conversion_mapping import get_model_conversion_mapping
from transformers.core_model_loading import revert_weight_conversion

from runners.models.tensors import TensorFiles
from runners.train.adapters import LoraLinear, is_adapter, merge
from runners.train.attention import PackedSequences
from runners.train.logprobs import Distributions, TopkDistributions, score_tokens
from runners.train.ranks import ALONE, Ranks


class Scorer(nn.Module):
    """Log-probabilities of tokens as a module, so that sharded parameters are gathered from the embedding to the loss.

    `precision` is that of the passes. A sharded model has its weights in it; a model that `casts` keeps its residual
    stream, norms and softmax in float32.
    """

    def __init__(self, model: Any, precision: torch.dtype = torch.float32, casts: bool = False) -> None:
        """Wrap a model."""
        super().__init__()
        self.model, self.precision, self.casts = model, precision, casts

    def forward(
        self,
        ids: Tensor,
        positions: Tensor,
        targets: Tensor | None,
        temperature: float = 1.0,
        entropies: bool = False,
        sequences: PackedSequences | None = None,
        other: Distributions | TopkDistributions | None = None,
    ) -> Tensor:
        """Return the scores of `score_tokens`, or hidden states.

        Args:
            ids: Token ids of `MicroBatch`, [rows, width] or [1, tokens].
            positions: Flat positions in `ids` that predict the targets, [trained tokens].
            targets: Token ids, [trained tokens]; None asks for hidden states.
            temperature: Of the distribution.
            entropies: Whether entropies are asked for.
            sequences: The boundaries of packed rows.
            other: The distributions to compare with, None for no divergence.

        Returns:
            Nats, [trained tokens] or [2 or 3, trained tokens]; without targets the last hidden states, [trained tokens,
                hidden].
        """
        where = {} if sequences is None else {"position_ids": sequences.positions, "sequences": sequences}
        body = self.model.get_submodule("model")
        with torch.autocast(ids.device.type, self.precision, enabled=self.casts):
            states = body(input_ids=ids, use_cache=False, **where).last_hidden_state
        hidden: Tensor = states.flatten(0, 1)[positions].to(self.precision)
        if targets is None:
            return hidden
        weight = self.model.get_output_embeddings().weight.to(self.precision)
        return score_tokens(hidden, weight, targets, temperature, entropies, other)


def enable_activation_checkpointing(model: Any) -> None:
    """Let the model's forward pass keep a hidden state for each layer, and its backward pass compute the rest again."""
    model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
    for layer in model.get_submodule("model").layers:
        # Of the layer alone: what is inside it stays in evaluation mode, so that no dropout begins.
        layer.training = True


def shard(model: Any, ranks: Ranks, precision: torch.dtype) -> Scorer:
    """Spread the parameters over `ranks.mesh`, layer by layer, as float32 shards; passes run in `precision`.

    Copies of the model, if it has two dimensions, add up the gradients of their shards. Gradients are summed over
    processes in float32, not averaged: a loss carries its mean over all of them. The root's
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


def join_copies(scorer: Scorer, now: bool) -> None:
    """Let copies of the model add up their gradients in the next backward pass, or keep them for a later pass."""
    if isinstance(scorer, FSDPModule):
        scorer.set_requires_all_reduce(now)


def full_tensor(value: Tensor) -> Tensor:
    """Gather a sharded tensor, as a collective; a plain tensor is returned as it is.

    Returns:
        The full tensor on every process.
    """
    return value.full_tensor() if isinstance(value, DTensor) else value


def iter_full_tensors(model: Any, precision: torch.dtype) -> Iterator[tuple[str, Tensor]]:
    """Yield each tensor gathered, by its `transformers` name; a collective, so every process has to iterate.

    A tied matrix comes once, under its first name. Tensors are rounded to `precision` before they travel, sums with
    adapters afterwards.

    Returns:
        Pairs of a name and a full tensor.
    """
    adapted = {
        f"{name}.weight": module for name, module in model.named_modules() if isinstance(module, LoraLinear)
    }
    for name, _, parameter in _named(model):
        if parameter is None:
            continue
        module = adapted.get(name)
        if module is None:
            yield name, full_tensor(parameter.detach().to(precision))
        else:
            weight, a, b = (full_tensor(t.detach()) for t in (module.weight, module.lora_A, module.lora_B))
            yield name, merge(weight, a, b, module.scale).to(precision)


def iter_local_weights(model: Any) -> Iterator[tuple[str, Tensor]]:
    """Yield this process's rows of each weight that training changes, with its adapter merged; a collective.

    Names are those of parameters. B of an adapter has the rows of the sum, and each row needs all of A.

    Returns:
        Pairs of a name and a tensor, [rows of this process, ...].
    """
    for name, parameter in model.named_parameters():
        if parameter.requires_grad and not is_adapter(name):
            yield name, to_local(parameter.detach())
    for name, module in model.named_modules():
        if isinstance(module, LoraLinear):
            weight, a, b = (tensor.detach() for tensor in (module.weight, module.lora_A, module.lora_B))
            yield f"{name}.weight", merge(to_local(weight), full_tensor(a), to_local(b), module.scale)


def full_state(model: Any, ranks: Ranks, device: torch.device, precision: torch.dtype) -> dict[str, Tensor]:
    """Gather all tensors on rank 0, as a collective.

    A tied matrix appears under each of its names. Tensors are rounded to `precision` before they travel.

    Returns:
        Full tensors by their `transformers` names on rank 0, nothing on other ranks.
    """
    state: dict[str, Tensor] = {}
    for name, tensor in iter_full_tensors(model, precision):
        if ranks.is_rank_zero:
            state[name] = tensor.to(device)
    if not ranks.is_rank_zero:
        return {}
    return {name: state[first] for name, first, _ in _named(model)}


def _named(model: Any) -> Iterator[tuple[str, str, Tensor | None]]:
    """Yield all stored names in order, with the first name of the tensor, and the tensor if that is its name."""
    names: dict[int, str] = {}
    for name, tensor in _stored(model):
        first = names.setdefault(id(tensor), name)
        yield name, first, tensor if first == name else None


def full_shapes(model: Any) -> dict[str, tuple[int, ...]]:
    """Return the shapes of all full tensors by their names in files, tied tensors included, without a collective."""
    every = ((name, torch.empty(tensor.shape, device="meta")) for name, tensor in _stored(model))
    return {name: tuple(tensor.shape) for name, tensor in name_as_in_files(model, every)}


def name_as_in_files(model: Any, tensors: Iterable[tuple[str, Tensor]]) -> Iterator[tuple[str, Tensor]]:
    """Yield full tensors by their names in files, by which servers know them: each expert of a mixture for itself.

    Returns:
        Pairs of a name and a tensor.
    """
    converts = get_model_conversion_mapping(model, add_legacy=False)
    for name, tensor in tensors:
        yield from revert_weight_conversion(model, {name: tensor}).items() if converts else [(name, tensor)]


def _stored(model: Any) -> Iterator[tuple[str, Tensor]]:
    """Yield all tensors that are stored, in order; a tied matrix under each of its names."""
    for name, parameter in model.named_parameters(remove_duplicate=False):
        if not is_adapter(name):
            yield name, parameter
    yield from _buffers(model)


def _buffers(model: Any) -> Iterator[tuple[str, Tensor]]:
    names = set(model.state_dict())
    return ((name, buffer) for name, buffer in model.named_buffers() if name in names)


def local_range(count: int, ranks: Ranks) -> tuple[int, int]:
    """Return the first of this process's rows and the row after the last, as FSDP2 splits `count` rows.

    FSDP2 makes even shards, of which the last are shorter or empty.
    """
    index, parts = ranks.shard
    size = -(-count // parts)
    return min(index * size, count), min((index + 1) * size, count)


def read_local_rows(stored: TensorFiles, name: str, parameter: Tensor, ranks: Ranks) -> Tensor:
    """Read this process's rows of a stored tensor, and nothing else.

    Args:
        stored: The files.
        name: The tensor's name in them.
        parameter: The parameter whose layout the result gets.
        ranks: The processes.

    Returns:
        The rows, laid out as the parameter. They may be mapped from the file: copy what is to stay or change.
    """
    shape = stored.shape(name)
    if not shape or ranks.mesh is None:
        return stored.rows(name, 0, shape[0] if shape else 0)
    return wrap_rows(stored.rows(name, *local_range(shape[0], ranks)), parameter)


def load_local_rows(model: Any, stored: TensorFiles, ranks: Ranks, adapters: Mapping[str, Tensor]) -> None:
    """Load this process's rows of all weights into a sharded model whose parameters are on no device.

    Args:
        model: The model.
        stored: The files.
        ranks: The processes.
        adapters: Full tensors of adapters by name, which are not in the files.
    """
    assert ranks.mesh is not None
    parameters: dict[int, nn.Parameter] = {}
    state: dict[str, Tensor] = {}
    for name, empty in model.named_parameters(remove_duplicate=False):
        # A tied matrix stays one.
        if id(empty) not in parameters:
            first, last = local_range(empty.shape[0], ranks)
            rows = torch.empty(
                (last - first, *empty.shape[1:]), dtype=empty.dtype, device=ranks.mesh.device_type
            )
            rows.copy_(adapters[name][first:last] if name in adapters else stored.rows(name, first, last))
            parameters[id(empty)] = nn.Parameter(wrap_rows(rows, empty), empty.requires_grad)
        state[name] = parameters[id(empty)]
    for name, buffer in _buffers(model):
        state[name] = read_local_rows(stored, name, buffer, ALONE).to(buffer)
    model.load_state_dict(state, assign=True)


def wrap_rows(rows: Tensor, parameter: Tensor) -> Tensor:
    """Wrap this process's rows as the sharded tensor that they belong to.

    Args:
        rows: This process's rows, [rows of this process, ...].
        parameter: The parameter whose layout the result gets.

    Returns:
        A tensor with the parameter's shape; the rows themselves if the parameter is not sharded.
    """
    if rows.ndim == 0 or not isinstance(parameter, DTensor):
        return rows
    return DTensor.from_local(
        rows.to(parameter.device_mesh.device_type),
        parameter.device_mesh,
        parameter.placements,
        shape=parameter.shape,
        stride=parameter.stride(),
    )


def to_local(value: Tensor) -> Tensor:
    """Return this process's rows of a sharded tensor; a plain tensor as it is.

    Returns:
        [rows of this process, ...].
    """
    return value.to_local() if isinstance(value, DTensor) else value
