"""A decoder's shape from its transformers config: sizes and rotary frequencies, or why it is not supported."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

from reodsl.diagnostics import Problem, problem

FAMILIES = ("qwen3", "llama")
# The rotary scalings whose frequencies are the same at every length.
_STATIC_ROPE = ("default", "linear", "llama3", "yarn")


@dataclass(frozen=True, slots=True)
class Shape:
    """Sizes of one Qwen3 or Llama decoder. `inverse_frequencies` is [head_dim / 2], fp32."""

    family: str
    layers: int
    hidden: int
    heads: int
    kv_heads: int
    head_dim: int
    intermediate: int
    vocab: int
    context: int
    norm_eps: float
    qk_norm: bool
    tied: bool
    inverse_frequencies: torch.Tensor
    rope_factor: float

    @property
    def group(self) -> int:
        """Query heads that share one key-value head."""
        return self.heads // self.kv_heads

    def cache_bytes(self, itemsize: int) -> int:
        """Bytes of key-value cache for one token of one row."""
        return 2 * self.layers * self.kv_heads * self.head_dim * itemsize


def shape_of(config: Any) -> Shape:
    """Reads a transformers config.

    Raises E0801 for another architecture, or for a variant of these two whose arithmetic differs.
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
    return problem(
        "E0801",
        f"the embedded engine cannot run this {family} model: {variant}",
        help=f"it supports {supported}; other models run on the SGLang engine",
    )
