"""The comparison of two engines, on studies drawn here: silent where they sample the same, loud where they do not."""

from __future__ import annotations

import numpy as np
import polars as pl

from tests.engine.sglang.agreement import gaps

QUESTIONS, SAMPLES, BUDGETS = 288, 2, 23
"""Those of the miniature's suite."""


def study(
    draw: np.random.Generator, chances: np.ndarray[tuple[int, int], np.dtype[np.float64]]
) -> pl.DataFrame:
    """Verdicts by question, sample and budget: right where the sample's level is below the question's chance.

    The verdicts of a sample hang together over budgets as much as they can.
    """
    level = draw.random((QUESTIONS, SAMPLES, 1))
    right = level < chances[:, None, :]
    question, sample, budget = np.indices(right.shape)
    return pl.DataFrame(
        {
            "benchmark": "one",
            "question": question.ravel(),
            "sample": sample.ravel(),
            "budget": budget.ravel(),
            "correct": right.ravel(),
        }
    )


def chances(
    draw: np.random.Generator, lost: float = 0.0
) -> np.ndarray[tuple[int, int], np.dtype[np.float64]]:
    """Chances to be right that rise with the budget, on easy and hard questions; `lost` of them at every budget."""
    final = draw.beta(0.8, 0.5, (QUESTIONS, 1))
    found = final * np.linspace(0.05, 1.0, BUDGETS)[None, :] - lost
    return np.asarray(np.clip(found, 0.0, 1.0))


def loud(seed: int, lost: float) -> bool:
    """Whether a study is told from one whose chances are smaller by `lost`."""
    draw = np.random.default_rng(seed)
    same = np.random.default_rng(seed + 10_000)
    one = study(draw, chances(same))
    other = study(draw, chances(np.random.default_rng(seed + 10_000), lost))
    found = gaps(one, other, ["correct"], ["budget"])
    assert len(found) == BUDGETS
    return not all(gap.within_noise for gap in found.values())


def test_the_same_is_taken_for_the_same_and_what_differs_is_not() -> None:
    # One false alarm in 600 studies: three or more in 100 come by chance once in a thousand times.
    assert sum(loud(seed, 0.0) for seed in range(100)) < 3
    # The standard error of an accuracy is at most the root of 2 x 1/4 / (288 x 2), 2.9 points, and less of small budgets.
    assert sum(loud(seed, 0.08) for seed in range(20)) >= 18


def test_a_gap_is_the_mean_over_questions_with_its_error() -> None:
    one = pl.DataFrame(
        {"benchmark": "b", "question": [1, 1, 2, 2, 3, 3], "correct": [True, True, True, False, False, False]}
    )
    other = one.with_columns(correct=pl.Series([True, False, False, False, False, False]))
    (gap,) = gaps(one, other, ["correct"]).values()
    differences = np.array([0.5, 0.5, 0.0])
    assert gap.mean == differences.mean()
    assert gap.error == np.sqrt(((differences - differences.mean()) ** 2).sum() / 2 / 3)
    assert gap.within_noise
    (none,) = gaps(one, one, ["correct"]).values()
    assert none.within_noise
