"""The numbers of seeds and questions that would settle which of a study's two best arms is ahead."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import NormalDist

from reodsl.numbers.crossed import Spread

CHANCE = 0.8
"""The share of studies of the given size that settle the difference; planning by this share is usual (Cohen 1988)."""

MOST_SEEDS = 100
"""The most seeds that are considered."""
MOST_TIMES = 100
"""The most times as many questions that are considered."""

NODES = tuple((2 * k + 1) / 24 for k in range(12))
"""Probabilities at which variances that were estimated with an error are averaged over."""


@dataclass(frozen=True, slots=True)
class Extension:
    """The sizes at which a study settles the difference of its two best arms, in `CHANCE` of such studies.

    They hold if the measured difference is the true one. A size is None if no considered size is enough, or if one seed
    does not show how trainings differ.
    """

    seeds: int | None
    """Seeds in all at which the difference is significant."""
    same_seeds: int | None
    """Seeds in all at which the arms are the same within the study's margin."""
    questions: int | None
    """Questions in all at which the difference is significant, with the study's seeds."""


def extend(
    value: float,
    spread: Spread,
    *,
    seeds: int,
    questions: int,
    level: float,
    same_level: float,
    margin: float | None,
) -> Extension:
    """Return the sizes at which a study settles a difference of two arms, if the measured difference is the true one.

    Args:
        value: The difference, at least 0.
        spread: Its spread; the variance between seeds may be shrunk towards a typical variance.
        seeds: Seeds of the study so far.
        questions: Questions of the study so far, over all benchmarks.
        level: Level of the two-sided test that the difference is 0.
        same_level: Level of each of the two one-sided tests that the difference is not below the margin.
        margin: Margin within which the arms would be called the same; None without a margin.
    """

    def chance(num_seeds: int, num_questions: int, within: float | None = None) -> float:
        """Return the share of studies that settle the difference, a mean over the variances that the spread allows.

        Args:
            num_seeds: Seeds of the studies.
            num_questions: Questions of the studies.
            within: The margin within which the arms are to be the same; None if the difference is to be significant.
        """
        shares = []
        for node in NODES:
            grown = grow(spread, node, num_seeds / seeds, num_questions / questions, num_seeds)
            error = NormalDist(0.0, max(math.sqrt(grown.variance), 1e-12))
            # The estimates between which the difference is not settled, or settled as the same.
            reach = grown.half_width(1 - level / 2 if within is None else 1 - same_level)
            low, high = (
                (reach, math.inf) if within is None else (min(reach - within, 0.0), max(within - reach, 0.0))
            )
            shares.append(error.cdf(high - value) - error.cdf(low - value))
        return math.fsum(shares) / len(shares)

    further = range(seeds + 1, MOST_SEEDS + 1) if seeds > 1 else ()
    return Extension(
        least(further, lambda num_seeds: chance(num_seeds, questions)),
        None if margin is None else least(further, lambda num_seeds: chance(num_seeds, questions, margin)),
        least(range(questions + 1, MOST_TIMES * questions + 1), lambda num_seeds: chance(seeds, num_seeds)),
    )


def grow(spread: Spread, node: float, seeds: float, questions: float, num_seeds: int) -> Spread:
    """Return the spread of a mean in a larger study.

    Args:
        spread: The spread that was measured.
        node: The probability below the quantiles of the errors of the measured variances: low for large variances.
        seeds: How many times as many seeds the larger study has.
        questions: How many times as many questions it has.
        num_seeds: Its number of seeds.
    """
    rest = spread.rest / (seeds * questions)
    across = max(spread.questions / chi_squared_share(node, spread.question_df) - spread.rest, 0.0)
    between = max(spread.seeds / chi_squared_share(node, spread.seed_df) - spread.rest, 0.0)
    return Spread(
        across / questions + rest,
        spread.question_df * questions,
        between / seeds + rest,
        num_seeds - 1 if num_seeds > 1 else math.inf,
        rest,
        spread.rest_df * seeds * questions,
    )


def least(sizes: Sequence[int], chance: Callable[[int], float]) -> int | None:
    """Return the least of some sizes whose chance is at least `CHANCE`; None if there is none.

    Args:
        sizes: The sizes, in rising order.
        chance: The chance by size, which rises with the size.
    """
    index = bisect_left(sizes, CHANCE, key=chance)
    return sizes[index] if index < len(sizes) else None


def chi_squared_share(probability: float, df: float) -> float:
    """Return a quantile of the chi-squared distribution divided by its degrees of freedom.

    Args:
        probability: The probability below the quantile, in (0, 1).
        df: Degrees of freedom, above 0.

    Source: Wilson and Hilferty 1931.
    """
    if math.isinf(df):
        return 1.0
    variance = 2 / (9 * df)
    return float(max(1 - variance + NormalDist().inv_cdf(probability) * math.sqrt(variance), 0.01) ** 3)
