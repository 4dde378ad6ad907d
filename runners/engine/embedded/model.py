"""Run a decoder in plain torch: its settings and shape, its weights, and a pass through its layers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, Protocol

import torch
from torch.nn import functional
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

from reodsl.diagnostics import Problem, problem
from runners.models.bounds import MATCH_REMEDY
from runners.models.products import Library, Linear, pack_linear, pack_rounded, pad_rows

_HALF = torch.bfloat16
_CACHE_SHARE = 3
"""A GPU's free memory over what caches may take; the rest is for passes, and for a trainer on the same GPU."""
_HALF_BYTES = 3 << 30
"""Bytes of caches in bfloat16 on a processor: products of a real model want hundreds of rows, each with its keys and
values. No machine chooses its own, since the batches are part of the result's last bits."""


@dataclass(frozen=True, slots=True)
class EmbeddedSettings:
    """Settings of the embedded engine. The defaults were measured on a single CPU thread.

    At most `rows` responses are decoded at once; others start when half of them have ended. `cache_bytes` bounds the
    memory of key-value caches, those for `force` included (a row always starts). `prefill_tokens` bounds the tokens
    that are read in a pass. `dtype` is what layers multiply; sums, norms, the residual stream and logits are float32
    either way. `linear` is the library that multiplies on CPU, None for the processor's.
    """

    device: str = "cpu"
    dtype: Literal["float32", "bfloat16"] = "float32"
    rows: int = 512
    cache_bytes: int = 1 << 30
    prefill_tokens: int = 8192
    linear: Library | None = None

    @staticmethod
    def on(device: str, precision: str = "auto") -> EmbeddedSettings:
        """Return settings for a device and a model's precision.

        On a GPU the caches may have a third of the memory that is free now.

        Args:
            device: As torch names it, such as `cpu` or `cuda:0`.
            precision: `bfloat16`, or any other word for float32.
        """
        half = precision == "bfloat16"
        dtype: Literal["float32", "bfloat16"] = "bfloat16" if half else "float32"
        if device == "cpu":
            return EmbeddedSettings(dtype=dtype, cache_bytes=_HALF_BYTES) if half else EmbeddedSettings()
        free, _ = torch.get_device_module(device).mem_get_info(device)
        return EmbeddedSettings(device=device, dtype=dtype, cache_bytes=free // _CACHE_SHARE)


FAMILIES = ("qwen3", "llama")
_STATIC_ROPE = ("default", "linear", "llama3", "yarn")
"""The rotary scalings whose frequencies do not depend on the length."""


@dataclass(frozen=True, slots=True)
class Shape:
    """The sizes of a Qwen3 or Llama decoder."""

    family: str
    """`qwen3` or `llama`."""
    layers: int
    """Decoder layers."""
    hidden: int
    """Width of the residual stream."""
    heads: int
    """Query heads."""
    kv_heads: int
    """Key-value heads."""
    head_dim: int
    """Width of a head."""
    intermediate: int
    """Width of the MLP."""
    vocab: int
    """Tokens of the vocabulary, padding included."""
    context: int
    """The most tokens of a sequence."""
    norm_eps: float
    """Epsilon of RMS norms."""
    qk_norm: bool
    """True if queries and keys are normalised."""
    tied: bool
    """True if the output matrix is the embedding."""
    inverse_frequencies: torch.Tensor
    """Inverse frequencies of rotary positions, [head_dim / 2], float32."""
    rope_factor: float
    """The factor of rotary cosines and sines."""

    @property
    def group(self) -> int:
        """Return the number of query heads for each key-value head."""
        return self.heads // self.kv_heads

    def cache_bytes(self, itemsize: int) -> int:
        """Return the bytes of a token's keys and values in all layers, with `itemsize` bytes for each number."""
        return 2 * self.layers * self.kv_heads * self.head_dim * itemsize


def shape_of(config: Any) -> Shape:
    """Return the sizes of the decoder that a `transformers` config describes.

    Raises:
        Problem: E0801 for an architecture other than Qwen3 and Llama, or a variant of them with other arithmetic.
    """
    family = getattr(config, "model_type", None)
    if family not in FAMILIES:
        raise problem(
            "E0801",
            f"the embedded engine cannot run the architecture `{family}`",
            help=f"it runs {' and '.join(FAMILIES)}; other models run on the SGLang engine",
        )
    if config.hidden_act not in ("silu", "swish"):
        raise _variant(family, f"hidden_act = {config.hidden_act}", "silu")
    kinds = set(getattr(config, "layer_types", None) or ["full_attention"])
    if kinds != {"full_attention"}:
        raise _variant(family, f"layers of type {', '.join(sorted(kinds))}", "full_attention")
    head_dim = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    frequencies, factor = _rotary(config, family, head_dim)
    return Shape(
        family=family,
        layers=config.num_hidden_layers,
        hidden=config.hidden_size,
        heads=config.num_attention_heads,
        kv_heads=config.num_key_value_heads,
        head_dim=head_dim,
        intermediate=config.intermediate_size,
        vocab=config.vocab_size,
        context=config.max_position_embeddings,
        norm_eps=config.rms_norm_eps,
        qk_norm=family == "qwen3",
        tied=bool(config.tie_word_embeddings),
        inverse_frequencies=frequencies,
        rope_factor=factor,
    )


def _rotary(config: Any, family: str, head_dim: int) -> tuple[torch.Tensor, float]:
    """Return the numbers of a model's rotary positions.

    Args:
        config: The `transformers` config of the model.
        family: `qwen3` or `llama`, for the message.
        head_dim: The width of a head.

    Returns:
        The inverse frequencies, [head_dim / 2], and the factor of the cosines and sines.

    Raises:
        Problem: E0801 for a rotary scaling whose frequencies depend on the length.
    """
    rope = config.rope_parameters
    kind = rope.get("rope_type", "default")
    if kind not in _STATIC_ROPE:
        raise _variant(family, f"rope_type = {kind}", ", ".join(_STATIC_ROPE))
    if kind == "default":
        steps = torch.arange(0, head_dim, 2, dtype=torch.float32)
        return 1.0 / (rope["rope_theta"] ** (steps / head_dim)), 1.0
    frequencies, factor = ROPE_INIT_FUNCTIONS[kind](config, torch.device("cpu"))
    return frequencies.float(), float(factor)


def _variant(family: str, variant: str, supported: str) -> Problem:
    """Return E0801 for a model of the `family` Qwen3 or Llama with an unsupported setting.

    Args:
        family: `qwen3` or `llama`.
        variant: The unsupported setting, such as `hidden_act = gelu`.
        supported: The supported values of this setting.
    """
    return problem(
        "E0801",
        f"the embedded engine cannot run this {family} model: {variant}",
        help=f"it supports {supported}; other models run on the SGLang engine",
    )


@dataclass(frozen=True, slots=True)
class Layer:
    """A decoder layer.

    Norms are None if they are folded into the product that follows, as the trainer folds them: one rounding, not two.
    """

    attention_norm: torch.Tensor | None
    """[hidden], or None if folded."""
    qkv: Linear
    """The matrix to queries, keys and values, joined along the output."""
    qk_norm: torch.Tensor | None
    """Norm weights of queries and keys, [heads + kv_heads, head_dim]; None without QK-norm."""
    output: Linear
    """The matrix from heads to the residual stream."""
    mlp_norm: torch.Tensor | None
    """[hidden], or None if folded."""
    gate_up: Linear
    """The matrix to the two halves of the MLP."""
    down: Linear
    """The matrix from the MLP to the residual stream."""


@dataclass(frozen=True, slots=True)
class Weights:
    """Copies of all weights of a model. Matrix products have inputs of the type `products`.

    The weights are copies because a trainer changes its own tensors while the engine still uses the old values.
    """

    embedding: torch.Tensor
    layers: tuple[Layer, ...]
    norm: torch.Tensor
    head: Linear
    products: torch.dtype = torch.float32


def weights_of(state: Mapping[str, torch.Tensor], shape: Shape, settings: EmbeddedSettings) -> Weights:
    """Copy a state dict to the engine's device and precision.

    Matrices with the same input, such as those of queries, keys and values, are joined into one. In bfloat16 the weight
    of a norm is folded into the matrix after the norm.

    Args:
        state: Tensors by their `transformers` names.
        shape: The sizes of the decoder.
        settings: The device and precision.

    Raises:
        Problem: E0803, a tensor is missing or has another shape.
    """
    device, products = torch.device(settings.device), getattr(torch, settings.dtype)
    half = products == _HALF

    def take(name: str, *size: int) -> torch.Tensor:
        """Return a float32 copy of a tensor on the device. Raises E0803 if it is missing or not of this size."""
        tensor = state.get(name)
        if tensor is None:
            raise problem("E0803", f"the weights have no tensor `{name}`", help=MATCH_REMEDY)
        if tuple(tensor.shape) != size:
            got, want = "×".join(map(str, tensor.shape)), "×".join(map(str, size))
            raise problem(
                "E0803", f"the tensor `{name}` is {got}, and the config says {want}", help=MATCH_REMEDY
            )
        return tensor.detach().to(device=device, dtype=torch.float32, copy=True)

    def fused(
        prefix: str, matrices: Mapping[str, int], width: int, norm: torch.Tensor | None = None
    ) -> Linear:
        """Return the product by several matrices that have the same input, joined along the output.

        Args:
            prefix: The start of the tensors' names.
            matrices: The name of each matrix, with its number of outputs.
            width: The number of inputs.
            norm: The weight of the norm before the product, which is folded into it in bfloat16.
        """
        weight = torch.cat([take(f"{prefix}{name}.weight", rows, width) for name, rows in matrices.items()])
        if half:
            weight = (weight if norm is None else weight * norm).to(_HALF)
        has_bias = f"{prefix}{next(iter(matrices))}.bias" in state
        bias = (
            torch.cat([take(f"{prefix}{name}.bias", rows) for name, rows in matrices.items()])
            if has_bias
            else None
        )
        return pack_linear(weight, bias if bias is None else bias.to(products), settings.linear)

    queries, keys = shape.heads * shape.head_dim, shape.kv_heads * shape.head_dim

    def layer(index: int) -> Layer:
        """Return the weights of the layer at `index`."""
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
        head=pack_rounded(head, settings.linear) if half else pack_linear(head, None, settings.linear),
        products=products,
    )


class Attend(Protocol):
    """The attention of a layer, which the caller of a decoder implements over its own cache of keys and values."""

    def __call__(
        self, layer: int, queries: torch.Tensor, keys: torch.Tensor, values: torch.Tensor
    ) -> torch.Tensor:
        """Store the keys and values of the new tokens, and return the result of attention for the queries.

        Args:
            layer: The layer's index.
            queries: [n, heads, head_dim].
            keys: [n, kv_heads, head_dim].
            values: [n, kv_heads, head_dim].

        Returns:
            [n, heads × head_dim].
        """


class Decoder:
    """A model ready to run: its shape, its weights, and the cosines and sines of rotary positions.

    `run` serves prefill, decoding and forced branches, which differ only in the attention that the caller passes. The
    arithmetic is that of Qwen3 and Llama models of `transformers`.
    """

    def __init__(self, shape: Shape, weights: Weights) -> None:
        """Prepare a model. Its cosines and sines are empty until `cover` computes them."""
        self.shape = shape
        self.weights = weights
        self.device = weights.embedding.device
        self.like = torch.empty(0, device=self.device, dtype=weights.products)
        self._cos = torch.empty(0, shape.head_dim, device=self.device)
        self._sin = self._cos

    def cover(self, positions: int) -> None:
        """Compute the rotary cosines and sines of at least the positions 0 to `positions - 1`.

        If they have been computed before, nothing is done. Otherwise more positions are computed than requested, so the
        computation is rare. The numbers of a position do not depend on how many positions are computed.
        """
        if positions <= self._cos.shape[0]:
            return
        rows = max(positions, 2 * self._cos.shape[0], 256)
        angles = torch.outer(torch.arange(rows, dtype=torch.float32), self.shape.inverse_frequencies)
        cos, sin = angles.cos() * self.shape.rope_factor, angles.sin() * self.shape.rope_factor
        # The sine carries the sign of the rotated half, so that a rotation is y·cos + swap(y)·sin.
        self._cos = torch.cat((cos, cos), -1).to(self.device, non_blocking=True)
        self._sin = torch.cat((-sin, sin), -1).to(self.device, non_blocking=True)

    def run(
        self,
        tokens: torch.Tensor,
        positions: torch.Tensor,
        attend: Attend,
        selected: torch.Tensor | None = None,
    ) -> torch.Tensor:
        """Run the layers over tokens of any sequences, and return logits of the next tokens.

        `attend` gets the keys and values of all tokens in every layer. The last layer computes its MLP only for the
        selected tokens. `pad_rows` adds rows to matrix products for speed; they are removed before `attend` and from
        the result. Matrix products have inputs of the type `weights.products`; the residual stream, norms, rotations
        and logits are float32.

        Args:
            tokens: Token ids, [n], of several sequences in one row.
            positions: The position of each token in its sequence, [n], which `cover` has to include.
            attend: The attention of a layer.
            selected: Indices of the tokens whose logits are returned; None for all.

        Returns:
            Logits, [selected tokens, vocab].
        """
        shape, weights, products = self.shape, self.weights, self.weights.products
        count = len(tokens)
        tokens, positions = pad_rows(tokens), pad_rows(positions)
        cos, sin = self._cos[positions].unsqueeze(1), self._sin[positions].unsqueeze(1)
        rotated = shape.heads + shape.kv_heads
        size, width = (shape.hidden,), shape.head_dim
        x = weights.embedding[tokens]
        for index, layer in enumerate(weights.layers):
            rows = functional.rms_norm(x, size, layer.attention_norm, shape.norm_eps).to(products)
            qkv = layer.qkv(rows).view(-1, rotated + shape.kv_heads, width)
            qk = qkv[:, :rotated].float()
            if layer.qk_norm is not None:
                qk = functional.rms_norm(qk, (width,), None, shape.norm_eps) * layer.qk_norm
            swapped = torch.cat((qk[..., width // 2 :], qk[..., : width // 2]), -1)
            qk = torch.addcmul(qk * cos, swapped, sin).to(products)
            keys, values = qk[:count, shape.heads :], qkv[:count, rotated:]
            mixed = attend(index, qk[:count, : shape.heads], keys, values)
            if selected is not None and index == shape.layers - 1:
                count = len(selected)
                x, mixed = pad_rows(x[selected]), mixed[selected]
            x = x + layer.output(pad_rows(mixed))
            rows = functional.rms_norm(x, size, layer.mlp_norm, shape.norm_eps).to(products)
            gate, up = layer.gate_up(rows).chunk(2, -1)
            x = x + layer.down(functional.silu(gate).mul_(up))
        return weights.head(functional.rms_norm(x, size, weights.norm, shape.norm_eps))[:count]
