"""Matrix products on a processor: few numbers of rows."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional

_BITS = 4
"""The bits of a number of rows that may differ after the leading one: 16 numbers for each doubling."""


def round_up(rows: int) -> int:
    """Return the least number that is not below `rows` and has at most five significant bits."""
    step = 1 << max(rows.bit_length() - 1 - _BITS, 0)
    return -(-rows // step) * step


def pad_rows(x: Tensor) -> Tensor:
    """Return `x` [rows, ...] on CPU with zeros up to [round_up(rows), ...], and itself on other devices.

    oneDNN prepares a product anew for each shape that it meets, which takes longer than a product of a small model: with a
    number of rows that changes from step to step, decoding spent half of its products' time so.
    """
    extra = round_up(len(x)) - len(x) if x.device.type == "cpu" else 0
    return functional.pad(x, (0, 0) * (x.dim() - 1) + (0, extra)) if extra else x


def computes_bfloat16() -> bool:
    """Return whether oneDNN multiplies in bfloat16 here, which `ONEDNN_MAX_CPU_ISA` may forbid."""
    return torch.backends.mkldnn.is_available() and bool(torch.ops.mkldnn._is_mkldnn_bf16_supported())
