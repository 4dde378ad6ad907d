"""Derive seeds by purpose, and draw by seed and position: the same on every machine, in any order."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from reodsl.ir.reward import Exits
from runners.engine.streams import derive, hash_seeds


def purpose(seed: int, name: str, *keys: int) -> int:
    """Return the 64-bit seed for a named purpose of a run, apart from all others."""
    word = int.from_bytes(hashlib.sha256(name.encode()).digest()[:8], "big")
    return derive(seed, word, *keys)


def permutation(seed: int, count: int) -> NDArray[np.int64]:
    """Return an order of `count` things that depends on the seed alone."""
    keys = hash_seeds(np.arange(count, dtype=np.uint64) ^ np.uint64(seed))
    return np.argsort(keys, kind="stable")


@lru_cache(maxsize=4)
def _epoch(seed: int, epoch: int, count: int) -> NDArray[np.int64]:
    return permutation(purpose(seed, "epoch", epoch), count)


def drawn(seed: int, step: int, batch: int, count: int) -> list[int]:
    """Return which of `count` things step `step` takes: `batch` in a row of epochs, each in its own order.

    Within an epoch nothing comes twice, and a step depends on no step before it.
    """
    positions = range(step * batch, (step + 1) * batch)
    return [int(_epoch(seed, position // count, count)[position % count]) for position in positions]


def exit_places(split: Exits, tokens: Sequence[int], seed: int) -> tuple[int, ...]:
    """`n` of the places before a response's end, rising, and its end.

    They are a function of the seed and of the response, which has the same ones whenever it is looked at.
    """
    digest = hashlib.sha256(np.asarray(tokens, dtype=np.int64).tobytes()).digest()
    order = permutation(purpose(seed, "exits", int.from_bytes(digest[:8], "big")), max(0, len(tokens) - 1))
    exits = sorted(1 + int(place) for place in order[: split.n])
    return tuple(min(place, split.l_max) for place in (*exits, len(tokens)))


def met(seed: int, draws: int, batch: int, count: int) -> list[int]:
    """Return which of `count` things any of the first `draws` steps takes, in their order."""
    if draws * batch >= count:
        return list(range(count))
    return sorted({position for step in range(draws) for position in drawn(seed, step, batch, count)})
