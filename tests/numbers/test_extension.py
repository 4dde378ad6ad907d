"""The sizes of a study that settle a difference, against studies that were simulated, extended and tested."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from reodsl.numbers.arm_scores import ArmScores
from reodsl.numbers.crossed import Spread
from reodsl.numbers.extension import CHANCE, Extension, extend
from reodsl.numbers.intervals import Comparisons, compare_arms
from reodsl.numbers.verdict import extension_of, judge


def compared(number: int, gap: float, seeds: int) -> Comparisons:
    """Two arms `gap` tokens apart and a worse third; with more seeds the first ones stay as they were."""
    arms = {}
    for k, (name, area) in enumerate({"one": 16 + gap, "two": 16.0, "far": 10.0}.items()):
        rng = [np.random.default_rng([number, k, part]) for part in range(3)]
        effects = 1.2 * rng[0].normal(size=(seeds, 1)) + 0.5 * rng[1].normal(size=40)
        right = np.clip((area + effects + 3 * rng[2].normal(size=(seeds, 40))) / 32, 0, 1)
        arms[name] = [ArmScores({"x": np.stack([row, row], 1)}, {"x": row}, {"x": row}) for row in right]
    return compare_arms(arms, (0, 32), seeds=seeds, grid=(0, 32))


@pytest.mark.parametrize(("seeds", "gap", "margin"), [(3, 2.0, None), (5, 2.0, None), (5, 0.2, 2.0)])
def test_an_extended_study_settles_a_true_difference_as_often_as_is_said(seeds, gap, margin):
    """The first seeds say how many there have to be; of 60 studies with so many, less three standard errors."""
    settled = []
    for number in range(60):
        verdict = replace(judge(compared(number, gap, seeds)), margin=margin)
        (pair,) = (each for each in verdict.pairs if "far" not in (each.one, each.two))
        found = extension_of(replace(verdict, tied=(replace(pair, value=gap),)), compared(number, gap, seeds))
        size = found.seeds if margin is None else found.same_seeds
        after = compared(number, gap, size or seeds)
        (key,) = (key for key in after.reg if "far" not in key)
        settled.append(after.reg[key].significant if margin is None else after.within[key] <= margin)
    assert np.mean(settled) > CHANCE - 3 * math.sqrt(CHANCE * (1 - CHANCE) / 60)


def test_sizes_with_a_known_variance_are_those_of_the_normal_distribution():
    """Questions without seeds: (1.96 + 0.84)² variances over the squared difference, Cohen's table."""
    study = {"seeds": 1, "questions": 50, "level": 0.05, "same_level": 0.05, "margin": None}
    found = extend(1.0, Spread(20.0 / 50, 1e12), **study)
    assert found == Extension(None, None, math.ceil((1.959964 + 0.841621) ** 2 * 20.0))
