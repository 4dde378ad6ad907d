"""Packed attention, and fused CUDA kernels for a decoder's norms, rotary positions and gated layers.

On CUDA in half precision attention is flash attention, through torch's interface for sequences of unlike lengths. Everywhere
else it goes sequence by sequence through torch's attention. The fused kernels are liger-kernel's (Hsu et al. 2024), where it
is installed: written in Triton, which compiles them when they are first run.
"""

from __future__ import annotations

import importlib
import importlib.util
import os
import shutil
import sys
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from typing import Any, ParamSpec, TypeVar

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.nn.attention import activate_flash_attention_impl
from transformers import AttentionInterface

ATTENTION_NAME = "reodsl_packed"
MODELS = frozenset(("llama", "mistral", "mixtral", "qwen2", "qwen2_moe", "qwen3", "qwen3_moe", "smollm3"))
"""Types of models with causal attention, perhaps in a sliding window, without sinks, biases or caps on scores."""


@dataclass(frozen=True, slots=True)
class PackedSequences:
    """The boundaries of packed sequences.

    `positions` [1, tokens] are the index of each token within its own sequence. `starts` [sequences + 1] are the
    offsets of the sequences' first tokens, followed by the number of tokens, in int32. Both are on the device, while
    `lengths` are Python numbers, so that reading a length does not wait for the device.
    """

    positions: Tensor
    starts: Tensor
    lengths: tuple[int, ...]


def packed_attention(
    module: Any,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    scaling: float | None = None,
    dropout: float = 0.0,
    sliding_window: int | None = None,
    sequences: PackedSequences | None = None,
    **unused_kwargs: Any,
) -> tuple[Tensor, None]:
    """Return causal attention over packed sequences; `transformers` prescribes the signature.

    If `sequences` is given, the input has one row, and a token attends only to tokens of its own sequence. On CUDA in
    half precision, the packed row runs through flash attention. Otherwise attention runs sequence by sequence.

    Args:
        module: The layer; not used.
        query: [rows, heads, tokens, dim].
        key: [rows, key heads, tokens, dim].
        value: [rows, key heads, tokens, dim].
        attention_mask: Always None: the mask is causal.
        scaling: The factor of scores, None for 1 / sqrt(dim).
        dropout: Always 0.
        sliding_window: The number of keys that a query sees, its own key included; None for all keys up to the query.
        sequences: The boundaries of sequences in the single row; None if each row is one sequence.
        **unused_kwargs: Not used.

    Returns:
        The output, [rows, tokens, heads, dim], and None in place of attention weights.
    """
    assert attention_mask is None
    assert not dropout
    if sequences is None:
        return _attend(query, key, value, scaling, sliding_window).transpose(1, 2), None
    if query.device.type == "cuda" and query.dtype in (torch.bfloat16, torch.float16):
        return _flash(query, key, value, scaling, sliding_window, sequences), None
    inputs = zip(*(tensor.split(sequences.lengths, dim=2) for tensor in (query, key, value)), strict=True)
    outputs = [_attend(q, k, v, scaling, sliding_window) for q, k, v in inputs]
    return torch.cat(outputs, dim=2).transpose(1, 2), None


def _flash(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    scaling: float | None,
    window: int | None,
    sequences: PackedSequences,
) -> Tensor:
    """Return flash attention over the packed sequences of one row, [1, tokens, heads, dim].

    The arguments are those of `packed_attention`.
    """
    from torch.nn.attention.varlen import varlen_attn

    # [tokens, heads, dim]; a window of n keys has the query's own key and the n - 1 keys before it.
    q, k, v = (tensor[0].transpose(0, 1) for tensor in (query, key, value))
    longest = max(sequences.lengths)
    out = varlen_attn(
        q,
        k,
        v,
        sequences.starts,
        sequences.starts,
        longest,
        longest,
        scale=scaling,
        window_size=(-1 if window is None else window - 1, 0),
        enable_gqa=q.shape[1] != k.shape[1],
    )
    assert isinstance(out, Tensor)
    return out.unsqueeze(0)


def _attend(query: Tensor, key: Tensor, value: Tensor, scaling: float | None, window: int | None) -> Tensor:
    """Return causal attention over rows that each hold one sequence, [rows, heads, tokens, dim].

    Args:
        query: [rows, heads, tokens, dim].
        key: [rows, key heads, tokens, dim].
        value: [rows, key heads, tokens, dim].
        scaling: The factor of scores, None for 1 / sqrt(dim).
        window: The number of keys that a query sees, itself included; None for all keys up to the query.
    """
    width = query.shape[2]
    mask = None
    if window is not None and window < width:
        causal = torch.ones(width, width, dtype=torch.bool, device=query.device).tril()
        mask = causal & ~causal.tril(-window)
    return F.scaled_dot_product_attention(
        query,
        key,
        value,
        attn_mask=mask,
        is_causal=mask is None,
        scale=scaling,
        enable_gqa=query.shape[1] != key.shape[1],
    )


def packs(model: Any, device: torch.device) -> bool:
    """Return whether a model's sequences are run packed, without padding.

    They are packed on an accelerator if the model's type is in `MODELS`. On a CPU sequences are padded.
    """
    return device.type != "cpu" and getattr(model.config, "model_type", None) in MODELS


def pack(model: Any) -> None:
    """Set the model's attention to `packed_attention`, so that its forward pass accepts packed `sequences`."""
    AttentionInterface.register(ATTENTION_NAME, packed_attention)
    model.set_attn_implementation(ATTENTION_NAME)


@cache
def activate_flash(device: torch.device) -> None:
    """Switch torch to flash attention 4 if the GPU supports it and the package is installed; else change nothing.

    The supported GPUs have compute capability 9.x or 10.x: Hopper and data-centre Blackwell, without consumer Blackwell
    (12.x). The switch is global for this process. Repeated calls for a device do nothing.
    """
    if device.type == "cuda" and torch.cuda.get_device_capability(device)[0] in (9, 10):
        with suppress(ModuleNotFoundError):
            activate_flash_attention_impl("FA4")


P = ParamSpec("P")
R = TypeVar("R")


def apply_liger(model: Any, device: torch.device) -> bool:
    """Install liger-kernel's norms, rotary positions and gated layers in this model, if kernels can be compiled.

    liger-kernel replaces functions of the model's `transformers` module, which other models, perhaps on a CPU, share.
    These functions are therefore restored. Only the rotary function stays replaced, by one that chooses by device.

    Returns:
        True if liger-kernel changed a function of the module; false if kernels cannot be compiled, liger-kernel is not
        installed, or nothing changed.
    """
    if not can_compile(device) or importlib.util.find_spec("liger_kernel") is None:
        return False
    liger = importlib.import_module("liger_kernel.transformers")
    modeling = sys.modules[type(model).__module__]
    originals = dict(vars(modeling))
    liger._apply_liger_kernel_to_instance(
        model=model,
        rope=True,
        rms_norm=True,
        swiglu=True,
        # `logprobs.py` computes log-probabilities: of chosen tokens, at a temperature, in chunks.
        cross_entropy=False,
        fused_linear_cross_entropy=False,
    )
    changed = {
        name: value for name, value in vars(modeling).items() if originals.get(name, value) is not value
    }
    for name in changed:
        setattr(modeling, name, originals[name])
    fused_rotation = changed.get("apply_rotary_pos_emb")
    if fused_rotation is not None:
        modeling.apply_rotary_pos_emb = _by_device(fused_rotation, originals["apply_rotary_pos_emb"])  # type: ignore[attr-defined]
    return bool(changed)


def _by_device(fused: Callable[..., Any], unfused: Callable[..., Any]) -> Callable[..., Any]:
    """Return a rotary-position function that calls `fused` for CUDA tensors and `unfused` for others.

    The choice is made at each call because a `transformers` module has one rotary function for models on all devices.
    """

    def rotate(q: torch.Tensor, *arguments: Any, **keywords: Any) -> Any:
        return (fused if q.device.type == "cuda" else unfused)(q, *arguments, **keywords)

    return rotate


@cache
def can_compile(device: torch.device) -> bool:
    """Return whether Triton can compile kernels for this device.

    The device must be CUDA, Triton must be installed, and a C compiler must be named by `CC` or found on the path.
    """
    compiler = os.environ.get("CC") or shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    return device.type == "cuda" and importlib.util.find_spec("triton") is not None and compiler is not None


def compile_kernel(function: Callable[P, R], device: torch.device) -> Callable[P, R]:
    """Return the function compiled by torch for inputs of any size; unchanged if `can_compile` is false."""
    return _compile_once(function) if can_compile(device) else function


@cache
def _compile_once(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return the compiled function; repeated calls return the same object."""
    return torch.compile(function, dynamic=True)
