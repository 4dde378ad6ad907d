"""Lengths: moments and survival against sums over whole tokens and against draws."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from reodsl.price.lengths import Lengths


def tail_sums(lengths: Lengths) -> list[float]:
    """The means of the first four powers by numeric integration of the survival function."""
    at = np.linspace(0, lengths.longest, 400_001)
    alive = np.exp(-at / lengths.scale)
    return [float(np.trapezoid(power * at ** (power - 1) * alive, at)) for power in (1, 2, 3, 4)]


@pytest.mark.parametrize(
    ("mean", "longest"), [(10240, 32768), (50, 128), (3, 1000), (120, 128), (127.98, 128)]
)
def test_moments_are_those_of_the_survival_function(mean: float, longest: float) -> None:
    lengths = Lengths.of(mean, longest)
    sums = tail_sums(lengths)
    assert sums[0] == pytest.approx(mean, rel=1e-4)
    assert lengths.square == pytest.approx(sums[1], rel=1e-4)
    assert [lengths.moment(power) for power in (1, 2, 3, 4)] == pytest.approx(sums, rel=1e-4)


@given(st.floats(1, 1000), st.floats(1, 1000))
def test_lengths_stay_within_the_longest(mean: float, longest: float) -> None:
    lengths = Lengths.of(mean, longest)
    assert lengths.mean <= longest
    assert lengths.mean**2 * 0.999 <= lengths.square <= longest**2 * 1.001
    assert lengths.beyond(longest) == 0
    assert lengths.beyond(0) == 1
    assert lengths.mean <= lengths.longest_of(100) <= longest


def test_all_at_the_longest() -> None:
    lengths = Lengths.of(200, 128)
    assert (lengths.mean, lengths.square, lengths.beyond(127)) == (128, 128**2, 1)
    assert lengths.longest_of(1) == 128


def test_the_longest_of_many_draws() -> None:
    lengths = Lengths.of(100, 100_000)
    draws = np.random.default_rng(1).exponential(lengths.scale, (2000, 256)).max(axis=1)
    assert lengths.longest_of(256) == pytest.approx(draws.mean(), rel=0.05)


def test_the_share_beyond_falls_at_a_constant_rate() -> None:
    lengths = Lengths.of(10240, 32768)
    assert lengths.beyond(2048) == pytest.approx(lengths.beyond(1024) ** 2)
    assert math.isclose(lengths.beyond(1024), math.exp(-1024 / lengths.scale))
