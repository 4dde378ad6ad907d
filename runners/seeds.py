"""Derive a purpose's seed from a run's seed and the purpose's name, the same on every machine."""

from __future__ import annotations

import hashlib

from runners.engine.streams import derive


def purpose(seed: int, name: str, *keys: int) -> int:
    """Return the 64-bit seed for a named purpose of a run, apart from all others."""
    word = int.from_bytes(hashlib.sha256(name.encode()).digest()[:8], "big")
    return derive(seed, word, *keys)
