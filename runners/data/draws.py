"""Random numbers, seeds and batches that only depend on seeds and indices, so that all machines get the same.

They hash 64-bit integers by the finaliser of SplitMix64 (Steele, Lea, Flood 2014), without a state.
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
    """Return a 64-bit seed that is computed from a seed and integer keys. Different keys give unrelated seeds."""
    state = np.array([seed & _MASK], dtype=np.uint64)
    for key in keys:
        state = _child(state, np.array([key & _MASK], dtype=np.uint64))
    return int(state[0])


def forced_seed(seed: int, cut: int) -> int:
    """Return the seed of the answer that is forced after `cut` tokens of the response that was sampled with `seed`."""
    return derive(seed, _FORCED_KEY, cut)


def forced_seeds(seeds: NDArray[np.uint64], cuts: NDArray[np.int64]) -> NDArray[np.uint64]:
    """Return the seeds of many forced answers.

    Args:
        seeds: The seeds of the responses, [answers].
        cuts: The number of tokens before each answer, [answers].

    Returns:
        Seeds, [answers], equal to `forced_seed` of each pair.
    """
    purpose = np.array([_FORCED_KEY], dtype=np.uint64)
    return _child(_child(seeds, purpose), cuts.astype(np.uint64))


def wrap_seeds(seeds: Iterable[int]) -> NDArray[np.uint64]:
    """Return integers of any size and sign as 64-bit seeds (modulo 2^64)."""
    return np.array([seed & _MASK for seed in seeds], dtype=np.uint64)


def hash_seeds(seeds: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Return the starting states of the random streams with these seeds, [seeds], for `uniforms`."""
    return _mix(seeds + np.uint64(_GAMMA))


def skip_uniforms(start: NDArray[np.uint64], counts: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Return the states of random streams after the first numbers of each stream are skipped.

    Args:
        start: The starting states, [streams].
        counts: How many numbers of each stream are skipped, [streams].

    Returns:
        States for `uniforms`, [streams].
    """
    return start + counts * np.uint64(_GAMMA)


def uniforms(start: NDArray[np.uint64], counter: int) -> NDArray[np.float64]:
    """Return the uniform random number at index `counter` of each stream.

    The numbers are odd multiples of 2^-49, so 0 and 1 never occur. The largest is 1 - 2^-49: in double precision, this
    number times a total is still below the total.

    Args:
        start: The starting states from `hash_seeds`, [streams].
        counter: The index of the number in its stream.

    Returns:
        Numbers in (0, 1), [streams].
    """
    step = np.uint64((counter + 1) * _GAMMA & _MASK)
    return ((_mix(start + step) >> np.uint64(16)).astype(np.float64) + 0.5) * 2.0**-48


def _child(seeds: NDArray[np.uint64], keys: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Return the seeds derived from pairs of a seed and a key; the salt makes (seed, key) differ from (key, seed)."""
    return _mix(_mix(seeds + np.uint64(_GAMMA)) + _mix(keys ^ np.uint64(_KEY_SALT)))


def _mix(value: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Return SplitMix64's hash of 64-bit integers, which maps different integers to different hashes."""
    value = (value ^ (value >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    value = (value ^ (value >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return value ^ (value >> np.uint64(31))


def derive_seed(seed: int, name: str, *keys: int) -> int:
    """Return the 64-bit seed for a purpose of a run.

    Args:
        seed: The seed of the run.
        name: The name of the purpose; different purposes have unrelated seeds.
        *keys: Integers that distinguish several seeds of a purpose, such as an epoch.
    """
    word = int.from_bytes(hashlib.sha256(name.encode()).digest()[:8], "big")
    return derive(seed, word, *keys)


def permutation(seed: int, count: int) -> NDArray[np.int64]:
    """Return the random permutation of 0 to `count` - 1 that a seed determines, [count]."""
    keys = hash_seeds(np.arange(count, dtype=np.uint64) ^ np.uint64(seed))
    return np.argsort(keys, kind="stable")


@lru_cache(maxsize=4)
def _epoch(seed: int, epoch: int, count: int) -> NDArray[np.int64]:
    """Return the order in which an epoch takes `count` items, as indices [count]."""
    return permutation(derive_seed(seed, "epoch", epoch), count)


def batch_indices(seed: int, step: int, batch: int, count: int) -> list[int]:
    """Return the indices of the items of a step's batch.

    Steps take consecutive items of epochs, and every epoch has all items in a new random order. The result does not depend
    on earlier calls.

    Args:
        seed: The seed of the orders.
        step: The number of the step, from 0.
        batch: The number of items of a batch.
        count: The number of items of the data.
    """
    positions = range(step * batch, (step + 1) * batch)
    return [int(_epoch(seed, position // count, count)[position % count]) for position in positions]


def exit_places(split: Exits, tokens: Sequence[int], seed: int) -> tuple[int, ...]:
    """Return random positions, in tokens, at which the reward of a response is evaluated, and the response's end.

    The positions depend only on the seed and the response's tokens. They divide the response into sections.

    Args:
        split: The settings of the division: the number `n` of random positions, and the limit `l_max` of all positions.
        tokens: The response.
        seed: The seed of the run.

    Returns:
        At most `n` rising positions from 1 to the length - 1, then the length. Positions above `l_max` become `l_max`,
        so the last positions may be equal.
    """
    digest = hashlib.sha256(np.asarray(tokens, dtype=np.int64).tobytes()).digest()
    seed = derive_seed(seed, "exits", int.from_bytes(digest[:8], "big"))
    order = permutation(seed, max(0, len(tokens) - 1))
    exits = sorted(1 + int(position) for position in order[: split.n])
    return tuple(min(position, split.l_max) for position in (*exits, len(tokens)))


def questions_seen(seed: int, draws: int, batch: int, count: int) -> list[int]:
    """Return the sorted indices of the items that the first steps of a run take.

    Args:
        seed: The seed of the orders of items.
        draws: The number of steps.
        batch: The number of items of a batch.
        count: The number of items of the data.
    """
    if draws * batch >= count:
        return list(range(count))
    return sorted({position for step in range(draws) for position in batch_indices(seed, step, batch, count)})


Split = Literal["train", "held_out"]

HELD_OUT_ONE_IN = 5
"""The number of questions of which one, on average, is held out."""


def split_of(bare: str) -> Split:
    """Return the dataset split of a question, `train` or `held_out`, by a hash of the question.

    About a fifth of all questions is held out. Spaces, case and the form of Unicode characters do not change the hash.

    Args:
        bare: The question without the words around it, such as `5 -6 +3 mod 10`. All wordings of a question then have
            the same hash, and are in the same split.
    """
    digest = hashlib.sha256(b"split:" + normal_question(bare).encode()).digest()
    return "held_out" if int.from_bytes(digest[:8], "big") % HELD_OUT_ONE_IN == 0 else "train"


_PURPOSE = {"question": 0, "trace": 1}


class Stream:
    """A stream of random numbers that a seed, a purpose and an index determine."""

    def __init__(self, seed: int, purpose: Literal["question", "trace"], index: int) -> None:
        """Begin the stream of the question or worked solution with this index."""
        key = np.array([seed % 2**64, _PURPOSE[purpose]], dtype=np.uint64)
        self._bits = np.random.Philox(key=key, counter=np.array([0, 0, 0, index], dtype=np.uint64))
        self._ready: list[int] = []

    def _draw(self) -> int:
        """Return the next 64 random bits, which are generated 32 numbers at a time."""
        if not self._ready:
            self._ready = self._bits.random_raw(32).tolist()
            self._ready.reverse()
        return self._ready.pop()

    def below(self, bound: int) -> int:
        """Return a random integer from 0 to `bound` - 1: 64 random bits modulo `bound`, whose bias is negligible."""
        return self._draw() % bound

    def uniform(self) -> float:
        """Return a random number in [0, 1) with 53 random bits."""
        return float((self._draw() >> 11) * 2.0**-53)

    def chance(self, probability: float) -> bool:
        """Return True with the given probability, else False.

        Each call uses one random number, also for the probabilities 0 and 1.
        """
        return self.uniform() < probability
