"""Draw from a seed, a purpose and an index, the same on every machine, and split questions by their bare form."""

from __future__ import annotations

import hashlib
from typing import Literal

import numpy as np

from reodsl.ir.data import normal_question

Split = Literal["train", "held_out"]

HELD_OUT_ONE_IN = 5
"""One question in so many is held out."""


def split_of(bare: str) -> Split:
    """Return which side a question is on, by a hash of its bare form and nothing else; one in five is held out.

    The bare form is what is asked, without the words that it is asked in: every source of questions says what that
    is of its own, so that a question stays on its side under every wording, with a worked solution or without. The
    hash is over its `normal_question`: spaces, case and the form of characters change nothing.
    """
    digest = hashlib.sha256(b"split:" + normal_question(bare).encode()).digest()
    return "held_out" if int.from_bytes(digest[:8], "big") % HELD_OUT_ONE_IN == 0 else "train"


_PURPOSE = {"question": 0, "trace": 1}


class Stream:
    """Random draws that depend on nothing but seed, purpose and index."""

    def __init__(self, seed: int, purpose: Literal["question", "trace"], index: int) -> None:
        key = np.array([seed % 2**64, _PURPOSE[purpose]], dtype=np.uint64)
        self._bits = np.random.Philox(key=key, counter=np.array([0, 0, 0, index], dtype=np.uint64))
        self._ready: list[int] = []

    def _draw(self) -> int:
        if not self._ready:
            self._ready = self._bits.random_raw(32).tolist()
            self._ready.reverse()
        return self._ready.pop()

    def below(self, bound: int) -> int:
        """Return a whole number in 0..bound-1 (the bias of 64 bits taken modulo a small bound is nil for our purposes)."""
        return self._draw() % bound

    def uniform(self) -> float:
        """Return a number in [0, 1) with 53 random bits."""
        return float((self._draw() >> 11) * 2.0**-53)

    def chance(self, probability: float) -> bool:
        """Return True with this probability; always draw, so that later draws keep their place."""
        return self.uniform() < probability
