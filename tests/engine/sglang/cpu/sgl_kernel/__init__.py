"""A stand-in for SGLang's kernel package on a CPU: every function says that it is missing when it is called.

There is no build of the real package for plain CPUs. SGLang imports its names there without asking, and dense decoding
calls one of them only: the hash behind seeded sampling, which is defined here in torch.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

# SGLang compares it with the oldest version that it takes.
__version__ = "0.4.10"

_WORD = 0xFFFFFFFF


def __getattr__(name: str) -> Callable[..., Any]:
    if name.startswith("__"):
        raise AttributeError(name)

    def missing(*_: object, **__: object) -> Any:
        raise NotImplementedError(f"sgl_kernel.{name} has no CPU build")

    missing.__name__ = name
    return missing


def murmur_hash32(seeds: torch.Tensor, positions: torch.Tensor, columns: torch.Tensor) -> torch.Tensor:
    """MurmurHash3 (Appleby 2011, 32 bits, seed 0) of the 16 bytes (seed [n], position [n], column [m]): [n, m].

    A seed is 64 bits, lower word first. Products of 32-bit words are kept in 64 bits, and the lower ones count.
    """
    low, high = seeds.to(torch.int64) & _WORD, (seeds.to(torch.int64) >> 32) & _WORD
    state = torch.zeros_like(low)
    for word in (low, high, positions.to(torch.int64) & _WORD):
        state = _mixed(state, word)
    state = _mixed(state[:, None], columns.to(torch.int64)[None, :] & _WORD) ^ 16
    for shift, factor in ((16, 0x85EBCA6B), (13, 0xC2B2AE35)):
        state = ((state ^ (state >> shift)) * factor) & _WORD
    return state ^ (state >> 16)


def _mixed(state: torch.Tensor, word: torch.Tensor) -> torch.Tensor:
    word = _turned((word * 0xCC9E2D51) & _WORD, 15)
    word = (word * 0x1B873593) & _WORD
    return (_turned(state ^ word, 13) * 5 + 0xE6546B64) & _WORD


def _turned(word: torch.Tensor, bits: int) -> torch.Tensor:
    """Return a 32-bit word rotated to the left."""
    return ((word << bits) | (word >> (32 - bits))) & _WORD


_LIBRARY = torch.library.Library("sgl_kernel", "FRAGMENT")
_LIBRARY.define("murmur_hash32_cpu(Tensor seed, Tensor positions, Tensor columns) -> Tensor")
_LIBRARY.impl("murmur_hash32_cpu", murmur_hash32, "CPU")
