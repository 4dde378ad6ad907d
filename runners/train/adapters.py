"""Low-rank adapters of a model's matrices (LoRA: Hu et al. 2021), and the sums of matrices and adapters.

A and B of an adapter are parameters of the linear layer that they adapt. All other parameters therefore keep their
`transformers` names, and sharding, saving and the forward pass need no change.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from reodsl.diagnostics import problem
from reodsl.ir.training import Lora
from runners.models.products import apply_linear

MATRICES = {
    "attention": ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj", "self_attn.o_proj"),
    "mlp": ("mlp.gate_proj", "mlp.up_proj", "mlp.down_proj"),
}
"""The matrices of a decoder layer by a value of `lora.layers`."""
LORA_PARAMETERS = ("lora_A", "lora_B")


class LoraLinear(nn.Linear):
    """A linear layer W x + bias with a frozen weight W, plus the adapter's `scale` B A x.

    A is [rank, in] and B is [out, rank]. If `applied` is False, the layer leaves the adapter out.
    """

    def __init__(self, linear: nn.Linear, rank: int, scale: float) -> None:
        """Use the weight and bias of `linear`, leave A uninitialised, and set B to 0."""
        nn.Module.__init__(self)
        self.in_features, self.out_features = linear.in_features, linear.out_features
        self.weight, self.bias = linear.weight, linear.bias
        factory_kwargs: dict[str, Any] = {"device": linear.weight.device, "dtype": linear.weight.dtype}
        self.lora_A = nn.Parameter(torch.empty(rank, linear.in_features, **factory_kwargs))
        self.lora_B = nn.Parameter(torch.zeros(linear.out_features, rank, **factory_kwargs))
        self.scale, self.applied = scale, True

    def forward(self, input: Tensor) -> Tensor:
        """Return W x + bias + scale B A x, computed without the matrix W + scale B A.

        Args:
            input: Activations, [..., in].

        Returns:
            Activations, [..., out].
        """
        frozen_output = apply_linear(input, self.weight, self.bias)
        if not self.applied:
            return frozen_output
        return frozen_output + self.scale * apply_linear(apply_linear(input, self.lora_A), self.lora_B)


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
    """Return whether `name`, the name of a parameter, is that of A or B of an adapter."""
    return name.rpartition(".")[2] in LORA_PARAMETERS


def is_adapted(model: Any) -> bool:
    """Return whether a model has adapters."""
    return any(isinstance(module, LoraLinear) for module in model.modules())


def adapt(model: Any, lora: Lora, seed: int) -> dict[str, Tensor]:
    """Freeze a model's parameters, and add LoRA adapters, which do not change the output before training, in place.

    `lora.layers` selects the matrices of each decoder layer: attention, MLP or all. A is uniform between -1 / sqrt(in)
    and 1 / sqrt(in), as in peft, and B is 0.

    Args:
        model: The model; its parameters may be on torch's meta device, which stores no values.
        lora: The settings of the adapters.
        seed: The seed of A.

    Returns:
        The initial values of A and B by parameter name. A caller whose model is on the meta device loads them later.

    Raises:
        Problem: E0940, if a layer lacks a matrix that `lora` adapts.
    """
    for parameter in model.parameters():
        parameter.requires_grad_(False)
    matrices = [name for kind, names in MATRICES.items() if lora.layers in ("all", kind) for name in names]
    generator = torch.Generator().manual_seed(seed % 2**63)
    initial_values: dict[str, Tensor] = {}
    decoder = model.get_submodule("model")
    for layer_index, layer in enumerate(decoder.layers):
        for name in matrices:
            linear = _find_linear(layer, name, lora)
            adapted = LoraLinear(linear, lora.rank, lora.alpha / lora.rank)
            layer.set_submodule(name, adapted)
            bound = 1 / math.sqrt(linear.in_features)
            a = torch.empty(lora.rank, linear.in_features).uniform_(-bound, bound, generator=generator)
            prefix = f"model.layers.{layer_index}.{name}"
            initial_values |= {
                f"{prefix}.lora_A": a,
                f"{prefix}.lora_B": torch.zeros(linear.out_features, lora.rank),
            }
            if not adapted.lora_A.is_meta:
                with torch.no_grad():
                    adapted.lora_A.copy_(a)
    return initial_values


def _find_linear(layer: Any, name: str, lora: Lora) -> nn.Linear:
    """Return the linear layer that will get an adapter.

    Args:
        layer: A decoder layer.
        name: The name of the linear layer inside it, e.g. `mlp.up_proj`.
        lora: The settings of the adapters, for the error message.

    Raises:
        Problem: E0940, if the decoder layer has no linear layer of that name.
    """
    try:
        linear = layer.get_submodule(name)
    except AttributeError:
        linear = None
    if not isinstance(linear, nn.Linear):
        raise problem(
            "E0940",
            f"the model's layers have no matrix `{name}`, for which `lora` would train an adapter",
            where="lora",
            help="write `lora { layers = attention }`" if lora.layers == "all" else "train without `lora`",
        )
    return linear


@contextmanager
def without_adapters(model: Any) -> Iterator[None]:
    """Disable the adapters inside a `with` block, so that the model computes with its frozen weights alone."""
    adapted = [module for module in model.modules() if isinstance(module, LoraLinear)]
    for module in adapted:
        module.applied = False
    try:
        yield
    finally:
        for module in adapted:
            module.applied = True


def merge_state(model: Any) -> dict[str, Tensor]:
    """Return the `state_dict` of a model, with each adapter added to the weight that it adapts.

    Returns:
        Weights by their `transformers` names; the adapters' parameters are left out.
    """
    state = {name: value for name, value in model.state_dict().items() if not is_adapter(name)}
    with torch.no_grad():
        for name, module in model.named_modules():
            if isinstance(module, LoraLinear):
                state[f"{name}.weight"] = merge(module.weight, module.lora_A, module.lora_B, module.scale)
    return state


def remove_adapters(model: Any) -> None:
    """Replace each layer with an adapter by an `nn.Linear` with the frozen weight, in place; adapters are dropped.

    The adapters are not added to the weights: `merge_state` returns the sums.
    """
    for name, module in list(model.named_modules()):
        if isinstance(module, LoraLinear):
            linear = nn.Linear(1, 1, bias=False, device="meta")
            linear.in_features, linear.out_features = module.in_features, module.out_features
            linear.weight, linear.bias = module.weight, module.bias
            model.set_submodule(name, linear)
