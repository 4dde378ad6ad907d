"""Hidden states of a `transformers` decoder at given places, for training.

Rows are padded on the right, which a causal decoder never looks at, so no mask is needed; or packed into one. Two paths give
the same numbers: the model's own forward on any device, and one for Qwen3 and Llama on CPU in float32 whose
gradients and products are several times cheaper. Both read the model's own parameters.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from runners.rounded import HALF
from runners.rows import filled
from runners.train import bfloat16
from runners.train.adapters import is_adapted, weight_of
from runners.train.attention import Sequences
from runners.train.kernels import linear, linear_add, rotate, swiglu, unit_rms


@dataclass(frozen=True, slots=True)
class Forward:
    """A forward pass in two parts, one of which depends on the parameters alone.

    `derive()` gives what is made of the parameters alone, once for many batches; `hidden(ids, at, derived)` goes from
    ids [rows, width] and flat positions in them to the last hidden states [positions, hidden] there. `plain_forward`'s
    takes `sequences` too, for packed ids.
    """

    derive: Callable[[], list[Tensor]]
    hidden: Callable[..., Tensor]


def plain_forward(model: Any) -> Forward:
    """Return the model's own forward up to its last norm."""
    body = model.get_submodule("model")

    def hidden(
        ids: Tensor, at: Tensor, derived: Sequence[Tensor], sequences: Sequences | None = None
    ) -> Tensor:
        where = {} if sequences is None else {"position_ids": sequences.positions, "sequences": sequences}
        return body(input_ids=ids, use_cache=False, **where).last_hidden_state.flatten(0, 1)[at]

    return Forward(list, hidden)


def lean_supported(model: Any) -> bool:
    """Return whether `lean_forward` covers this model: its config as `lean_shape` asks, float32 parameters, on CPU."""
    plain = all(p.device.type == "cpu" and p.dtype == torch.float32 for p in model.parameters())
    return plain and lean_shape(model.config)


def lean_shape(config: Any) -> bool:
    """Return whether `lean_forward` covers models of this config: dense Qwen3 or Llama, plain rotary positions, oneDNN."""
    if (
        getattr(config, "model_type", None) not in ("qwen3", "llama")
        or not torch.backends.mkldnn.is_available()
    ):
        return False
    rope = getattr(config, "rope_parameters", None) or {}
    return (
        config.hidden_act == "silu"
        and not getattr(config, "attention_bias", False)
        and not getattr(config, "mlp_bias", False)
        and not getattr(config, "attention_dropout", 0.0)
        and not getattr(config, "use_sliding_window", False)
        and rope.get("rope_type", "default") == "default"
        and rope.get("partial_rotary_factor", 1.0) == 1.0
    )


def lean_forward(model: Any, precision: torch.dtype = torch.float32) -> Forward:
    """Return a pass with the hidden states of `plain_forward` for models that `lean_supported` accepts.

    `precision` is that of products.

    Each norm's weight is folded into the product that follows it. Rows of the query and key projections are
    reordered so that a rotary pair is adjacent, one complex number; scores do not change. After the last layer's
    attention only the positions asked for go on. Products have rows of zeros more (`runners.rows`), attention has none.
    """
    config = model.config
    heads, kv_heads = config.num_attention_heads, config.num_key_value_heads
    dim = getattr(config, "head_dim", None) or config.hidden_size // heads
    eps = config.rms_norm_eps
    theta = config.rope_parameters["rope_theta"]
    frequencies = theta ** -(torch.arange(0, dim, 2, dtype=torch.float64) / dim)
    pairs = torch.arange(dim).view(2, dim // 2).t().reshape(-1)
    query_order = (torch.arange(heads)[:, None] * dim + pairs).reshape(-1)
    key_order = (torch.arange(kv_heads)[:, None] * dim + pairs).reshape(-1)
    body = model.get_submodule("model")
    half = precision == HALF
    times, times_add = (bfloat16.linear, bfloat16.linear_add) if half else (linear, linear_add)
    turns = torch.zeros(0, 1, dim // 2, dtype=torch.complex64)

    def turn(width: int) -> Tensor:
        nonlocal turns
        if width > len(turns):
            # Angles as `transformers` rounds them: inverse frequencies in float32, then their product.
            angles = torch.arange(width, dtype=torch.float32)[:, None] * frequencies.float()
            turns = torch.polar(torch.ones_like(angles), angles)[:, None, :]
        return turns[:width]

    adapted = is_adapted(model)

    def derive() -> list[Tensor]:
        derived = []
        for layer in body.layers:
            attention, mlp = layer.self_attn, layer.mlp
            parts = (
                weight_of(attention.q_proj)[query_order],
                weight_of(attention.k_proj)[key_order],
                weight_of(attention.v_proj),
            )
            derived.append(torch.cat(parts) * layer.input_layernorm.weight)
            both = torch.cat((weight_of(mlp.gate_proj), weight_of(mlp.up_proj)))
            derived.append(both * layer.post_attention_layernorm.weight)
        if adapted:
            for layer in body.layers:
                derived += [weight_of(layer.self_attn.o_proj), weight_of(layer.mlp.down_proj)]
        return derived

    def ends(number: int, layer: Any, derived: Sequence[Tensor]) -> Sequence[Tensor]:
        """Return the matrices by which attention and the gated layer leave: adapters change them."""
        if not adapted:
            return layer.self_attn.o_proj.weight, layer.mlp.down_proj.weight
        return derived[2 * (len(body.layers) + number) :][:2]

    def attend(x: Tensor, attention: Any, weight: Tensor, rows: int, width: int) -> Tensor:
        mixed = times(unit_rms(x, eps), weight)
        q, k, v = (
            part.unflatten(-1, (-1, dim))
            for part in mixed[: rows * width].split((heads * dim, kv_heads * dim, kv_heads * dim), -1)
        )
        if hasattr(attention, "q_norm"):
            q = unit_rms(q.float(), attention.q_norm.variance_epsilon) * attention.q_norm.weight[pairs]
            k = unit_rms(k.float(), attention.k_norm.variance_epsilon) * attention.k_norm.weight[pairs]
        around = turn(width)
        q = rotate(q.reshape(rows, width, heads, dim).float(), around)
        k = rotate(k.reshape(rows, width, kv_heads, dim).float(), around)
        if half:
            q, k = (part.to(HALF).view(rows, width, kv_heads, -1, dim) for part in (q, k))
            out = bfloat16.attention(q, k, v.reshape(rows, width, kv_heads, 1, dim))
            return filled(out.reshape(rows * width, heads * dim))
        out = F.scaled_dot_product_attention(
            q.transpose(1, 2),
            k.transpose(1, 2),
            v.reshape(rows, width, kv_heads, dim).transpose(1, 2),
            is_causal=True,
            enable_gqa=heads != kv_heads,
        )
        return filled(out.transpose(1, 2).reshape(rows * width, heads * dim))

    def hidden(ids: Tensor, at: Tensor, derived: Sequence[Tensor]) -> Tensor:
        rows, width = ids.shape
        embedding = body.embed_tokens
        x = F.embedding(filled(ids.reshape(-1)), embedding.weight, embedding.padding_idx)
        wanted = filled(at)
        for number, layer in enumerate(body.layers):
            seen = attend(x, layer.self_attn, derived[2 * number], rows, width)
            if number == len(body.layers) - 1:
                seen, x = seen[wanted], x[wanted]
            attended, gated = ends(number, layer, derived)
            x = times_add(seen, attended, x)
            inner = swiglu(times(unit_rms(x, eps), derived[2 * number + 1]))
            x = times_add(inner, gated, x)
        return (unit_rms(x, eps) * body.norm.weight)[: len(at)]

    return Forward(derive, hidden)


def make_forward(model: Any, precision: torch.dtype = torch.float32) -> Forward:
    """Return the cheapest forward that this model and device allow; the model's own if it computes activations again.

    Raises a ValueError for products in bfloat16 that only a sharded model's passes have (`shard`).
    """
    lean = lean_supported(model) and not getattr(model, "is_gradient_checkpointing", False)
    if lean:
        return lean_forward(model, precision)
    if precision != torch.float32:
        raise ValueError(f"the model's own pass is in float32, not in {precision}")
    return plain_forward(model)


def keep_little(model: Any) -> None:
    """Let the model's own forward keep one hidden state a layer, and its backward pass compute the rest again."""
    model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
    for layer in model.get_submodule("model").layers:
        # Of the layer alone: what is inside it stays in evaluation mode, so that no dropout begins.
        layer.training = True
