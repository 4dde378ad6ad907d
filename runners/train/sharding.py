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

from runners.models.tensors import Stored
from runners.train.adapters import Adapted, is_adapter, merge
from runners.train.attention import PackedSequences
from runners.train.logprobs import Distributions, Likeliest, score_tokens
from runners.train.ranks import ALONE, Ranks


class Scorer(nn.Module):
    """Log-probabilities of tokens as one module, so that sharded parameters are whole from the embedding to the loss.

    `precision` is that of the passes. A sharded model has its weights in it; another `casts` them, and its residual stream,
    norms and softmax stay float32.
    """

    def __init__(self, model: Any, precision: torch.dtype = torch.float32, casts: bool = False) -> None:
        """Wrap a model."""
        super().__init__()
        self.model, self.precision, self.casts = model, precision, casts

    def forward(
        self,
        ids: Tensor,
        at: Tensor,
        targets: Tensor | None,
        temperature: float = 1.0,
        entropies: bool = False,
        sequences: PackedSequences | None = None,
        other: Distributions | Likeliest | None = None,
    ) -> Tensor:
        """Return log-probabilities, as `score_tokens`, for ids and flat positions `at` in them.

        Ids and positions are those of `MicroBatch`. Without targets it is the last hidden states [positions, hidden].
        """
        where = {} if sequences is None else {"position_ids": sequences.positions, "sequences": sequences}
        body = self.model.get_submodule("model")
        with torch.autocast(ids.device.type, self.precision, enabled=self.casts):
            states = body(input_ids=ids, use_cache=False, **where).last_hidden_state
        hidden: Tensor = states.flatten(0, 1)[at].to(self.precision)
        if targets is None:
            return hidden
        weight = self.model.get_output_embeddings().weight.to(self.precision)
        return score_tokens(hidden, weight, targets, temperature, entropies, other)


def keep_little(model: Any) -> None:
    """Let the model's own forward keep one hidden state a layer, and its backward pass compute the rest again."""
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
    """Let copies of the model add up their gradients in the next backward pass, or keep them for a later one."""
    if isinstance(scorer, FSDPModule):
        scorer.set_requires_all_reduce(now)


def whole(value: Tensor) -> Tensor:
    """Return a sharded tensor put together from all processes, each of which has to ask; a plain one as it is."""
    return value.full_tensor() if isinstance(value, DTensor) else value


def whole_tensors(model: Any, precision: torch.dtype) -> Iterator[tuple[str, Tensor]]:
    """Yield each tensor whole, by its `transformers` name, on every process; all have to ask for as many of them.

    A tied matrix comes once, under its first name. Rounded to `precision` before they travel; sums with adapters after that.
    """
    adapted = {
        f"{name}.weight": module for name, module in model.named_modules() if isinstance(module, Adapted)
    }
    for name, _, parameter in _named(model):
        if parameter is None:
            continue
        module = adapted.get(name)
        if module is None:
            yield name, whole(parameter.detach().to(precision))
        else:
            weight, a, b = (whole(each.detach()) for each in (module.weight, module.lora_A, module.lora_B))
            yield name, merge(weight, a, b, module.scale).to(precision)


def iter_local_weights(model: Any) -> Iterator[tuple[str, Tensor]]:
    """Yield this process's rows of each weight that training changes, with its adapter's part; all have to ask.

    Names are those of parameters. An adapter's B has the rows of its sum, and each of these needs all of A.
    """
    for name, parameter in model.named_parameters():
        if parameter.requires_grad and not is_adapter(name):
            yield name, local(parameter.detach())
    for name, module in model.named_modules():
        if isinstance(module, Adapted):
            weight, a, b = (each.detach() for each in (module.weight, module.lora_A, module.lora_B))
            yield f"{name}.weight", merge(local(weight), whole(a), local(b), module.scale)


def whole_state(model: Any, ranks: Ranks, device: torch.device, precision: torch.dtype) -> dict[str, Tensor]:
    """Return all tensors by their `transformers` names on the first process, nothing on the others; all have to ask.

    A tied matrix is there under each of its names. Rounded to `precision` before they travel.
    """
    state: dict[str, Tensor] = {}
    for name, tensor in whole_tensors(model, precision):
        if ranks.first:
            state[name] = tensor.to(device)
    if not ranks.first:
        return {}
    return {name: state[first] for name, first, _ in _named(model)}


def _named(model: Any) -> Iterator[tuple[str, str, Tensor | None]]:
    """Yield all stored names in order, with the first name of the tensor, and the tensor where that is it."""
    names: dict[int, str] = {}
    for name, tensor in _stored(model):
        first = names.setdefault(id(tensor), name)
        yield name, first, tensor if first == name else None


def whole_shapes(model: Any) -> dict[str, tuple[int, ...]]:
    """Return the shapes of all whole tensors by their names in files, also those of tied ones, asking no process."""
    every = ((name, torch.empty(tensor.shape, device="meta")) for name, tensor in _stored(model))
    return {name: tuple(tensor.shape) for name, tensor in name_as_in_files(model, every)}


def name_as_in_files(model: Any, tensors: Iterable[tuple[str, Tensor]]) -> Iterator[tuple[str, Tensor]]:
    """Yield whole tensors by their names in files, by which servers know them: a mixture's experts one by one."""
    converts = get_model_conversion_mapping(model, add_legacy=False)
    for name, tensor in tensors:
        yield from revert_weight_conversion(model, {name: tensor}).items() if converts else [(name, tensor)]


def _stored(model: Any) -> Iterator[tuple[str, Tensor]]:
    """Yield all that is stored, in order; a tied matrix under each of its names."""
    for name, parameter in model.named_parameters(remove_duplicate=False):
        if not is_adapter(name):
            yield name, parameter
    yield from _buffers(model)


def _buffers(model: Any) -> Iterator[tuple[str, Tensor]]:
    kept = set(model.state_dict())
    return ((name, buffer) for name, buffer in model.named_buffers() if name in kept)


def local_range(count: int, ranks: Ranks) -> tuple[int, int]:
    """Return the first of this process's rows and the one after the last, as FSDP2 cuts `count` of them.

    FSDP2 makes even parts, the last ones shorter or empty.
    """
    part, parts = ranks.part
    each = -(-count // parts)
    return min(part * each, count), min((part + 1) * each, count)


def read_local_rows(stored: Stored, name: str, parameter: Tensor, ranks: Ranks) -> Tensor:
    """Return this process's rows of a stored tensor, laid out as its parameter; nothing else is read.

    It may lie in the file: copy what is to stay or change.
    """
    shape = stored.shape(name)
    if not shape or ranks.mesh is None:
        return stored.rows(name, 0, shape[0] if shape else 0)
    return wrap_rows(stored.rows(name, *local_range(shape[0], ranks)), parameter)


def fill(model: Any, stored: Stored, ranks: Ranks, adapters: Mapping[str, Tensor]) -> None:
    """Load this process's rows of all weights into a sharded model whose parameters are on no device.

    `adapters`, which are not stored, give theirs.
    """
    assert ranks.mesh is not None
    parameters: dict[int, nn.Parameter] = {}
    state: dict[str, Tensor] = {}
    for name, empty in model.named_parameters(remove_duplicate=False):
        # A tied matrix stays one.
        if id(empty) not in parameters:
            first, last = local_range(empty.shape[0], ranks)
            part = torch.empty(
                (last - first, *empty.shape[1:]), dtype=empty.dtype, device=ranks.mesh.device_type
            )
            part.copy_(adapters[name][first:last] if name in adapters else stored.rows(name, first, last))
            parameters[id(empty)] = nn.Parameter(wrap_rows(part, empty), empty.requires_grad)
        state[name] = parameters[id(empty)]
    for name, buffer in _buffers(model):
        state[name] = read_local_rows(stored, name, buffer, ALONE).to(buffer)
    model.load_state_dict(state, assign=True)


def wrap_rows(part: Tensor, parameter: Tensor) -> Tensor:
    """Wrap this process's rows as the sharded tensor that they are part of, laid out as `parameter` is."""
    if part.ndim == 0 or not isinstance(parameter, DTensor):
        return part
    return DTensor.from_local(
        part.to(parameter.device_mesh.device_type),
        parameter.device_mesh,
        parameter.placements,
        shape=parameter.shape,
        stride=parameter.stride(),
    )


def local(value: Tensor) -> Tensor:
    """Return this process's rows of a sharded tensor; a plain one as it is."""
    return value.to_local() if isinstance(value, DTensor) else value
