"""Sizes of a model: from its description to the counts that FLOPs, memory and disk follow from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from reodsl.ir.model import Architecture, Dimensions, Model


@dataclass(frozen=True, slots=True)
class Sizes:
    """A dense decoder with grouped queries and a gated feed-forward layer.

    `parameters` are all weights; `products` those that a token is multiplied with: all but norms and an embedding
    table that is only looked up. `attention` is the width of all query heads, `kv` that of all key heads.
    """

    parameters: int
    products: int
    layers: int
    hidden: int
    attention: int
    kv: int
    intermediate: int
    vocabulary: int

    def forward_flops(self, tokens: float, context: float) -> float:
        """FLOPs of a forward pass: 2 a weight and token, and attention's scores and sums.

        `tokens` is their number, `context` the sum over them of the positions that each attends to.
        """
        return 2 * self.products * tokens + 4 * self.layers * self.attention * context

    def logits_flops(self, tokens: float) -> float:
        """FLOPs of the product that gives the logits of some tokens."""
        return 2 * self.vocabulary * self.hidden * tokens

    def adapters(self, rank: int, layers: str) -> int:
        """The numbers in adapters of a rank, beside the matrices of `attention`, of the gated layers (`mlp`), or `all`."""
        ends = {
            "attention": 2 * (self.hidden + self.attention) + 2 * (self.hidden + self.kv),
            "mlp": 3 * (self.hidden + self.intermediate),
        }
        return self.layers * rank * (sum(ends.values()) if layers == "all" else ends[layers])

    def kv_bytes(self, width: int) -> int:
        """Bytes of keys and values of one token, at `width` bytes a number."""
        return 2 * self.layers * self.kv * width


def sizes_of(model: Model) -> Sizes | None:
    """The sizes of a model that states its dimensions or is made from a configuration; None where neither is so."""
    if model.dimensions is not None:
        return from_dimensions(model.dimensions)
    return from_architecture(model.source) if isinstance(model.source, Architecture) else None


def from_dimensions(dimensions: Dimensions) -> Sizes:
    """Sizes from declared counts."""
    return _sizes(
        layers=dimensions.layers,
        hidden=dimensions.hidden,
        attention=dimensions.heads * dimensions.head_dim,
        kv=dimensions.kv_heads * dimensions.head_dim,
        intermediate=dimensions.intermediate,
        vocabulary=dimensions.vocabulary,
        parameters=dimensions.parameters,
    )


def from_architecture(source: Architecture) -> Sizes:
    """Sizes of a model drawn from a configuration; every weight is counted."""
    words = source.tokenizer
    vocabulary = len({*words.words, words.eos, words.pad})
    norms = source.layers * 2 * source.hidden + source.hidden
    if source.family == "qwen3":
        norms += source.layers * 2 * source.head_dim
    tables = vocabulary * source.hidden * (1 if source.tie_embeddings else 2)
    bare = _sizes(
        layers=source.layers,
        hidden=source.hidden,
        attention=source.heads * source.head_dim,
        kv=source.kv_heads * source.head_dim,
        intermediate=source.intermediate,
        vocabulary=vocabulary,
        parameters=0,
    )
    blocks = bare.products - vocabulary * source.hidden
    return replace(bare, parameters=blocks + tables + norms)


LARGEST = 1 << 31
"""The largest size in a config; those of models are far smaller."""


def from_config(config: Mapping[str, Any]) -> Sizes | None:
    """Sizes from a `config.json` in the form of `transformers`; None where a number is not there, or of no model."""
    try:
        hidden, layers = int(config["hidden_size"]), int(config["num_hidden_layers"])
        heads = int(config["num_attention_heads"])
        kv_heads = int(config.get("num_key_value_heads") or heads)
        head_dim = int(config.get("head_dim") or hidden // heads)
        vocabulary, intermediate = int(config["vocab_size"]), int(config["intermediate_size"])
    except (KeyError, TypeError, ValueError, ArithmeticError):
        return None
    numbers = (hidden, layers, heads, kv_heads, head_dim, vocabulary, intermediate)
    if not all(1 <= number <= LARGEST for number in numbers):
        return None
    shape = _sizes(
        layers=layers,
        hidden=hidden,
        attention=heads * head_dim,
        kv=kv_heads * head_dim,
        intermediate=intermediate,
        vocabulary=vocabulary,
        parameters=0,
    )
    lookup = 0 if config.get("tie_word_embeddings") else vocabulary * hidden
    norms = (2 * layers + 1) * hidden
    return _sizes(
        layers=layers,
        hidden=hidden,
        attention=shape.attention,
        kv=shape.kv,
        intermediate=intermediate,
        vocabulary=vocabulary,
        parameters=shape.products + lookup + norms,
    )


def _sizes(
    *, layers: int, hidden: int, attention: int, kv: int, intermediate: int, vocabulary: int, parameters: int
) -> Sizes:
    """Query and output projections, keys and values, gate, up and down in each layer; then the output matrix."""
    layer = 2 * hidden * attention + 2 * hidden * kv + 3 * hidden * intermediate
    products = layers * layer + vocabulary * hidden
    return Sizes(parameters, products, layers, hidden, attention, kv, intermediate, vocabulary)
