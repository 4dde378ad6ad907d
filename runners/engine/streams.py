"""Counter-based random streams: uniforms in (0, 1) by seed and counter, the same on every machine.

SplitMix64's finaliser (Steele, Lea, Flood 2014) over 64-bit integers: no state, so the order of draws is free.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

_MASK = (1 << 64) - 1
_GAMMA = 0x9E3779B97F4A7C15
_KEYED = 0x243F6A8885A308D3
_FORCED = 0x666F7263


def derive(seed: int, *keys: int) -> int:
    """Return a 64-bit seed for a purpose: the same keys give the same seed, other keys an unrelated one."""
    state = np.array([seed & _MASK], dtype=np.uint64)
    for key in keys:
        state = _child(state, np.array([key & _MASK], dtype=np.uint64))
    return int(state[0])


def forced_seed(seed: int, cut: int) -> int:
    """Return the seed of the answer that is forced at `cut` tokens of the response drawn from `seed`."""
    return derive(seed, _FORCED, cut)


def forced_seeds(seeds: NDArray[np.uint64], cuts: NDArray[np.int64]) -> NDArray[np.uint64]:
    """Return `forced_seed` of each pair."""
    purpose = np.array([_FORCED], dtype=np.uint64)
    return _child(_child(seeds, purpose), cuts.astype(np.uint64))


def wrap_seeds(seeds: Iterable[int]) -> NDArray[np.uint64]:
    """Return integers of any size and sign as 64-bit seeds (modulo 2^64)."""
    return np.array([seed & _MASK for seed in seeds], dtype=np.uint64)


def hash_seeds(seeds: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Return hashed starting states for `uniforms`, one for each seed."""
    return _mix(seeds + np.uint64(_GAMMA))


def skip_uniforms(start: NDArray[np.uint64], counts: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Return the states of streams whose first `counts` uniforms are taken already."""
    return start + counts * np.uint64(_GAMMA)


def uniforms(start: NDArray[np.uint64], counter: int) -> NDArray[np.float64]:
    """Return the uniforms in (0, 1) at `counter` of each stream: multiples of 2^-48 plus 2^-49.

    They end at 1 - 2^-49, so that a uniform times a total stays below the total in double precision.
    """
    step = np.uint64((counter + 1) * _GAMMA & _MASK)
    return ((_mix(start + step) >> np.uint64(16)).astype(np.float64) + 0.5) * 2.0**-48


def _child(seeds: NDArray[np.uint64], keys: NDArray[np.uint64]) -> NDArray[np.uint64]:
    # The constant makes (seed, key) differ from (key, seed).
    return _mix(_mix(seeds + np.uint64(_GAMMA)) + _mix(keys ^ np.uint64(_KEYED)))


def _mix(value: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Return the finaliser, a bijection of 64-bit integers."""
    value = (value ^ (value >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    value = (value ^ (value >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return value ^ (value >> np.uint64(31))
