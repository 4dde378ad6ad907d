"""The random streams: hashes as published, uniforms that are uniform, seeds that do not collide."""

from __future__ import annotations

import numpy as np

from runners.data.draws import derive, forced_seed, forced_seeds, hash_seeds, uniforms, wrap_seeds

MASK = (1 << 64) - 1


def splitmix(state: int) -> int:
    """SplitMix64 as published, in Python integers: the output after adding gamma to the state."""
    z = (state + 0x9E3779B97F4A7C15) & MASK
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & MASK
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & MASK
    return z ^ (z >> 31)


def test_starts_are_splitmix64() -> None:
    # The generator's first output from state 1234567, as the published test vectors give it.
    assert splitmix(1234567) == 6457827717110365317
    seeds = [0, 1, 1234567, MASK, -1, 1 << 70]
    assert hash_seeds(wrap_seeds(seeds)).tolist() == [splitmix(seed & MASK) for seed in seeds]


def test_uniforms_follow_the_generator_from_each_start() -> None:
    start = hash_seeds(wrap_seeds([7, 8]))
    for counter in (0, 1, 5):
        want = [
            ((splitmix((int(s) + counter * 0x9E3779B97F4A7C15) & MASK) >> 16) + 0.5) * 2.0**-48 for s in start
        ]
        assert uniforms(start, counter).tolist() == want


def test_uniforms_are_uniform_and_uncorrelated() -> None:
    start = hash_seeds(wrap_seeds(range(2000)))
    table = np.stack([uniforms(start, counter) for counter in range(50)])
    assert table.min() > 0
    assert table.max() < 1
    counts = np.histogram(table, bins=64, range=(0, 1))[0]
    expected = table.size / 64
    # Chi-square with 63 degrees of freedom is above 120 with probability 2e-5.
    assert ((counts - expected) ** 2 / expected).sum() < 120
    assert abs(np.corrcoef(table[0], table[1])[0, 1]) < 0.1
    assert abs(np.corrcoef(table[:, :-1].ravel(), table[:, 1:].ravel())[0, 1]) < 0.02


def test_a_uniform_times_a_total_stays_below_it() -> None:
    largest = ((1 << 48) - 0.5) * 2.0**-48
    for total in (1.0, 1 - 2**-53, 1 + 2**-52, 0.9999999, 3.7):
        assert largest * total < total


def test_derived_seeds_differ_by_key_and_order() -> None:
    seen = {derive(seed, *keys) for seed in range(20) for keys in [(), (1,), (2,), (1, 2), (2, 1), (1, 2, 3)]}
    assert len(seen) == 20 * 6


def test_forced_seeds_are_those_of_each_pair() -> None:
    seeds, cuts = wrap_seeds([3, -5, MASK]), np.array([0, 7, 4096])
    want = [forced_seed(seed, cut) for seed, cut in zip([3, -5, MASK], cuts.tolist(), strict=True)]
    assert forced_seeds(seeds, cuts).tolist() == want
    assert len(set(want)) == 3
