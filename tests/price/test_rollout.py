"""The busiest of many engines, against responses drawn one by one."""

from __future__ import annotations

import numpy as np
import pytest

from reodsl.price.lengths import Lengths
from reodsl.price.rollout import Load, heaviest

PROMPT = 150


def drawn(lengths: Lengths, each: int, engines: int) -> float:
    """The mean over many rounds of the largest sum of one engine's responses, over the mean of such sums."""
    draw = np.random.default_rng(1)
    rounds = 200
    tokens = np.minimum(draw.exponential(lengths.scale, (rounds, engines, each)), lengths.longest)
    sums = (PROMPT * tokens + tokens**2 / 2).sum(axis=2)
    return float(sums.max(axis=1).mean() / sums.mean())


@pytest.mark.parametrize(("mean", "longest"), [(10240, 32768), (3000, 16384), (20000, 32768), (1000, 8192)])
@pytest.mark.parametrize(
    ("each", "engines", "within"), [(16, 128, 0.08), (128, 16, 0.03), (64, 2, 0.03), (4, 512, 0.4)]
)
def test_the_busiest_engine_is_that_of_draws(
    mean: float, longest: float, each: int, engines: int, within: float
) -> None:
    lengths = Lengths.of(mean, longest)
    load = Load(each * engines, engines, PROMPT, lengths)
    assert heaviest(load, each, engines) == pytest.approx(drawn(lengths, each, engines), rel=within)


def test_one_engine_has_its_share_and_equal_lengths_make_equal_engines() -> None:
    load = Load(64, 8, PROMPT, Lengths.of(50, 128))
    assert heaviest(load, 64, 1) == 1
    assert heaviest(Load(64, 8, PROMPT, Lengths.of(200, 128)), 8, 8) == 1


def test_none_has_more_than_the_longest_responses() -> None:
    lengths = Lengths.of(20000, 32768)
    most = PROMPT * lengths.longest + lengths.longest**2 / 2
    mean = PROMPT * lengths.mean + lengths.square / 2
    assert heaviest(Load(1e6, 1e6, PROMPT, lengths), 1, 1e6) == pytest.approx(most / mean)
