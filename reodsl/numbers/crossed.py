"""The spread of a mean over seeds and questions: variances and a half-width.

Every seed meets every question, so the two are crossed. A mean over both errs by what the seeds have in common over all
questions, by what the questions have in common over all seeds, and by the rest: draws of responses and what a training
does to single questions. The rest is in both of the first two as they are estimated, and is taken off once.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from reodsl.numbers.student import t_quantile

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Spread:
    """Variances of a mean, each in the mean's unit squared, with their degrees of freedom.

    `questions`: from question to question, `seeds`: from seed to seed, and `rest`, which is in both of them. With one seed
    `seeds` and `rest` are 0, and the spread is that of these trained models over questions.
    """

    questions: float
    question_df: float
    seeds: float = 0.0
    seed_df: float = math.inf
    rest: float = 0.0

    @property
    def variance(self) -> float:
        """The variance of the mean."""
        return self.seeds + max(self.questions - self.rest, 0.0)

    def half_width(self, probability: float) -> float:
        """How far an interval reaches to one side that the truth is beyond with `1 - probability`.

        With a quantile of its own for each variance an interval is too wide where both matter, by nearly as much as that of
        Behrens and Fisher; with the one quantile of their sum (Satterthwaite) it is too narrow. The root of the mean square
        of the two is neither: of three seeds it holds the truth in 95 to 97% whatever their share of the variance is.
        """
        if self.variance == 0:
            return 0.0
        apart = 0.0
        if self.seeds > 0:
            apart += t_quantile(probability, self.seed_df) ** 2 * self.seeds
        if self.questions > self.rest:
            apart += t_quantile(probability, self.question_df) ** 2 * (self.questions - self.rest)
        together = t_quantile(probability, self.df) ** 2 * self.variance
        return math.sqrt((apart + together) / 2)

    def p_value(self, value: float) -> float:
        """The two-sided probability of a mean as far from 0 as `value`, or farther, if the truth is 0.

        It is that of the interval that ends at 0, so the two never disagree.
        """
        if self.variance == 0:
            return float(value == 0)
        low, high = (
            0.0,
            34.0,
        )  # minus the logarithm; no smaller probability is told from 0 in a quantile's argument
        for _ in range(48):
            middle = (low + high) / 2
            if self.half_width(-math.expm1(-middle - math.log(2))) < abs(value):
                low = middle
            else:
                high = middle
        return math.exp(-high)

    @property
    def df(self) -> float:
        """The degrees of freedom of `variance` (Satterthwaite 1946); no fewer than those of its parts."""
        below = (
            self.seeds**2 / self.seed_df
            + self.questions**2 / self.question_df
            + self.rest**2 / (self.seed_df * self.question_df)
        )
        # A variance that was estimated without error has infinite degrees of freedom.
        return max(self.variance**2 / below, min(self.seed_df, self.question_df)) if below > 0 else math.inf


def spread_of(cells: Mapping[str, Floats]) -> Spread | None:
    """The spread of the mean over benchmarks of the means of `cells`, each of shape [seeds, questions].

    Benchmarks share their seeds and no questions. None where a benchmark has one question, which tells no spread.
    """
    import numpy as np

    if any(each.shape[1] < 2 for each in cells.values()):
        return None
    share = 1 / len(cells) ** 2
    parts = [
        (share * float(np.mean(each, axis=0).var(ddof=1)) / each.shape[1], each.shape[1] - 1)
        for each in cells.values()
    ]
    (questions, question_df) = total(parts)
    seeds = len(next(iter(cells.values())))
    if seeds < 2:
        return Spread(questions, question_df)
    by_seed = np.mean([each.mean(axis=1) for each in cells.values()], axis=0)
    rest = sum(share * interaction(each) for each in cells.values())
    return Spread(questions, question_df, float(by_seed.var(ddof=1)) / seeds, seeds - 1, rest)


def total(parts: list[tuple[float, int]]) -> tuple[float, float]:
    """The sum of variances that were estimated with some degrees of freedom each, and its own (Satterthwaite 1946)."""
    variance = math.fsum(value for value, _ in parts)
    below = math.fsum(value**2 / df for value, df in parts)
    return variance, variance**2 / below if below > 0 else math.inf


def interaction(cells: Floats) -> float:
    """The variance of the mean of `cells`, [seeds, questions], from what neither seeds nor questions have in common."""
    import numpy as np

    seeds, questions = cells.shape
    left = cells - cells.mean(axis=1, keepdims=True) - cells.mean(axis=0) + cells.mean()
    count = (seeds - 1) * (questions - 1) * seeds * questions
    return float(np.einsum("sq,sq->", left, left) / count)
