"""The cross-fitted frontier against a slow one, written question by question; what it leaves out, and its bias."""

import numpy as np
import pytest

from reodsl.numbers import crossed as fitting
from reodsl.numbers.crossed import (
    MAX_GROUPS,
    MAX_SEED_PARTS,
    NUM_HALVINGS,
    crossfit,
    group_questions,
    shuffle_positions,
)

WEIGHTS = np.array([0.5, 1.0, 2.0])


def made(arms=3, seeds=2, groups=5, seed=0):
    rng = np.random.default_rng(seed)
    sizes = rng.integers(1, 4, groups).astype(float)
    return rng.random((arms, seeds, groups, len(WEIGHTS))) * sizes[:, None], sizes


def slow(sums, sizes, kept):
    """The area over the groups `kept`, by loops over halvings, cells and budgets."""
    arms, seeds, groups, budgets = sums.shape
    parts = min(seeds, MAX_SEED_PARTS)
    total = 0.0
    for number in range(NUM_HALVINGS):
        half = {int(g): k % 2 for k, g in enumerate(shuffle_positions(f"halves\0b\0{number}", groups))}
        part = {int(s): k % parts for k, s in enumerate(shuffle_positions(f"parts\0b\0{number}", seeds))}
        for s in range(seeds):
            for g in kept:
                for k in range(budgets):
                    others = [t for t in range(seeds) if part[t] != part[s]] if parts > 1 else range(seeds)
                    score = [
                        sum(sums[a, t, h, k] for t in others for h in kept if half[h] != half[g])
                        for a in range(arms)
                    ]
                    total += WEIGHTS[k] * sums[int(np.argmax(score)), s, g, k]
    return total / (NUM_HALVINGS * seeds * sum(sizes[g] for g in kept))


@pytest.mark.parametrize("seeds", [1, 2, 3])
def test_against_a_slow_reference(seeds):
    sums, sizes = made(seeds=seeds)
    found = crossfit("b", sums, sizes, WEIGHTS)
    assert found.area == pytest.approx(slow(sums, sizes, range(5)))
    assert found.cells.shape == (seeds, 5)
    assert (found.cells * sizes).sum() / (seeds * sizes.sum()) == pytest.approx(found.area)
    for g in range(5):
        assert found.without[g] == pytest.approx(slow(sums, sizes, [h for h in range(5) if h != g]))


def test_one_group_leaves_nothing_without_it_and_divides_nothing_by_zero():
    sums, sizes = made(groups=1)
    with np.errstate(all="raise"):
        assert crossfit("b", sums, sizes, WEIGHTS).without.tolist() == pytest.approx([0.0])


def test_one_arm_is_its_own_frontier():
    sums, sizes = made(arms=1, seeds=3)
    area = (sums.sum(axis=(0, 1, 2)) @ WEIGHTS) / (3 * sizes.sum())
    assert crossfit("b", sums, sizes, WEIGHTS).area == pytest.approx(area)


def test_an_arm_that_is_ahead_everywhere_is_the_frontier():
    sums, sizes = made(arms=2)
    sums[1] = sums[0] + sizes[:, None]
    area = (sums[1].sum(axis=(0, 1)) @ WEIGHTS) / (2 * sizes.sum())
    assert crossfit("b", sums, sizes, WEIGHTS).area == pytest.approx(area)


@pytest.mark.slow
def test_equal_arms_have_no_bias_where_the_best_of_them_is_too_high():
    """8 arms, 0.5 at every budget: the best measured mean is far above, the cross-fitted one is not."""
    fitted, best = [], []
    for seed in range(150):
        rng = np.random.default_rng(seed)
        sums = rng.binomial(4, 0.5, (8, 2, 12, 3)).astype(float)
        fitted.append(crossfit("b", sums, np.full(12, 4.0), WEIGHTS).area)
        best.append((sums.sum(axis=(1, 2)) / 96).max(axis=0) @ WEIGHTS)
    truth = 0.5 * WEIGHTS.sum()
    error = np.std(fitted) / np.sqrt(150)
    assert abs(np.mean(fitted) - truth) < 3.5 * error
    assert np.mean(best) - truth > 10 * error


def test_groups_are_the_same_everywhere_and_of_even_sizes():
    found = group_questions("AIME 2024", 100)
    assert np.bincount(found).tolist() == [5] * 4 + [4] * (MAX_GROUPS - 4)
    assert group_questions("b", 3).max() == 2
    # The order of Philox words under the first 16 bytes of SHA-256 of the key is part of every score.
    assert shuffle_positions("groups\0Math", 6).tolist() == ORDER


ORDER = [5, 1, 2, 4, 3, 0]


def test_the_halvings_change_with_their_number(monkeypatch):
    sums, sizes = made(groups=6)
    one = crossfit("b", sums, sizes, WEIGHTS).area
    monkeypatch.setattr(fitting, "NUM_HALVINGS", 1)
    assert crossfit("b", sums, sizes, WEIGHTS).area != one
