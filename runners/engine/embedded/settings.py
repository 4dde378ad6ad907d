"""What can be set on the embedded engine: device, precision, batch shape and the memory for caches."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch

_SHARE = 3
"""The part of a GPU's free memory that caches may take; the rest is for passes, and for a trainer beside."""


@dataclass(frozen=True, slots=True)
class EmbeddedSettings:
    """Where and how the embedded engine runs. The defaults were measured on one CPU thread.

    At most `rows` responses are decoded at once; others start when half of them have ended. `cache_bytes` bounds
    the memory of key-value caches, those kept for `force` included (one row always starts). `prefill_tokens`
    bounds the tokens that are read in one pass. `linear` picks the matrix product: "onednn" repacks fp32 weights
    on CPU, "plain" never does, "auto" is the first where it is available.
    """

    device: str = "cpu"
    dtype: Literal["float32", "bfloat16"] = "float32"
    rows: int = 512
    cache_bytes: int = 1 << 30
    prefill_tokens: int = 8192
    linear: Literal["auto", "onednn", "plain"] = "auto"

    @staticmethod
    def on(device: str) -> EmbeddedSettings:
        """What suits a device: on a GPU caches go by the memory that is free there now."""
        if device == "cpu":
            return EmbeddedSettings()
        free, _ = torch.get_device_module(device).mem_get_info(device)
        return EmbeddedSettings(device=device, cache_bytes=free // _SHARE)
