"""Counter-based random streams: (seed, counter) in, uniforms in (0, 1) out, the same on every machine.

SplitMix64's finaliser (Steele, Lea, Flood 2014) over 64-bit integers; no state, so draws never depend on order.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

_MASK = (1 << 64) - 1
_GAMMA = 0x9E3779B97F4A7C15


def mix(value: int) -> int:
    """SplitMix64's finaliser on one 64-bit integer; a bijection."""
    value &= _MASK
    value = ((value ^ (value >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    value = ((value ^ (value >> 27)) * 0x94D049BB133111EB) & _MASK
    return value ^ (value >> 31)


def derive(seed: int, *keys: int) -> int:
    """A 64-bit seed for a purpose: the same keys give the same seed, other keys an unrelated one."""
    state = mix(seed + _GAMMA)
    for key in keys:
        state = mix(state ^ mix(key + _GAMMA))
    return state


def forced_seed(seed: int, cut: int) -> int:
    """The seed of the answer that is forced at `cut` tokens of the response drawn from `seed`."""
    return derive(seed, 0x666F7263, cut)


def starts(seeds: Iterable[int]) -> NDArray[np.uint64]:
    """Hashed starting states [rows] for `uniforms`, one for each seed (any Python integer, taken modulo 2^64)."""
    return np.array([mix(seed + _GAMMA) for seed in seeds], dtype=np.uint64)


def uniforms(start: NDArray[np.uint64], counter: NDArray[np.uint64] | int) -> NDArray[np.float64]:
    """The uniforms in (0, 1) at `counter` of each stream: multiples of 2^-52 plus 2^-53, so never 0 nor 1."""
    with np.errstate(over="ignore"):
        value = start + (np.asarray(counter, dtype=np.uint64) + np.uint64(1)) * np.uint64(_GAMMA)
        value = (value ^ (value >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        value = (value ^ (value >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        value = value ^ (value >> np.uint64(31))
    return ((value >> np.uint64(12)).astype(np.float64) + 0.5) * 2.0**-52
