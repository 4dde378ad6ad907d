"""Products in bfloat16 on a processor: whether it has them, and float32 products with rounded inputs."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, cast

import torch

HALF = torch.bfloat16


def computes_bfloat16() -> bool:
    """Whether torch has oneDNN's products in bfloat16 on this processor."""
    return bool(torch.backends.mkldnn.is_available() and torch.ops.mkldnn._is_mkldnn_bf16_supported())


@contextmanager
def rounded_inputs() -> Iterator[None]:
    """Within it oneDNN rounds what it multiplies from float32 to bfloat16, sums in float32 and gives float32.

    On a processor without such products they stay as they are.
    """
    setting = cast(Any, torch.backends.mkldnn).matmul
    before = setting.fp32_precision
    setting.fp32_precision = "bf16"
    try:
        yield
    finally:
        setting.fp32_precision = before
