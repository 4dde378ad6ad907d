"""A decoder's forward pass as one module, its shards over processes by FSDP2, and the gathering of its tensors.

Rows are padded on the right or packed. Padding needs no mask, because a causal decoder attends to earlier tokens only.
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
    """A module that computes log-probabilities from token ids.

    FSDP2 can then gather all parameters, from the embedding to the output matrix, within this module's forward pass.

    `precision` is the precision of passes. A sharded model's gathered weights have it. If `casts` is True, passes use
    autocast instead: residual stream, norms and softmax stay in float32.
    """

    def __init__(self, model: Any, precision: torch.dtype = torch.float32, casts: bool = False) -> None:
        """Wrap a `transformers` causal language model."""
        super().__init__()
        self.model, self.precision, self.casts = model, precision, casts

    def forward(
        self,
        ids: Tensor,
        positions: Tensor,
        targets: Tensor | None,
        temperature: float = 1.0,
        with_entropies: bool = False,
        sequences: PackedSequences | None = None,
        other: Distributions | TopkDistributions | None = None,
    ) -> Tensor:
        """Return the scores of trained tokens by `score_tokens`, or the hidden states that predict them.

        Args:
            ids: Token ids of a `MicroBatch`, [rows, width] or [1, tokens].
            positions: Flat positions in `ids` whose outputs predict the targets, [trained tokens].
            targets: Token ids to score, [trained tokens]; None to return hidden states.
            temperature: The divisor of the logits.
            with_entropies: Whether to compute entropies.
            sequences: The boundaries of packed rows; None for padded rows.
            other: The distributions from which divergences are computed; None for no divergences.

        Returns:
            Nats, [trained tokens] or [2 or 3, trained tokens]; without targets the last hidden states, [trained tokens,
            hidden].
        """
        packing = {} if sequences is None else {"position_ids": sequences.positions, "sequences": sequences}
        decoder = self.model.get_submodule("model")
        with torch.autocast(ids.device.type, self.precision, enabled=self.casts):
            states = decoder(input_ids=ids, use_cache=False, **packing).last_hidden_state
        hidden: Tensor = states.flatten(0, 1).index_select(0, positions).to(self.precision)
        if targets is None:
            return hidden
        weight = self.model.get_output_embeddings().weight.to(self.precision)
        return score_tokens(hidden, weight, targets, temperature, with_entropies, other)


def enable_activation_checkpointing(model: Any) -> None:
    """Store one hidden state per layer in forward passes, and recompute the other activations in the backward pass."""
    model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
    for layer in model.get_submodule("model").layers:
        # transformers checkpoints layers in training mode. Submodules stay in evaluation mode, without dropout.
        layer.training = True


def shard(model: Any, ranks: Ranks, precision: torch.dtype) -> Scorer:
    """Shard the parameters over `ranks.mesh` with FSDP2, layer by layer, in float32.

    If the mesh has two dimensions, several sharded copies of the model sum their gradients. Gradients are summed over
    processes in float32, not averaged, because a loss already contains the factor of the mean. The root module's
    weights are resharded after each pass too. Otherwise a scoring pass without a backward pass would leave gathered
    weights that later steps do not update.

    Args:
        model: The model.
        ranks: The processes of the training.
        precision: The precision of passes.

    Returns:
        The module that runs the model's forward pass.
    """
    policy = MixedPrecisionPolicy(param_dtype=precision, reduce_dtype=torch.float32)
    scorer = Scorer(model, precision)
    for layer in model.get_submodule("model").layers:
        fully_shard(layer, mesh=ranks.mesh, mp_policy=policy, reshard_after_forward=True)
    fully_shard(scorer, mesh=ranks.mesh, mp_policy=policy, reshard_after_forward=True)
    for module in scorer.modules():
        if isinstance(module, FSDPModule):
            module.set_gradient_divide_factor(1.0)
            module.set_force_sum_reduction_for_comms(True)
    return scorer


def join_copies(scorer: Scorer, reduces: bool) -> None:
    """Set whether the next backward pass sums gradients over copies of the model, or keeps them for a later pass."""
    if isinstance(scorer, FSDPModule):
        scorer.set_requires_all_reduce(reduces)


def full_tensor(value: Tensor) -> Tensor:
    """Return the full tensor of a sharded tensor, gathered by all processes; return an unsharded tensor unchanged."""
    return value.full_tensor() if isinstance(value, DTensor) else value


def iter_full_tensors(model: Any, precision: torch.dtype) -> Iterator[tuple[str, Tensor]]:
    """Yield the full tensors of a model one by one; every process must iterate to the end, since shards are gathered.

    Tied matrices are yielded once. Adapters are added to the weights that they adapt.

    Args:
        model: The model.
        precision: The type of the result. Weights without an adapter are rounded to it before they are gathered;
            weights with an adapter are gathered, summed and then rounded.

    Yields:
        Pairs of a `transformers` name, the first name of a tied matrix, and a full tensor.
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
    """Yield this process's rows of each weight that training changes, with its LoRA adapter added.

    Every process must iterate to the end. The rows of W + scale * B A need the same rows of W and B, but all of A, which
    is gathered.

    Yields:
        Pairs of a parameter's name and a tensor, [rows of this process, ...].
    """
    for name, parameter in model.named_parameters():
        if parameter.requires_grad and not is_adapter(name):
            yield name, to_local(parameter.detach())
    for name, module in model.named_modules():
        if isinstance(module, LoraLinear):
            weight, a, b = (tensor.detach() for tensor in (module.weight, module.lora_A, module.lora_B))
            yield f"{name}.weight", merge(to_local(weight), full_tensor(a), to_local(b), module.scale)


def full_state(model: Any, ranks: Ranks, device: torch.device, precision: torch.dtype) -> dict[str, Tensor]:
    """Gather the full tensors of a model on rank 0; tied matrices appear under each of their names.

    All ranks must call this. Adapters are added to the weights that they adapt.

    Args:
        model: The model.
        ranks: The processes of the training.
        device: The device of the result.
        precision: The type of the result.

    Returns:
        Full tensors by their `transformers` names on rank 0, an empty dict on other ranks.
    """
    gathered = iter_full_tensors(model, precision)
    state = {name: tensor.to(device) for name, tensor in gathered if ranks.is_rank_zero}
    if not ranks.is_rank_zero:
        return {}
    return {name: state[first_name] for name, first_name, _ in _named(model)}


def _named(model: Any) -> Iterator[tuple[str, str, Tensor | None]]:
    """Yield each name under which a tensor is stored, with the first name of this tensor.

    Yields:
        The name; the first name of this tensor, which differs for a tied matrix; and the tensor, or None if the name is
        not the first.
    """
    names: dict[int, str] = {}
    for name, tensor in _stored(model):
        first = names.setdefault(id(tensor), name)
        yield name, first, tensor if first == name else None


def full_shapes(model: Any) -> dict[str, tuple[int, ...]]:
    """Return the shapes of all full tensors by their names in files; a tied tensor has each of its names.

    Nothing is gathered, so a single process may call this.
    """
    tensors = ((name, torch.empty(tensor.shape, device="meta")) for name, tensor in _stored(model))
    return {name: tuple(tensor.shape) for name, tensor in name_as_in_files(model, tensors)}


def name_as_in_files(model: Any, tensors: Iterable[tuple[str, Tensor]]) -> Iterator[tuple[str, Tensor]]:
    """Yield full tensors under their names in checkpoint files, where each expert of a mixture is a separate tensor."""
    converts = get_model_conversion_mapping(model, add_legacy=False)
    for name, tensor in tensors:
        yield from revert_weight_conversion(model, {name: tensor}).items() if converts else [(name, tensor)]


def _stored(model: Any) -> Iterator[tuple[str, Tensor]]:
    """Yield all tensors to store, in order, with a tied matrix under each of its names; adapters are left out."""
    for name, parameter in model.named_parameters(remove_duplicate=False):
        if not is_adapter(name):
            yield name, parameter
    yield from _buffers(model)


def _buffers(model: Any) -> Iterator[tuple[str, Tensor]]:
    """Return the buffers of a model that are part of its state dict, by name."""
    names = set(model.state_dict())
    return ((name, buffer) for name, buffer in model.named_buffers() if name in names)


def local_range(count: int, ranks: Ranks) -> tuple[int, int]:
    """Return the range of rows that FSDP2 gives to this process, as the first row and the row after the last.

    FSDP2 splits `count` rows into shards of equal size; the last shards are shorter or empty.
    """
    index, num_shards = ranks.shard
    size = -(-count // num_shards)
    return min(index * size, count), min((index + 1) * size, count)


def read_local_rows(stored: TensorFiles, name: str, parameter: Tensor, ranks: Ranks) -> Tensor:
    """Read only this process's rows of a stored tensor.

    Args:
        stored: The files.
        name: The tensor's name in the files.
        parameter: The parameter whose sharding the result gets.
        ranks: The processes of the training.

    Returns:
        The rows, sharded like the parameter. They may be memory-mapped from the file: copy tensors to keep or to
        change.
    """
    shape = stored.shape(name)
    if not shape or ranks.mesh is None:
        return stored.rows(name, 0, shape[0] if shape else 0)
    return wrap_rows(stored.rows(name, *local_range(shape[0], ranks)), parameter)


def load_local_rows(model: Any, stored: TensorFiles, ranks: Ranks, adapters: Mapping[str, Tensor]) -> None:
    """Load this process's rows of all weights into a sharded model whose parameters are on the meta device.

    Args:
        model: The model.
        stored: The files.
        ranks: The processes of the training.
        adapters: The full initial tensors of adapters by parameter name, which are not in the files.
    """
    assert ranks.mesh is not None
    parameters: dict[int, nn.Parameter] = {}
    state: dict[str, Tensor] = {}
    for name, parameter in model.named_parameters(remove_duplicate=False):
        # Tied matrices share one parameter.
        if id(parameter) not in parameters:
            first, last = local_range(parameter.shape[0], ranks)
            rows = torch.empty(
                (last - first, *parameter.shape[1:]), dtype=parameter.dtype, device=ranks.mesh.device_type
            )
            rows.copy_(adapters[name][first:last] if name in adapters else stored.rows(name, first, last))
            parameters[id(parameter)] = nn.Parameter(wrap_rows(rows, parameter), parameter.requires_grad)
        state[name] = parameters[id(parameter)]
    for name, buffer in _buffers(model):
        state[name] = read_local_rows(stored, name, buffer, ALONE).to(buffer)
    model.load_state_dict(state, assign=True)


def wrap_rows(rows: Tensor, parameter: Tensor) -> Tensor:
    """Return this process's rows as a tensor that is sharded like a parameter.

    Args:
        rows: This process's rows, [rows of this process, ...].
        parameter: The parameter whose sharding the result gets.

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
    """Return this process's rows of a sharded tensor, [rows of this process, ...]; return other tensors unchanged."""
    return value.to_local() if isinstance(value, DTensor) else value
