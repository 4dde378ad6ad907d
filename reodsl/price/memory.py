"""Memory and disk: bytes on a device and in the store, from a model's sizes and the settings of its training."""

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
    """Weights in matrix products: all but norms and an embedding table that is only looked up."""
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
        """Return the FLOPs of a forward pass: 2 per weight and token, and those of attention.

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
    """Return the sizes of a model with declared dimensions or a declared architecture; None for any other model."""
    if model.dimensions is not None:
        return from_dimensions(model.dimensions)
    return from_architecture(model.source) if isinstance(model.source, Architecture) else None


def from_dimensions(dimensions: Dimensions) -> Sizes:
    """Return the sizes of a model from its declared `dimensions`."""
    return replace(_count(*_shape_of(dimensions), dimensions.vocabulary), parameters=dimensions.parameters)


def from_architecture(source: Architecture) -> Sizes:
    """Return the sizes of a randomly initialised model from its declared architecture."""
    words = source.tokenizer
    vocabulary = len({*words.words, words.eos, words.pad})
    norms = source.layers * 2 * source.head_dim if source.family == "qwen3" else 0
    return _count(*_shape_of(source), vocabulary, tied=source.tie_embeddings, norms=norms)


def _shape_of(model: Dimensions | Architecture) -> tuple[int, int, int, int, int, int]:
    """Return layers, hidden width, heads, key-value heads, width of a head, and width of the feed-forward layer."""
    return model.layers, model.hidden, model.heads, model.kv_heads, model.head_dim, model.intermediate


LARGEST = 1 << 31
"""The largest number accepted from a config, far above that of any model."""


def from_config(config: Mapping[str, Any]) -> Sizes | None:
    """Return the sizes of a model from its `config.json`; None if a number is missing, below 1 or above `LARGEST`.

    Args:
        config: content of the file, with the names of Hugging Face transformers.
    """
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
    """Return the sizes of a model, with its weights counted.

    A layer has query, output, key, value, gate, up and down matrices and two norms.

    Args:
        layers: number of layers.
        hidden: width of the residual stream.
        heads: number of query heads.
        kv_heads: number of key and value heads.
        head_dim: width of a head.
        intermediate: width of the feed-forward layer.
        vocabulary: number of tokens in the vocabulary.
        tied: whether the output matrix is the embedding table.
        norms: weights of further norms, beside two per layer and the last one.
    """
    attention, kv, table = heads * head_dim, kv_heads * head_dim, vocabulary * hidden
    layer = 2 * hidden * attention + 2 * hidden * kv + 3 * hidden * intermediate
    products = layers * layer + table
    parameters = products + (0 if tied else table) + (2 * layers + 1) * hidden + norms
    return Sizes(parameters, products, layers, hidden, attention, kv, intermediate, vocabulary)


def sizes_at_hand(spec: Spec, folder: Path) -> dict[str, Sizes]:
    """Return the sizes of models whose weights are on this machine, as a local checkpoint or in the hub's cache.

    Models whose sizes the spec declares are left out, and so are models whose `config.json` cannot be found or read.

    Args:
        spec: the spec.
        folder: folder of the spec, where relative paths start.

    Returns:
        Sizes by the model's name.
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
"""Bytes per parameter in training: weight, gradient and two moments, all in float32. Gradients are freed between
updates."""
LOGIT_CHUNK, LOGIT_CHUNK_HERE = 2 * 4 * 2**27, 2 * 4 * 2**25
"""The most bytes of logits and their gradient at once, in float32: on a GPU, and on this machine's processor."""
RUNTIME_HERE = 384 * 2**20
"""Bytes of Python, torch and transformers on a laptop before a model is loaded, as measured; none are on GPUs."""
KERNELS_HERE = 896 * 2**20
"""Further bytes of a process on a laptop, for kernels of all shapes and fragmentation of its heap, as measured."""


@dataclass(frozen=True, slots=True)
class Recipe:
    """The settings that change the memory of a training."""

    adapters: int | None = None
    """Number of weights of adapters, if only adapters have gradients and moments; None if all weights are trained."""
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
        """Return the recipe of a stage.

        Args:
            stage: the stage.
            sizes: sizes of the policy.
            teacher: sizes of the teacher, if it is another model than the stage starts from.
        """
        lora = stage.lora
        return Recipe(
            None if lora is None else sizes.adapters(lora.rank, lora.layers),
            stage.optim.on == "host",
            stage.method.uses_reference,
            sizes if stage.method.ema_reference else teacher if stage.method.uses_reference else None,
            stage.method.uses_reference and isinstance(stage.method, Ppo) and stage.method.loss.compares_all,
        )

    def bytes(self, sizes: Sizes, devices: Devices, *, gradients: bool) -> float:
        """Return the bytes of weights, optimizer moments and, with `gradients`, gradients on a training device.

        The weights of a reference model or teacher are included.

        Args:
            sizes: sizes of the policy.
            devices: devices of the training.
            gradients: whether gradients are counted.
        """
        trained = sizes.parameters if self.adapters is None else self.adapters
        # A laptop's processor has no memory besides the host's.
        away = self.on_host and devices.unit == "gpu_hours"
        # With several copies of the model, each sums its own gradients until one all-reduce per step.
        sums = 1 if devices.copies == 1 else 2
        per_trained = (sums * GRADIENT if gradients else 0) + (0 if away else MOMENTS)
        weights = sizes.parameters + (self.adapters or 0)
        # With adapters, the reference model is the policy without its adapters.
        frozen_weights = sizes.parameters if self.frozen and self.adapters is None else 0
        if self.teacher is not None:
            frozen_weights = self.teacher.parameters
        return (WEIGHT * (weights + frozen_weights) + per_trained * trained) / (
            devices.training // devices.copies
        )


ALL_WEIGHTS = Recipe()
"""Training of all weights, with moments on the devices and without a reference model."""


def state_bytes(sizes: Sizes, devices: Devices, recipe: Recipe = ALL_WEIGHTS) -> float:
    """Return the bytes of weights, gradients and optimizer state on a training device.

    Args:
        sizes: sizes of the policy.
        devices: devices over which the state is sharded.
        recipe: settings that change the memory.
    """
    return recipe.bytes(sizes, devices, gradients=True)


def activation_bytes(sizes: Sizes, devices: Devices, longest: float) -> float:
    """Return the bytes that a micro-batch keeps for its backward pass, with its logits.

    With recomputation it keeps only the input of each layer, and the activations of one layer at a time. Without, it
    keeps the activations of all layers. A micro-batch has `devices.microbatch` tokens, or the longest sequence if that
    is more.

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
    # The backward pass holds either one layer's activations and gradients or the logits.
    deep = 8 * sizes.hidden + 5.2 * sizes.attention + 1.6 * sizes.kv + 6 * sizes.intermediate
    stored = tokens * sizes.layers * sizes.hidden * devices.width
    return stored + max(tokens * deep * devices.width, logits)


def gathered_bytes(sizes: Sizes, devices: Devices, recipe: Recipe = ALL_WEIGHTS) -> float:
    """Return the bytes of sharded weights that a GPU gathers for a pass; 0 on this machine.

    These are embeddings, the output matrix and its gradient, two layers, and a layer's gradient in float32 on its way
    to other GPUs. With adapters the two gradients are left out. If complete distributions are compared, the other
    model's output matrix is added.

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
"""The most bytes of weights that a device holds on their way to its engine: a bucket, and the next one in preparation."""


def kept_bytes(sizes: Sizes, devices: Devices, recipe: Recipe = ALL_WEIGHTS) -> float:
    """Return the bytes that training keeps on a device between updates, with weights on their way to engines.

    A colocated device hands weights to its engine bucket by bucket. If engines have devices of their own, the first
    training device gathers a copy of all weights.

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
    """Return the peak bytes of a training device.

    During an update they are its shard of the state, gathered weights, and activations. If the trainer sends weights to
    engines, the bytes between two updates may be more, so the larger of the two counts.

    Args:
        sizes: sizes of the policy.
        devices: devices of the training.
        longest: tokens of the longest sequence.
        recipe: settings that change the memory.
        feeds: whether the trainer sends new weights to engines after an update.
    """
    passes = gathered_bytes(sizes, devices, recipe) + activation_bytes(sizes, devices, longest)
    update = state_bytes(sizes, devices, recipe) + passes
    between = kept_bytes(sizes, devices, recipe) if feeds else 0.0
    return _runtime_bytes(devices) + max(update, between)


def cache_tokens(sizes: Sizes, devices: Devices) -> float:
    """Return the number of tokens whose keys and values fit in an engine's memory.

    Weights, and the bytes that training keeps on the same devices, are subtracted first. If the memory of a device is
    unknown, as on this machine, it is the fixed cache of the embedded engine.

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
    """Return the peak bytes of a generating device: weights, caches, and the state of training on the same device.

    Args:
        sizes: sizes of the model.
        devices: devices of the engine.
        cached: tokens that would be cached; those that do not fit are ignored.
    """
    return _runtime_bytes(devices) + devices.resident_bytes + served_bytes(sizes, devices, cached)


def served_bytes(sizes: Sizes, devices: Devices, cached: float) -> float:
    """Return the bytes of an engine's weights and caches on a device, which it can free while a trainer uses the device.

    Args:
        sizes: sizes of the model.
        devices: devices of the engine.
        cached: tokens that would be cached; those that do not fit are ignored.
    """
    weights = sizes.parameters * devices.width / devices.tensor_parallel
    tokens = min(cached, cache_tokens(sizes, devices))
    return weights + tokens * sizes.kv_bytes(devices.cache_width) / devices.tensor_parallel


def process_bytes(peaks: Mapping[str, float]) -> float:
    """Return the peak bytes of a process on this machine, which is trainer and engine in turn.

    Args:
        peaks: peak bytes by role, `trainer` or `engine`; 0 is returned if it is empty.
    """
    return max(peaks.values(), default=0.0)


def _runtime_bytes(devices: Devices) -> float:
    """Return the bytes of Python and its libraries on a laptop's device; 0 on a GPU."""
    return float(RUNTIME_HERE + KERNELS_HERE) if devices.unit == "seconds" else 0.0


def checkpoint_bytes(sizes: Sizes) -> float:
    """Return the bytes of a stored checkpoint in float32.

    Args:
        sizes: sizes of the policy.
    """
    return 4.0 * sizes.parameters


def optimizer_bytes(sizes: Sizes, algorithm: str, recipe: Recipe = ALL_WEIGHTS) -> float:
    """Return the bytes of a stored optimizer: two float32 moments for each trained weight, or one with Muon.

    Args:
        sizes: sizes of the policy.
        algorithm: name of the optimizer.
        recipe: settings that change the memory.
    """
    trained = sizes.parameters if recipe.adapters is None else recipe.adapters
    return trained * (4.0 if algorithm == "muon" else 8.0)
