"""Question draws: a seed, a benchmark and its number of questions to how often each is in each resample, lot by lot."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


MOST = 1 << 18
"""Draws of single questions that a lot has at most, unless one resample has more: memory does not grow with resamples."""


def question_counts(
    seed: int, benchmark: str, questions: int, resamples: int, most: int = MOST
) -> Iterator[NDArray[np.int64]]:
    """Draws with replacement: lots of shape [some, questions], `resamples` rows in all, each summing to `questions`.

    A counter-based generator (Philox) keyed by seed and benchmark, read as raw 64-bit words: the same draws on every
    machine, for all models, whatever other benchmarks there are and however they are cut into lots.
    """
    import numpy as np

    key = hashlib.sha256(f"{seed}\0{benchmark}".encode()).digest()[:16]
    generator = np.random.Philox(key=np.frombuffer(key, dtype="<u8"))
    size = max(1, most // questions)
    for first in range(0, resamples, size):
        rows = min(size, resamples - first)
        words = generator.random_raw(rows * questions)
        picked = ((words >> np.uint64(11)) * (questions * 2.0**-53)).astype(np.int64)
        starts = np.repeat(np.arange(rows, dtype=np.int64) * questions, questions)
        yield np.bincount(starts + picked, minlength=rows * questions).reshape(rows, questions)
