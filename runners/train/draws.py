"""Random draws of training, by seed and position: the same on every machine, in any order."""

from __future__ import annotations

from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from runners.engine.streams import starts
from runners.seeds import purpose


def permutation(seed: int, count: int) -> NDArray[np.int64]:
    """An order of `count` things that depends on the seed alone."""
    keys = starts(np.arange(count, dtype=np.uint64) ^ np.uint64(seed))
    return np.argsort(keys, kind="stable")


@lru_cache(maxsize=4)
def _epoch(seed: int, epoch: int, count: int) -> NDArray[np.int64]:
    return permutation(purpose(seed, "epoch", epoch), count)


def drawn(seed: int, step: int, batch: int, count: int) -> list[int]:
    """Which of `count` things step `step` takes: `batch` in a row of epochs put one after another, each in its own order.

    Within an epoch nothing comes twice, and a step depends on no step before it.
    """
    positions = range(step * batch, (step + 1) * batch)
    return [int(_epoch(seed, position // count, count)[position % count]) for position in positions]
