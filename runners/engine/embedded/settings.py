"""What can be set on the embedded engine: device, precision, batch shape and the memory for caches."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True)
class EmbeddedSettings:
    """Where and how the embedded engine runs. The defaults were measured on one CPU thread.

    `rows` responses at most are decoded at once, in cohorts of at most `cohort_rows` that start together: few
    enough that their cache stays near the processor, enough that matrix products are efficient.
    `cache_bytes` bounds the memory of key-value caches, those kept for `force` included.
    `linear` picks the matrix product: "onednn" repacks fp32 weights on CPU, "plain" never does, "auto" is the
    first where it is available.
    """

    device: str = "cpu"
    dtype: Literal["float32", "bfloat16"] = "float32"
    rows: int = 128
    cohort_rows: int = 64
    cache_bytes: int = 1 << 30
    prefill_tokens: int = 8192
    linear: Literal["auto", "onednn", "plain"] = "auto"
