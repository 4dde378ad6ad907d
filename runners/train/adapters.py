"""Adapters of low rank beside a model's matrices (LoRA: Hu et al. 2021), and their sum with these.

Both parts of an adapter are parameters of the very layer that they belong to, so that all other names stay those of
`transformers`, and sharding, saving and the forward pass see nothing new.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from reodsl.diagnostics import problem
from reodsl.ir.training import Lora

MATRICES = {
    "attention": ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj", "self_attn.o_proj"),
    "mlp": ("mlp.gate_proj", "mlp.up_proj", "mlp.down_proj"),
}
"""The matrices of a layer, by what `lora.layers` calls them."""
LORA_PARAMETERS = ("lora_A", "lora_B")


class LoraLinear(nn.Linear):
    """A linear layer whose weight stays frozen, plus `scale` B A, for A [rank, in] and B [out, rank].

    `applied` says whether the adapter counts.
    """

    def __init__(self, linear: nn.Linear, rank: int, scale: float) -> None:
        """Take the weight and bias of `linear`; A has no numbers yet, and B is 0."""
        nn.Module.__init__(self)
        self.in_features, self.out_features = linear.in_features, linear.out_features
        self.weight, self.bias = linear.weight, linear.bias
        like: dict[str, Any] = {"device": linear.weight.device, "dtype": linear.weight.dtype}
        self.lora_A = nn.Parameter(torch.empty(rank, linear.in_features, **like))
        self.lora_B = nn.Parameter(torch.zeros(linear.out_features, rank, **like))
        self.scale, self.applied = scale, True

    def forward(self, input: Tensor) -> Tensor:
        """Return the layer's output without adding up both matrices.

        Args:
            input: Activations, [..., in].

        Returns:
            Activations, [..., out].
        """
        plain = F.linear(input, self.weight, self.bias)
        if not self.applied:
            return plain
        return plain + self.scale * F.linear(F.linear(input, self.lora_A), self.lora_B)


def merge(weight: Tensor, a: Tensor, b: Tensor, scale: float) -> Tensor:
    """Return the sum of a weight and its adapter.

    Args:
        weight: The frozen weight, [out, in].
        a: A of the adapter, [rank, in].
        b: B of the adapter, [out, rank].
        scale: The factor of B A.

    Returns:
        weight + scale B A, [out, in].

    Source: Hu et al. 2021, LoRA.
    """
    return weight + scale * (b @ a)


def is_adapter(name: str) -> bool:
    """Return whether a parameter is A or B of an adapter."""
    return name.rpartition(".")[2] in LORA_PARAMETERS


def is_adapted(model: Any) -> bool:
    """Return whether a model has adapters."""
    return any(isinstance(module, LoraLinear) for module in model.modules())


def adapt(model: Any, lora: Lora, seed: int) -> dict[str, Tensor]:
    """Freeze a model, and give its layers adapters whose sum with the weights is the weights.

    A is uniform within 1 / sqrt(in), as peft draws it, and B is 0.

    Args:
        model: The model, whose parameters may be on no device.
        lora: The settings of the adapters.
        seed: The seed of A.

    Returns:
        The numbers of A and B, by parameter name, for parameters that are on no device.

    Raises:
        Problem: E0940, a layer lacks a matrix that would be adapted.
    """
    for parameter in model.parameters():
        parameter.requires_grad_(False)
    matrices = [name for kind, names in MATRICES.items() if lora.layers in ("all", kind) for name in names]
    draws = torch.Generator().manual_seed(seed % 2**63)
    numbers: dict[str, Tensor] = {}
    body = model.get_submodule("model")
    for number, layer in enumerate(body.layers):
        for name in matrices:
            linear = _linear(layer, name, lora)
            adapted = LoraLinear(linear, lora.rank, lora.alpha / lora.rank)
            layer.set_submodule(name, adapted)
            bound = 1 / math.sqrt(linear.in_features)
            a = torch.empty(lora.rank, linear.in_features).uniform_(-bound, bound, generator=draws)
            prefix = f"model.layers.{number}.{name}"
            numbers |= {
                f"{prefix}.lora_A": a,
                f"{prefix}.lora_B": torch.zeros(linear.out_features, lora.rank),
            }
            if not adapted.lora_A.is_meta:
                with torch.no_grad():
                    adapted.lora_A.copy_(a)
    return numbers


def _linear(layer: Any, name: str, lora: Lora) -> nn.Linear:
    """Return the matrix of a layer that gets an adapter. Raises E0940 for a layer without that matrix."""
    try:
        linear = layer.get_submodule(name)
    except AttributeError:
        linear = None
    if not isinstance(linear, nn.Linear):
        raise problem(
            "E0940",
            f"the model's layers have no matrix `{name}`, which `lora` would train an adapter of",
            where="lora",
            help="write `lora { layers = attention }`" if lora.layers == "all" else "train without `lora`",
        )
    return linear


@contextmanager
def without_adapters(model: Any) -> Iterator[None]:
    """Disable the adapters for a moment, which leaves the model that training began with."""
    adapted = [module for module in model.modules() if isinstance(module, LoraLinear)]
    for module in adapted:
        module.applied = False
    try:
        yield
    finally:
        for module in adapted:
            module.applied = True


def merge_state(model: Any) -> dict[str, Tensor]:
    """Return the `state_dict` of a model with its adapters merged.

    Returns:
        Full weights by their `transformers` names.
    """
    state = {name: value for name, value in model.state_dict().items() if not is_adapter(name)}
    with torch.no_grad():
        for name, module in model.named_modules():
            if isinstance(module, LoraLinear):
                state[f"{name}.weight"] = merge(module.weight, module.lora_A, module.lora_B, module.scale)
    return state


def remove_adapters(model: Any) -> None:
    """Remove the adapters of a model, so that its weights are the frozen weights again."""
    for name, module in list(model.named_modules()):
        if isinstance(module, LoraLinear):
            linear = nn.Linear(1, 1, bias=False, device="meta")
            linear.in_features, linear.out_features = module.in_features, module.out_features
            linear.weight, linear.bias = module.weight, module.bias
            model.set_submodule(name, linear)
