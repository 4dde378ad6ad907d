"""Sizes of a model: the counts that FLOPs, memory and disk follow from, by its description or its config."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from reodsl.ir import Spec
from reodsl.ir.model import Architecture, Dimensions, Folder, Hub, Model
from reodsl.store.external import LARGEST_CONFIG, hub_snapshot
from reodsl.store.plain import read_object


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
        """Return the FLOPs of a forward pass: 2 per weight and token, and attention's scores and sums.

        `tokens` is their number, `context` the sum over them of the positions that each attends to.
        """
        return 2 * self.products * tokens + self.attention_flops(context)

    def attention_flops(self, context: float) -> float:
        """Return the FLOPs of attention's scores and sums in a forward pass over so many positions."""
        return 4 * self.layers * self.attention * context

    def logits_flops(self, tokens: float) -> float:
        """Return the FLOPs of the product that gives the logits of some tokens."""
        return 2 * self.vocabulary * self.hidden * tokens

    def adapters(self, rank: int, layers: str) -> int:
        """Return how many numbers adapters of a rank have, beside `attention`, the gated layers (`mlp`), or `all`."""
        ends = {
            "attention": 2 * (self.hidden + self.attention) + 2 * (self.hidden + self.kv),
            "mlp": 3 * (self.hidden + self.intermediate),
        }
        return self.layers * rank * (sum(ends.values()) if layers == "all" else ends[layers])

    def kv_bytes(self, width: int) -> int:
        """Return the bytes of keys and values of one token, at `width` bytes a number."""
        return 2 * self.layers * self.kv * width


def sizes_of(model: Model) -> Sizes | None:
    """Return the sizes of a model with declared dimensions or a configuration; None for any other."""
    if model.dimensions is not None:
        return from_dimensions(model.dimensions)
    return from_architecture(model.source) if isinstance(model.source, Architecture) else None


def from_dimensions(dimensions: Dimensions) -> Sizes:
    """Return the sizes from declared counts."""
    return replace(_count(*_shape(dimensions), dimensions.vocabulary), parameters=dimensions.parameters)


def from_architecture(source: Architecture) -> Sizes:
    """Return the sizes of a model drawn from a configuration; every weight is counted."""
    words = source.tokenizer
    vocabulary = len({*words.words, words.eos, words.pad})
    norms = source.layers * 2 * source.head_dim if source.family == "qwen3" else 0
    return _count(*_shape(source), vocabulary, tied=source.tie_embeddings, norms=norms)


def _shape(model: Dimensions | Architecture) -> tuple[int, int, int, int, int, int]:
    return model.layers, model.hidden, model.heads, model.kv_heads, model.head_dim, model.intermediate


LARGEST = 1 << 31
"""The largest size in a config; those of models are far smaller."""


def from_config(config: Mapping[str, Any]) -> Sizes | None:
    """Return the sizes from a `config.json` of `transformers`; None if a number is missing or impossible."""
    try:
        hidden, layers = int(config["hidden_size"]), int(config["num_hidden_layers"])
        heads = int(config["num_attention_heads"])
        kv_heads = int(config.get("num_key_value_heads") or heads)
        head_dim = int(config.get("head_dim") or hidden // heads)
        vocabulary, intermediate = int(config["vocab_size"]), int(config["intermediate_size"])
    except (KeyError, TypeError, ValueError, ArithmeticError):
        return None
    shape = (layers, hidden, heads, kv_heads, head_dim, intermediate, vocabulary)
    if not all(1 <= number <= LARGEST for number in shape):
        return None
    return _count(*shape, tied=bool(config.get("tie_word_embeddings")))


def _count(
    layers: int,
    hidden: int,
    heads: int,
    kv_heads: int,
    head_dim: int,
    intermediate: int,
    vocabulary: int,
    *,
    tied: bool = True,
    norms: int = 0,
) -> Sizes:
    """Count the weights of each layer (query, output, key, value, gate, up and down), of tables and of all norms.

    `norms` are those beside two per layer and the last one.
    """
    attention, kv, table = heads * head_dim, kv_heads * head_dim, vocabulary * hidden
    layer = 2 * hidden * attention + 2 * hidden * kv + 3 * hidden * intermediate
    products = layers * layer + table
    parameters = products + (0 if tied else table) + (2 * layers + 1) * hidden + norms
    return Sizes(parameters, products, layers, hidden, attention, kv, intermediate, vocabulary)


def sizes_at_hand(spec: Spec, folder: Path) -> dict[str, Sizes]:
    """Read the sizes of models, by name, that the spec does not describe and a folder or the hub's cache does.

    Relative paths start at `folder`. Reads one small file a model.
    """
    sizes_by_model = {}
    for model in spec.study.models:
        if model.name in sizes_by_model or sizes_of(model) is not None:
            continue
        match model.source:
            case Folder(path=path):
                place: Path | None = folder / path
            case Hub(repo=repo, revision=revision):
                place = hub_snapshot("models", repo, revision)
            case _:
                place = None
        config = read_object(place / "config.json", LARGEST_CONFIG) if place is not None else None
        sizes = from_config(config) if config is not None else None
        if sizes is not None:
            sizes_by_model[model.name] = sizes
    return sizes_by_model
