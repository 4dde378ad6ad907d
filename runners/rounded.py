"""Products in bfloat16 on a processor: whether it has them, and float32 products of rounded inputs."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any, cast

import torch
from torch import Tensor

HALF = torch.bfloat16


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
