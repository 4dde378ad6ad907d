"""Decode the blocks in which GGUF stores numbers. Layouts as in ggml's `block_*` structures."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Bytes = NDArray[np.uint8]
Floats = NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class Block:
    """A storage type: `numbers` of a tensor's row in `bytes` bytes, and how they are decoded."""

    name: str
    numbers: int
    bytes: int
    decode: Callable[[Bytes], Floats]


def _plain(dtype: str) -> Callable[[Bytes], Floats]:
    def decode(raw: Bytes) -> Floats:
        return raw.view(dtype).astype(np.float32)

    return decode


def _bf16(raw: Bytes) -> Floats:
    return (raw.view("<u2").astype(np.uint32) << 16).view(np.float32)


def _halves(raw: Bytes, at: int) -> Floats:
    """The fp16 number at byte `at` of each block, as a column."""
    return np.ascontiguousarray(raw[:, at : at + 2]).view("<f2").astype(np.float32)


def _nibbles(raw: Bytes) -> Floats:
    """Low halves of 16 bytes, then their high halves: 32 whole numbers in 0..15 a block."""
    return np.concatenate([raw & 15, raw >> 4], axis=1).astype(np.float32)


def _q4_0(raw: Bytes) -> Floats:
    """A scale, then 32 numbers of 4 bits around 8."""
    blocks = raw.reshape(-1, 18)
    return _halves(blocks, 0) * (_nibbles(blocks[:, 2:]) - 8)


def _q4_1(raw: Bytes) -> Floats:
    """A scale and a least value, then 32 numbers of 4 bits."""
    blocks = raw.reshape(-1, 20)
    return _halves(blocks, 0) * _nibbles(blocks[:, 4:]) + _halves(blocks, 2)


def _q8_0(raw: Bytes) -> Floats:
    """A scale, then 32 signed bytes."""
    blocks = raw.reshape(-1, 34)
    return _halves(blocks, 0) * np.ascontiguousarray(blocks[:, 2:]).view(np.int8).astype(np.float32)


BLOCKS = {
    0: Block("F32", 1, 4, _plain("<f4")),
    1: Block("F16", 1, 2, _plain("<f2")),
    2: Block("Q4_0", 32, 18, _q4_0),
    3: Block("Q4_1", 32, 20, _q4_1),
    8: Block("Q8_0", 32, 34, _q8_0),
    30: Block("BF16", 1, 2, _bf16),
}
"""Storage types by ggml's number."""
