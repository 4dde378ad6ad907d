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
"""Models whose attention is plain: causal, in a window at most, without sinks, biases or caps on scores."""


@dataclass(frozen=True, slots=True)
class PackedSequences:
    """The boundaries of packed sequences.

    `positions` [1, tokens] count each token within its own sequence. `starts` [sequences + 1] are the offsets of first
    tokens, and the end, in int32; both are on the device. `lengths` are known without asking the device.
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
    **others: Any,
) -> tuple[Tensor, None]:
    """Return attention over packed sequences, with the signature that `transformers` asks for.

    With `sequences` the input has one row, and no sequence sees another.

    Args:
        module: The layer; not used.
        query: [rows, heads, tokens, dim].
        key: [rows, key heads, tokens, dim].
        value: [rows, key heads, tokens, dim].
        attention_mask: None.
        scaling: The factor of scores, None for 1 / sqrt(dim).
        dropout: 0.
        sliding_window: The number of keys that a query sees, None for all before it.
        sequences: The boundaries in the row, None for rows of their own.
        **others: Not used.

    Returns:
        [rows, tokens, heads, dim], and None for weights.
    """
    assert attention_mask is None
    assert not dropout
    if sequences is None:
        return _attend(query, key, value, scaling, sliding_window).transpose(1, 2), None
    if query.device.type == "cuda" and query.dtype in (torch.bfloat16, torch.float16):
        return _flash(query, key, value, scaling, sliding_window, sequences), None
    parts = zip(*(tensor.split(sequences.lengths, dim=2) for tensor in (query, key, value)), strict=True)
    mixed = [_attend(q, k, v, scaling, sliding_window) for q, k, v in parts]
    return torch.cat(mixed, dim=2).transpose(1, 2), None


def _flash(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    scaling: float | None,
    window: int | None,
    sequences: PackedSequences,
) -> Tensor:
    """Return flash attention over packed sequences, [1, tokens, heads, dim]."""
    from torch.nn.attention.varlen import varlen_attn

    # [tokens, heads, dim]; a window of n keys has the query's own and n - 1 before it.
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
    """Return causal attention of rows that are not packed, [rows, heads, tokens, dim]."""
    width = query.shape[2]
    mask = None
    if window is not None and window < width:
        seen = torch.ones(width, width, dtype=torch.bool, device=query.device).tril()
        mask = seen & ~seen.tril(-window)
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
    """Return whether sequences are packed by default.

    Not on a processor, whose own pass is for padded ones, nor where a model's attention is another.
    """
    return device.type != "cpu" and getattr(model.config, "model_type", None) in MODELS


def pack(model: Any) -> None:
    """Let the model's own forward take packed `sequences` from now on."""
    AttentionInterface.register(ATTENTION_NAME, packed_attention)
    model.set_attn_implementation(ATTENTION_NAME)


@cache
def activate_flash(device: torch.device) -> None:
    """Take flash attention 4 where it is installed, on Hopper and Blackwell GPUs; torch's own stays elsewhere."""
    if device.type == "cuda" and torch.cuda.get_device_capability(device)[0] in (9, 10):
        with suppress(ModuleNotFoundError):
            activate_flash_attention_impl("FA4")


P = ParamSpec("P")
R = TypeVar("R")


def apply_liger(model: Any, device: torch.device) -> bool:
    """Give this model liger-kernel's norms, rotary positions and gated layers; return whether it has them now."""
    if not can_compile(device) or importlib.util.find_spec("liger_kernel") is None:
        return False
    liger = importlib.import_module("liger_kernel.transformers")
    modeling = sys.modules[type(model).__module__]
    before = dict(vars(modeling))
    liger._apply_liger_kernel_to_instance(
        model=model,
        rope=True,
        rms_norm=True,
        swiglu=True,
        # Log-probabilities are ours: of chosen tokens, at a temperature, in chunks.
        cross_entropy=False,
        fused_linear_cross_entropy=False,
    )
    changed = {name: value for name, value in vars(modeling).items() if before.get(name, value) is not value}
    for name in changed:
        # What it has changed for models to come stays as it was: some of them are on a processor.
        setattr(modeling, name, before[name])
    rotate = changed.get("apply_rotary_pos_emb")
    if rotate is not None:
        modeling.apply_rotary_pos_emb = _by_device(rotate, before["apply_rotary_pos_emb"])  # type: ignore[attr-defined]
    return bool(changed)


def _by_device(fused: Callable[..., Any], plain: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function that calls `fused` or `plain` by device; models on all devices share a module's rotary positions."""

    def rotate(q: torch.Tensor, *others: Any, **more: Any) -> Any:
        return (fused if q.device.type == "cuda" else plain)(q, *others, **more)

    return rotate


@cache
def can_compile(device: torch.device) -> bool:
    """Return whether Triton can compile for this device: it takes a C compiler besides."""
    named = os.environ.get("CC") or shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    return device.type == "cuda" and importlib.util.find_spec("triton") is not None and named is not None


def compile_kernel(function: Callable[P, R], device: torch.device) -> Callable[P, R]:
    """Return the function compiled to a kernel for tensors with any number of rows, or as it is if it cannot be compiled."""
    return _compiled(function) if can_compile(device) else function


@cache
def _compiled(function: Callable[..., Any]) -> Callable[..., Any]:
    return torch.compile(function, dynamic=True)
