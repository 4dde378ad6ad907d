"""Pad the rows of a matrix product with zeros, so that few numbers of rows ever occur.

oneDNN prepares a product anew for each shape that it meets, which takes longer than a product of a small model: with a
number of rows that changes from step to step, decoding spent half of its products' time so.
"""

from __future__ import annotations

import torch
from torch.nn import functional

_BITS = 4
"""The bits that may differ after the leading one: 16 numbers of rows for each doubling, at most a sixteenth added."""


def rounded(rows: int) -> int:
    """Return the least number that is not below `rows` and has at most five significant bits."""
    step = 1 << max(rows.bit_length() - 1 - _BITS, 0)
    return -(-rows // step) * step


def filled(x: torch.Tensor) -> torch.Tensor:
    """`x` [rows, ...] with zeros up to [rounded(rows), ...] on CPU; itself on other devices, where it saves nothing."""
    extra = rounded(len(x)) - len(x) if x.device.type == "cpu" else 0
    return functional.pad(x, (0, 0) * (x.dim() - 1) + (0, extra)) if extra else x
