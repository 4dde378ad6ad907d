"""Matrix products on a processor: few numbers of rows, and inputs rounded to bfloat16."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any, cast

import torch
from torch import Tensor
from torch.nn import functional

HALF = torch.bfloat16
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


@cache
def computes_bfloat16() -> bool:
    """Return whether oneDNN multiplies in bfloat16 here, found by one product.

    What a processor names among its flags is not what a build of oneDNN does on it, and `ONEDNN_MAX_CPU_ISA` forbids more.
    """
    rows = (torch.arange(32 * 64) % 13 - 6.0).view(32, 64).to(HALF)
    weight = (torch.arange(48 * 64) % 7 - 3.0).view(48, 64).to(HALF)
    try:
        packed = torch.ops.mkldnn._reorder_linear_weight(weight)
        product = torch.ops.mkldnn._linear_pointwise(rows, packed, None, "none", [], "")
    except (AttributeError, RuntimeError):
        return False
    # Whole numbers this small are summed without an error, so that the last rounding alone is left.
    return bool(torch.equal(product, (rows.float() @ weight.float().t()).to(HALF)))


def rounded(x: Tensor) -> Tensor:
    """Return float32 values rounded to what bfloat16 can hold."""
    return x.to(HALF).float()


@contextmanager
def rounded_inputs() -> Iterator[None]:
    """Let oneDNN round float32 inputs of products to bfloat16; sums and results stay float32.

    This gives speed and nothing else: many processors ignore it, and so do small products. Whoever needs rounded inputs
    everywhere rounds them first (`rounded`), which a second rounding does not change.
    """
    setting = cast(Any, torch.backends.mkldnn).matmul
    before = setting.fp32_precision
    setting.fp32_precision = "bf16"
    try:
        yield
    finally:
        setting.fp32_precision = before
