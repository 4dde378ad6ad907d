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
_KEY_SALT = 0x243F6A8885A308D3
_FORCED_KEY = 0x666F7263


def derive(seed: int, *keys: int) -> int:
    """Return a 64-bit seed from a seed and keys: equal keys give equal seeds, different keys unrelated seeds."""
    state = np.array([seed & _MASK], dtype=np.uint64)
    for key in keys:
        state = _child(state, np.array([key & _MASK], dtype=np.uint64))
    return int(state[0])


def forced_seed(seed: int, cut: int) -> int:
    """Return the seed of the answer that is forced at `cut` tokens of the response drawn from `seed`."""
    return derive(seed, _FORCED_KEY, cut)


def forced_seeds(seeds: NDArray[np.uint64], cuts: NDArray[np.int64]) -> NDArray[np.uint64]:
    """Return `forced_seed` of each pair."""
    purpose = np.array([_FORCED_KEY], dtype=np.uint64)
    return _child(_child(seeds, purpose), cuts.astype(np.uint64))


def wrap_seeds(seeds: Iterable[int]) -> NDArray[np.uint64]:
    """Return integers of any size and sign as 64-bit seeds (modulo 2^64)."""
    return np.array([seed & _MASK for seed in seeds], dtype=np.uint64)


def hash_seeds(seeds: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Return the hashed starting states for `uniforms`, [seeds]."""
    return _mix(seeds + np.uint64(_GAMMA))


def skip_uniforms(start: NDArray[np.uint64], counts: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Return the states [streams] of streams whose first `counts` [streams] uniforms are taken already."""
    return start + counts * np.uint64(_GAMMA)


def uniforms(start: NDArray[np.uint64], counter: int) -> NDArray[np.float64]:
    """Return a uniform number in (0, 1) of each stream: multiples of 2^-48 plus 2^-49.

    They end at 1 - 2^-49, so that a uniform times a total stays below the total in double precision.

    Args:
        start: starting states [streams], as `hash_seeds` gives them.
        counter: the index of the number in its stream.

    Returns:
        Numbers [streams].
    """
    step = np.uint64((counter + 1) * _GAMMA & _MASK)
    return ((_mix(start + step) >> np.uint64(16)).astype(np.float64) + 0.5) * 2.0**-48


def _child(seeds: NDArray[np.uint64], keys: NDArray[np.uint64]) -> NDArray[np.uint64]:
    # The constant makes (seed, key) differ from (key, seed).
    return _mix(_mix(seeds + np.uint64(_GAMMA)) + _mix(keys ^ np.uint64(_KEY_SALT)))


def _mix(value: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Return the finaliser, a bijection of 64-bit integers."""
    value = (value ^ (value >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    value = (value ^ (value >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return value ^ (value >> np.uint64(31))


def derive_seed(seed: int, name: str, *keys: int) -> int:
    """Return the 64-bit seed for a named purpose of a run, unrelated to the seeds of other purposes."""
    word = int.from_bytes(hashlib.sha256(name.encode()).digest()[:8], "big")
    return derive(seed, word, *keys)


def permutation(seed: int, count: int) -> NDArray[np.int64]:
    """Return an order of `count` items that depends on the seed alone, as indices [count]."""
    keys = hash_seeds(np.arange(count, dtype=np.uint64) ^ np.uint64(seed))
    return np.argsort(keys, kind="stable")


@lru_cache(maxsize=4)
def _epoch(seed: int, epoch: int, count: int) -> NDArray[np.int64]:
    return permutation(derive_seed(seed, "epoch", epoch), count)


def batch_indices(seed: int, step: int, batch: int, count: int) -> list[int]:
    """Return the indices of the items that step `step` takes: `batch` consecutive items of epochs, each in a new order.

    Within an epoch no item comes twice, and a step depends on no step before it.
    """
    positions = range(step * batch, (step + 1) * batch)
    return [int(_epoch(seed, position // count, count)[position % count]) for position in positions]


def exit_places(split: Exits, tokens: Sequence[int], seed: int) -> tuple[int, ...]:
    """Return `n` rising token positions before a response's end, and its end, each at most `l_max`.

    They are a function of the seed and of the response, which has the same positions at each look.
    """
    digest = hashlib.sha256(np.asarray(tokens, dtype=np.int64).tobytes()).digest()
    seed = derive_seed(seed, "exits", int.from_bytes(digest[:8], "big"))
    order = permutation(seed, max(0, len(tokens) - 1))
    exits = sorted(1 + int(position) for position in order[: split.n])
    return tuple(min(position, split.l_max) for position in (*exits, len(tokens)))


def questions_seen(seed: int, draws: int, batch: int, count: int) -> list[int]:
    """Return the rising indices of the items that the first `draws` steps take."""
    if draws * batch >= count:
        return list(range(count))
    return sorted({position for step in range(draws) for position in batch_indices(seed, step, batch, count)})


Split = Literal["train", "held_out"]

HELD_OUT_ONE_IN = 5
"""One question in so many is held out."""


def split_of(bare: str) -> Split:
    """Return the side of the split for a question, by a hash of its bare form alone; every fifth is held out.

    The bare form is what is asked, without the words that it is asked in: every source of questions defines its bare form,
    so that a question stays on its side under every wording, with a worked solution or without. The hash is over its
    `normal_question`: spaces, case and the form of characters change nothing.
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
        """Return an integer in 0..bound-1 (64 bits modulo a small bound are practically unbiased)."""
        return self._draw() % bound

    def uniform(self) -> float:
        """Return a number in [0, 1) with 53 random bits."""
        return float((self._draw() >> 11) * 2.0**-53)

    def chance(self, probability: float) -> bool:
        """Return True with this probability (0 to 1); always draw, so that later draws keep their index."""
        return self.uniform() < probability
