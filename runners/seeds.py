"""A run's seed and the name of a purpose to that purpose's own seed, the same on every machine."""

from __future__ import annotations

import hashlib

from runners.engine.streams import derive


def purpose(seed: int, name: str, *keys: int) -> int:
    """The 64-bit seed for a named purpose of a run, apart from all others."""
    word = int.from_bytes(hashlib.sha256(name.encode()).digest()[:8], "big")
    return derive(seed, word, *keys)
