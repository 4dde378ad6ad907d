"""Random numbers by seed and counter, seeds by purpose, and what a step draws: the same on every machine, in any order.

SplitMix64's finaliser (Steele, Lea, Flood 2014) over 64-bit integers: no state, so the order of draws is free.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from reodsl.ir.data import normal_question
from reodsl.ir.reward import Exits

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
