"""Question draws: a seed, a benchmark and its number of questions to how often each question is in each resample."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


def question_counts(seed: int, benchmark: str, questions: int, resamples: int) -> NDArray[np.int64]:
    """Draws with replacement: shape [resamples, questions], each row summing to `questions`.

    A counter-based generator (Philox) keyed by seed and benchmark, read as raw 64-bit words: the same draws on every
    machine, for all models, and whatever other benchmarks there are.
    """
    import numpy as np

    key = hashlib.sha256(f"{seed}\0{benchmark}".encode()).digest()[:16]
    words = np.random.Philox(key=np.frombuffer(key, dtype="<u8")).random_raw(resamples * questions)
    picked = ((words >> np.uint64(11)) * (questions * 2.0**-53)).astype(np.int64)
    rows = np.repeat(np.arange(resamples, dtype=np.int64) * questions, questions)
    return np.bincount(rows + picked, minlength=resamples * questions).reshape(resamples, questions)
