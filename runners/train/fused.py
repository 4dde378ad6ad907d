"""Fused CUDA kernels for a decoder's norms, rotary positions and gated layers.

They are liger-kernel's (Hsu et al. 2024), where it is installed: written in Triton, which compiles them when they are first
run. Everywhere else nothing changes.
"""

from __future__ import annotations

import importlib
import importlib.util
import os
import shutil
import sys
from collections.abc import Callable
from functools import cache
from typing import Any, ParamSpec, TypeVar

import torch

P = ParamSpec("P")
R = TypeVar("R")


def fuse(model: Any, device: torch.device) -> bool:
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
    """Return a function that chooses by device: a module's models on all devices call the same one for rotary positions."""

    def rotate(q: torch.Tensor, *others: Any, **more: Any) -> Any:
        return (fused if q.device.type == "cuda" else plain)(q, *others, **more)

    return rotate


@cache
def can_compile(device: torch.device) -> bool:
    """Return whether Triton can compile for this device: it takes a C compiler besides."""
    named = os.environ.get("CC") or shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    return device.type == "cuda" and importlib.util.find_spec("triton") is not None and named is not None


def compile_kernel(function: Callable[P, R], device: torch.device) -> Callable[P, R]:
    """Return the function as one kernel for tensors of any number of rows, or as it is if it cannot be compiled."""
    return _compiled(function) if can_compile(device) else function


@cache
def _compiled(function: Callable[..., Any]) -> Callable[..., Any]:
    return torch.compile(function, dynamic=True)
