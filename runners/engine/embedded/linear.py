"""Products with fixed weights, by torch or by oneDNN.

On the processors measured, oneDNN with repacked weights is 1.8 to 2.4 times torch's default fp32 product from
64 rows up, with differences of rounding alone.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import torch
from torch.nn import functional

from runners.rounded import HALF, computes_bfloat16, rounded, rounded_inputs

Linear = Callable[[torch.Tensor], torch.Tensor]


def onednn_available(device: torch.device, dtype: torch.dtype) -> bool:
    """Whether repacked weights can be used here: float32 ones, and bfloat16 ones where the processor multiplies them."""
    return (
        device.type == "cpu"
        and (dtype == torch.float32 or (dtype == HALF and computes_bfloat16()))
        and torch.backends.mkldnn.is_available()
        and hasattr(torch.ops.mkldnn, "_reorder_linear_weight")
        and hasattr(torch.ops.mkldnn, "_linear_pointwise")
    )


def linear(
    weight: torch.Tensor, bias: torch.Tensor | None, kind: Literal["auto", "onednn", "plain"]
) -> Linear:
    """`rows [n, in] -> rows [n, out]` for `weight` [out, in], which is not kept when it is repacked."""
    if kind != "plain" and onednn_available(weight.device, weight.dtype):
        packed = torch.ops.mkldnn._reorder_linear_weight(weight.contiguous())

        def by_onednn(rows: torch.Tensor) -> torch.Tensor:
            return torch.ops.mkldnn._linear_pointwise(rows, packed, bias, "none", [], "")

        return by_onednn

    def by_torch(rows: torch.Tensor) -> torch.Tensor:
        return functional.linear(rows, weight, bias)

    return by_torch


def rounded_linear(weight: torch.Tensor, kind: Literal["auto", "onednn", "plain"]) -> Linear:
    """Return `rows [n, in] -> rows [n, out]` in float32, of inputs rounded to bfloat16; a GPU rounds the sums as well."""
    if weight.device.type != "cpu":
        half = linear(weight.to(HALF), None, kind)
        return lambda rows: half(rows.to(HALF)).float()
    with rounded_inputs():
        by_rounding = linear(rounded(weight), None, kind)

    def by_inputs(rows: torch.Tensor) -> torch.Tensor:
        with rounded_inputs():
            return by_rounding(rounded(rows))

    return by_inputs
