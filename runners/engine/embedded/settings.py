"""Settings of the embedded engine: device, precision, batch shape, and memory for caches."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch

_SHARE = 3
"""The part of a GPU's free memory that caches may take; the rest is for passes, and for a trainer beside."""
_HALF_CACHES = 3 << 30
"""Bytes of caches in bfloat16 on a processor: products of a real model want hundreds of rows, each with its keys and
values. No machine chooses its own, since the batches are part of the result's last bits."""


@dataclass(frozen=True, slots=True)
class EmbeddedSettings:
    """Where and how the embedded engine runs. The defaults were measured on one CPU thread.

    At most `rows` responses are decoded at once; others start when half of them have ended. `cache_bytes` bounds
    the memory of key-value caches, those kept for `force` included (one row always starts). `prefill_tokens`
    bounds the tokens that are read in one pass. `dtype` is what layers multiply; sums, norms, the residual stream and logits
    are float32 either way. `linear` picks the matrix product: "onednn" repacks weights
    on CPU, "plain" never does, "auto" is the first where it is available.
    """

    device: str = "cpu"
    dtype: Literal["float32", "bfloat16"] = "float32"
    rows: int = 512
    cache_bytes: int = 1 << 30
    prefill_tokens: int = 8192
    linear: Literal["auto", "onednn", "plain"] = "auto"

    @staticmethod
    def on(device: str, precision: str = "auto") -> EmbeddedSettings:
        """What suits a device and a model's precision: on a GPU caches go by the memory that is free there now."""
        half = precision == "bfloat16"
        dtype: Literal["float32", "bfloat16"] = "bfloat16" if half else "float32"
        if device == "cpu":
            return EmbeddedSettings(dtype=dtype, cache_bytes=_HALF_CACHES) if half else EmbeddedSettings()
        free, _ = torch.get_device_module(device).mem_get_info(device)
        return EmbeddedSettings(device=device, dtype=dtype, cache_bytes=free // _SHARE)
