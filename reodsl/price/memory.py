"""Memory and disk: from a model's counts and what it does to bytes on one device and in the store."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from reodsl.ir import Spec
from reodsl.ir.model import Architecture, Dimensions, Folder, Hub, Model
from reodsl.ir.training import Ppo, Stage
from reodsl.price.machine import USABLE, Devices
from reodsl.store.external import LARGEST_CONFIG, hub_snapshot
from reodsl.store.files import read_object


@dataclass(frozen=True, slots=True)
class Sizes:
    """The sizes of a dense decoder with grouped queries and a gated feed-forward layer."""

    parameters: int
    """Number of all weights."""
    products: int
    """Weights that a token is multiplied with: all but norms and an embedding table that is only looked up."""
    layers: int
    """Number of layers."""
    hidden: int
    """Width of the residual stream."""
    attention: int
    """Width of all query heads together."""
    kv: int
    """Width of all key heads together."""
    intermediate: int
    """Width of the feed-forward layer."""
    vocabulary: int
    """Number of tokens in the vocabulary."""

    def forward_flops(self, tokens: float, context: float) -> float:
        """Return the FLOPs of a forward pass: 2 per weight and token, and attention's scores and sums.

        Args:
            tokens: number of tokens.
            context: sum over the tokens of the positions that each attends to.
        """
        return 2 * self.products * tokens + self.attention_flops(context)

    def attention_flops(self, context: float) -> float:
        """Return the FLOPs of attention's scores and sums in a forward pass.

        Args:
            context: sum over the tokens of the positions that each attends to.
        """
        return 4 * self.layers * self.attention * context

    def logits_flops(self, tokens: float) -> float:
        """Return the FLOPs of the product that gives the logits.

        Args:
            tokens: number of tokens with logits.
        """
        return 2 * self.vocabulary * self.hidden * tokens

    def adapters(self, rank: int, layers: str) -> int:
        """Return the number of weights of LoRA adapters.

        Args:
            rank: rank of the adapters.
            layers: layers with adapters: `attention`, `mlp` (the gated layers) or `all`.
        """
        ends = {
            "attention": 2 * (self.hidden + self.attention) + 2 * (self.hidden + self.kv),
            "mlp": 3 * (self.hidden + self.intermediate),
        }
        return self.layers * rank * (sum(ends.values()) if layers == "all" else ends[layers])

    def kv_bytes(self, width: int) -> int:
        """Return the bytes of a token's keys and values.

        Args:
            width: bytes of a number in the cache.
        """
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
    """Return the sizes of models that the spec does not describe, from a folder or the hub's cache, by name.

    Relative paths start at `folder`. A small file is read for each model.
    """
    sizes_by_model = {}
    for model in spec.study.models:
        if model.name in sizes_by_model or sizes_of(model) is not None:
            continue
        match model.source:
            case Folder(path=path):
                checkpoint: Path | None = folder / path
            case Hub(repo=repo, revision=revision):
                checkpoint = hub_snapshot("models", repo, revision)
            case _:
                checkpoint = None
        config = read_object(checkpoint / "config.json", LARGEST_CONFIG) if checkpoint is not None else None
        sizes = from_config(config) if config is not None else None
        if sizes is not None:
            sizes_by_model[model.name] = sizes
    return sizes_by_model


WEIGHT, GRADIENT, MOMENTS = 4, 4, 8
"""Bytes a parameter that training keeps: weight, gradient and two moments, all in float32. Between updates there is no
gradient."""
LOGIT_CHUNK, LOGIT_CHUNK_HERE = 2 * 4 * 2**27, 2 * 4 * 2**25
"""Logits and their gradient that are held at once, in float32: on a GPU, and on this machine's processor."""
RUNTIME_HERE = 384 * 2**20
"""Memory that Python, torch and transformers take on a laptop before there is a model: measured. GPUs hold none of it."""
KERNELS_HERE = 896 * 2**20
"""The memory that a process there comes to hold beyond that, for kernels of every shape and holes in its heap: measured."""


@dataclass(frozen=True, slots=True)
class Recipe:
    """The settings that change the memory of a training."""

    adapters: int | None = None
    """Number of weights of adapters, which alone have gradients and moments; None if all weights are trained."""
    on_host: bool = False
    """True if moments are in the host's memory."""
    frozen: bool = False
    """True if there is a reference model or teacher."""
    teacher: Sizes | None = None
    """Sizes of a second model with its own weights."""
    compares_all: bool = False
    """True if whole distributions are compared, so that the output matrix stays gathered."""

    @staticmethod
    def of(stage: Stage, sizes: Sizes, teacher: Sizes | None = None) -> Recipe:
        """Return the recipe of a stage; `teacher` has the sizes of another model that teaches."""
        lora = stage.lora
        return Recipe(
            None if lora is None else sizes.adapters(lora.rank, lora.layers),
            stage.optim.on == "host",
            stage.method.uses_reference,
            sizes if stage.method.ema_reference else teacher if stage.method.uses_reference else None,
            stage.method.uses_reference and isinstance(stage.method, Ppo) and stage.method.loss.compares_all,
        )

    def bytes(self, sizes: Sizes, devices: Devices, *, gradients: bool) -> float:
        """Return the bytes of weights, moments and, if asked, gradients on a training device.

        Args:
            sizes: sizes of the policy.
            devices: devices of the training.
            gradients: whether gradients are counted.
        """
        trained = sizes.parameters if self.adapters is None else self.adapters
        # On a laptop's processor the host's memory is the device's.
        away = self.on_host and devices.unit == "gpu_hours"
        # Copies of the model add up a step's gradients once: until then each has its own sum.
        sums = 1 if devices.copies == 1 else 2
        per_trained = (sums * GRADIENT if gradients else 0) + (0 if away else MOMENTS)
        weights = sizes.parameters + (self.adapters or 0)
        # Adapters that are left out of a pass leave the weights that training began with.
        frozen_weights = sizes.parameters if self.frozen and self.adapters is None else 0
        if self.teacher is not None:
            frozen_weights = self.teacher.parameters
        return (WEIGHT * (weights + frozen_weights) + per_trained * trained) / (
            devices.training // devices.copies
        )


ALL_WEIGHTS = Recipe()
"""Training of all weights, on its devices alone."""


def state_bytes(sizes: Sizes, devices: Devices, recipe: Recipe = ALL_WEIGHTS) -> float:
    """Return the bytes of weights, gradients and optimizer state on a training device.

    Args:
        sizes: sizes of the policy.
        devices: devices over which the state is sharded.
        recipe: settings that change the memory.
    """
    return recipe.bytes(sizes, devices, gradients=True)


def activation_bytes(sizes: Sizes, devices: Devices, longest: float) -> float:
    """Return the bytes that a micro-batch keeps for its backward pass.

    With recomputation these are a number per layer and token, and the inside of a layer. A micro-batch has
    `devices.microbatch` tokens, or the longest sequence if that is more.

    Args:
        sizes: sizes of the policy.
        devices: device of the pass.
        longest: tokens of the longest sequence.
    """
    tokens = max(float(devices.microbatch), longest)
    chunk = LOGIT_CHUNK if devices.width == 2 else LOGIT_CHUNK_HERE
    logits = min(float(chunk), 8 * tokens * sizes.vocabulary)
    if not devices.recompute:
        inside = 4 * sizes.hidden + 2 * sizes.attention + 2 * sizes.kv + 3 * sizes.intermediate
        return tokens * sizes.layers * inside * devices.width + logits
    # One layer's inside with its gradients, or the logits: the backward pass has one of them at a time.
    deep = 8 * sizes.hidden + 5.2 * sizes.attention + 1.6 * sizes.kv + 6 * sizes.intermediate
    stored = tokens * sizes.layers * sizes.hidden * devices.width
    return stored + max(tokens * deep * devices.width, logits)


def gathered_bytes(sizes: Sizes, devices: Devices, recipe: Recipe = ALL_WEIGHTS) -> float:
    """Return the bytes that a GPU gathers of sharded weights.

    They are embeddings, the output matrix and its gradient, two layers, and a layer's gradient in float32 on its way
    to other GPUs. Weights beside adapters have no gradient.

    Args:
        sizes: sizes of the policy.
        devices: devices over which the weights are sharded.
        recipe: settings that change the memory.
    """
    if devices.unit == "seconds":
        return 0.0
    layer = (sizes.products - sizes.vocabulary * sizes.hidden) / sizes.layers
    ends = sizes.parameters - sizes.layers * layer
    total = (ends + 2 * layer) * devices.width
    if recipe.compares_all:
        other = recipe.teacher or sizes
        total += other.vocabulary * other.hidden * devices.width
    if recipe.adapters is not None:
        return total
    return total + sizes.vocabulary * sizes.hidden * devices.width + GRADIENT * layer


BUCKET_BYTES = 1 << 30
"""The most bytes of weights that a device holds for the engine on it: a bucket, and what is put together for the next."""


def kept_bytes(sizes: Sizes, devices: Devices, recipe: Recipe = ALL_WEIGHTS) -> float:
    """Return the bytes that training keeps on a device between updates, with the weights on their way to engines.

    Each device hands its weights to its own engine bucket by bucket. If engines have devices of their own, the first
    training device has a copy of all weights.

    Args:
        sizes: sizes of the policy.
        devices: devices of the training.
        recipe: settings that change the memory.
    """
    copy = 0.0
    if devices.unit == "gpu_hours":
        copy = sizes.parameters * devices.width
        if not devices.disaggregated:
            copy = min(copy, BUCKET_BYTES)
    return recipe.bytes(sizes, devices, gradients=False) + copy


def trainer_bytes(
    sizes: Sizes, devices: Devices, longest: float, recipe: Recipe = ALL_WEIGHTS, *, feeds: bool = False
) -> float:
    """Return the peak of a training device: its shard of the state, gathered weights, and activations.

    Args:
        sizes: sizes of the policy.
        devices: devices of the training.
        longest: tokens of the longest sequence.
        recipe: settings that change the memory.
        feeds: whether it sends weights to engines, which may take more between updates.
    """
    passes = gathered_bytes(sizes, devices, recipe) + activation_bytes(sizes, devices, longest)
    update = state_bytes(sizes, devices, recipe) + passes
    between = kept_bytes(sizes, devices, recipe) if feeds else 0.0
    return _runtime(devices) + max(update, between)


def cache_tokens(sizes: Sizes, devices: Devices) -> float:
    """Return the tokens whose keys and values an engine can hold beside weights and training.

    Args:
        sizes: sizes of the model.
        devices: devices of the engine.
    """
    if devices.memory is None:
        # The embedded engine's caches: 1 GiB in float32, 3 in bfloat16.
        return float((3 if devices.width == 2 else 1) * 2**30) / sizes.kv_bytes(devices.cache_width)
    weights = sizes.parameters * devices.width / devices.tensor_parallel
    free = max(0.0, devices.memory * USABLE - weights - devices.resident_bytes)
    return free * devices.tensor_parallel / sizes.kv_bytes(devices.cache_width)


def engine_bytes(sizes: Sizes, devices: Devices, cached: float) -> float:
    """Return the peak of a generating device: weights, caches, and training on the same device.

    Args:
        sizes: sizes of the model.
        devices: devices of the engine.
        cached: tokens in the cache, as far as they fit.
    """
    return _runtime(devices) + devices.resident_bytes + served_bytes(sizes, devices, cached)


def served_bytes(sizes: Sizes, devices: Devices, cached: float) -> float:
    """Return the bytes of the engine itself, which it can free while a trainer has the device.

    Args:
        sizes: sizes of the model.
        devices: devices of the engine.
        cached: tokens in the cache, as far as they fit.
    """
    weights = sizes.parameters * devices.width / devices.tensor_parallel
    tokens = min(cached, cache_tokens(sizes, devices))
    return weights + tokens * sizes.kv_bytes(devices.cache_width) / devices.tensor_parallel


def process_bytes(peaks: Mapping[str, float]) -> float:
    """Return the peak of the process that has all roles in turn on this machine.

    Args:
        peaks: bytes by role.
    """
    return max(peaks.values(), default=0.0)


def _runtime(devices: Devices) -> float:
    return float(RUNTIME_HERE + KERNELS_HERE) if devices.unit == "seconds" else 0.0


def checkpoint_bytes(sizes: Sizes) -> float:
    """Return the bytes of a stored checkpoint in float32, from which the next stage continues.

    Args:
        sizes: sizes of the policy.
    """
    return 4.0 * sizes.parameters


def optimizer_bytes(sizes: Sizes, algorithm: str, recipe: Recipe = ALL_WEIGHTS) -> float:
    """Return the bytes of a stored optimizer: two float32 moments, or a single moment with Muon.

    Args:
        sizes: sizes of the policy.
        algorithm: name of the optimizer.
        recipe: settings that change the memory.
    """
    trained = sizes.parameters if recipe.adapters is None else recipe.adapters
    return trained * (4.0 if algorithm == "muon" else 8.0)
