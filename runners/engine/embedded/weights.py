"""A decoder's weights from a state dict with transformers' names: checked, and fused to run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch

from reodsl.diagnostics import problem
from runners.engine.embedded.linear import Linear, linear, rounded_linear
from runners.engine.embedded.settings import EmbeddedSettings
from runners.engine.embedded.shape import Shape
from runners.models.names import TOGETHER
from runners.rounded import HALF


@dataclass(frozen=True, slots=True)
class Layer:
    """One block. `qkv` gives queries, keys and values side by side, `gate_up` the two halves of the MLP.

    `qk_norm` is [heads + kv_heads, head_dim], the norm weights of queries and keys; None without QK-norm. The other norms
    have none where they are folded into the product that follows, as the trainer folds them: one rounding, not two.
    """

    attention_norm: torch.Tensor | None
    qkv: Linear
    qk_norm: torch.Tensor | None
    output: Linear
    mlp_norm: torch.Tensor | None
    gate_up: Linear
    down: Linear


@dataclass(frozen=True, slots=True)
class Weights:
    """All weights of one model; copies, so that a trainer may go on changing its own. `products` is what layers multiply."""

    embedding: torch.Tensor
    layers: tuple[Layer, ...]
    norm: torch.Tensor
    head: Linear
    products: torch.dtype = torch.float32


def weights_of(state: Mapping[str, torch.Tensor], shape: Shape, settings: EmbeddedSettings) -> Weights:
    """Copies and fuses a state dict to the engine's device and precision.

    Raises E0806 for a missing tensor or one of another shape.
    """
    device, products = torch.device(settings.device), getattr(torch, settings.dtype)
    half = products == HALF

    def take(name: str, *size: int) -> torch.Tensor:
        tensor = state.get(name)
        if tensor is None:
            raise problem("E0806", f"the weights have no tensor `{name}`", help=TOGETHER)
        if tuple(tensor.shape) != size:
            given, wanted = "×".join(map(str, tensor.shape)), "×".join(map(str, size))
            raise problem(
                "E0806", f"the tensor `{name}` is {given}, and the config says {wanted}", help=TOGETHER
            )
        return tensor.detach().to(device=device, dtype=torch.float32, copy=True)

    def fused(prefix: str, parts: Mapping[str, int], width: int, norm: torch.Tensor | None = None) -> Linear:
        weight = torch.cat([take(f"{prefix}{part}.weight", rows, width) for part, rows in parts.items()])
        if half:
            weight = (weight if norm is None else weight * norm).to(HALF)
        biased = f"{prefix}{next(iter(parts))}.bias" in state
        bias = (
            torch.cat([take(f"{prefix}{part}.bias", rows) for part, rows in parts.items()])
            if biased
            else None
        )
        return linear(weight, bias if bias is None else bias.to(products), settings.linear)

    queries, keys = shape.heads * shape.head_dim, shape.kv_heads * shape.head_dim

    def layer(index: int) -> Layer:
        prefix = f"model.layers.{index}."
        qk_norm = None
        if shape.qk_norm:
            q_norm = take(f"{prefix}self_attn.q_norm.weight", shape.head_dim)
            k_norm = take(f"{prefix}self_attn.k_norm.weight", shape.head_dim)
            qk_norm = torch.stack([q_norm] * shape.heads + [k_norm] * shape.kv_heads)
        attention = prefix + "self_attn."
        before = take(f"{prefix}input_layernorm.weight", shape.hidden)
        between = take(f"{prefix}post_attention_layernorm.weight", shape.hidden)
        return Layer(
            attention_norm=None if half else before,
            qkv=fused(attention, {"q_proj": queries, "k_proj": keys, "v_proj": keys}, shape.hidden, before),
            qk_norm=qk_norm,
            output=fused(attention, {"o_proj": shape.hidden}, queries),
            mlp_norm=None if half else between,
            gate_up=fused(
                prefix + "mlp.",
                {"gate_proj": shape.intermediate, "up_proj": shape.intermediate},
                shape.hidden,
                between,
            ),
            down=fused(prefix + "mlp.", {"down_proj": shape.hidden}, shape.intermediate),
        )

    embedding = take("model.embed_tokens.weight", shape.vocab, shape.hidden)
    head = embedding if shape.tied else take("lm_head.weight", shape.vocab, shape.hidden)
    return Weights(
        embedding=embedding,
        layers=tuple(layer(index) for index in range(shape.layers)),
        norm=take("model.norm.weight", shape.hidden),
        head=rounded_linear(head, settings.linear) if half else linear(head, None, settings.linear),
        products=products,
    )
