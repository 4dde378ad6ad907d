"""The spread of a mean over seeds and questions: variances and a half-width.

Every seed is evaluated on every question, so the two factors are crossed. The variance of a mean over both has three
terms: between seeds, between questions, and the residual of sampled responses and of what a training does to single
questions. The estimates between seeds and between questions both contain the residual, so it is subtracted once.

An interval is never narrower than the evaluation's own noise implies, which the questions estimate well. Two or three
seeds estimate the variance between seeds poorly, so a test also uses the typical variance of the study's differences.

A frontier's area is estimated without the winner's curse. The best of several noisy curves is too high, since it picks the
arm that is ahead by chance and counts the chance. Here one part of the seeds and questions chooses the best arm at each
budget, and another part measures that arm.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from reodsl.numbers.reg import t_probability, t_quantile

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]
    Ints = NDArray[np.int64]


PRIOR_DF = 1.0
"""Degrees of freedom of the typical variance of a study's differences, as a prior for the variance of one difference.

Arms differ in their variance over seeds. If variances follow a scaled inverse chi-squared distribution, the committed
studies together give it more than one degree of freedom (the page PROOFS).
"""


@dataclass(frozen=True, slots=True)
class Spread:
    """Variances of a mean, each in the mean's unit squared, with their degrees of freedom.

    `questions` is estimated between questions, `seeds` between seeds, and `rest` is the evaluation's noise, which both
    contain. With one seed `seeds` and `rest` are 0, and the spread covers questions only, for these trained models.
    """

    questions: float
    question_df: float
    seeds: float = 0.0
    seed_df: float = math.inf
    rest: float = 0.0
    rest_df: float = math.inf

    @property
    def variance(self) -> float:
        """Return the variance of the mean, at least the variance of the evaluation's noise.

        Returns:
            The mean's unit, squared.
        """
        return max(self.seeds, self.rest) + max(self.questions - self.rest, 0.0)

    @property
    def sums(self) -> tuple[tuple[float, float], ...]:
        """Return two estimates of the mean's variance; an interval uses the estimate that makes it wider.

        The first contains the measured variance between seeds. The second contains the noise of the evaluation
        (`rest`) instead, which is a lower bound of the variance between seeds. The degrees of freedom are
        Satterthwaite's for a sum of variances, but at least the smaller of the seeds' or noise's and the questions'.

        Returns:
            Two pairs of a variance and its degrees of freedom.

        Source: Satterthwaite 1946.
        """
        both = []
        for seeds, df in ((self.seeds, self.seed_df), (self.rest, self.rest_df)):
            variance = seeds + max(self.questions - self.rest, 0.0)
            below = seeds**2 / df + self.questions**2 / self.question_df + self.rest**2 / self.rest_df
            # A variance that was estimated without error has infinite degrees of freedom.
            both.append(
                (variance, max(variance**2 / below, min(df, self.question_df)) if below > 0 else math.inf)
            )
        return tuple(both)

    def moderated(self, typical: float | None) -> Spread:
        """Return this spread with the variance between seeds shrunk towards a typical variance.

        Few seeds estimate a variance poorly, and the study's other differences tell how large it usually is.

        Args:
            typical: The typical variance over seeds of the study's differences; None leaves the spread unchanged.

        Returns:
            The spread, with `PRIOR_DF` more degrees of freedom.

        Source: Smyth 2004.
        """
        if typical is None:
            return self
        df = PRIOR_DF + self.seed_df
        return replace(self, seeds=(PRIOR_DF * typical + self.seed_df * self.seeds) / df, seed_df=df)

    def half_width(self, probability: float) -> float:
        """Return the half-width of an interval around the mean, the larger of those by the two variances of `sums`.

        Args:
            probability: The probability below the interval's upper end, such as 0.975.

        Returns:
            The mean's unit.
        """
        return max(t_quantile(probability, df) * math.sqrt(variance) for variance, df in self.sums)

    def p_value(self, value: float) -> float:
        """Return the two-sided p-value of a mean against a true mean of 0.

        It is 1 minus the confidence at which the interval of `half_width` would just touch 0. Without any variance it is
        1 for a mean of 0 and 0 for any other mean.

        Args:
            value: The mean.

        Returns:
            A probability, 0 to 1.
        """
        if value == 0 or self.variance == 0:
            return float(value == 0)
        return max(
            2 * (1 - t_probability(abs(value) / math.sqrt(variance), df))
            for variance, df in self.sums
            if variance > 0
        )


def spread_of(cells: Mapping[str, Floats]) -> Spread | None:
    """Return the spread of a mean over benchmarks, seeds and questions.

    Benchmarks share their seeds but not their questions. So the variances between questions are added over benchmarks,
    and the variance between seeds is that of the seeds' means over all benchmarks.

    Args:
        cells: Values by benchmark, each [seeds, questions].

    Returns:
        The spread; None if a benchmark has a single question, which shows no variance. With one seed, the spread has
        only the variance between questions.
    """
    import numpy as np

    if any(c.shape[1] < 2 for c in cells.values()):
        return None
    share = 1 / len(cells) ** 2
    variances = [
        (share * float(np.mean(c, axis=0).var(ddof=1)) / c.shape[1], c.shape[1] - 1) for c in cells.values()
    ]
    (questions, question_df) = sum_variances(variances)
    seeds = len(next(iter(cells.values())))
    if seeds < 2:
        return Spread(questions, question_df)
    between = float(seed_means(cells).var(ddof=1)) / seeds
    (rest, rest_df) = sum_variances([
        (share * interaction(c), (seeds - 1) * (c.shape[1] - 1)) for c in cells.values()
    ])  # fmt: skip
    return Spread(questions, question_df, between, float(seeds - 1), rest, rest_df)


def seed_means(cells: Mapping[str, Floats]) -> Floats:
    """Return each seed's mean over questions and benchmarks.

    Args:
        cells: Values by benchmark, each [seeds, questions].

    Returns:
        Values by seed.
    """
    import numpy as np

    means: Floats = np.mean([c.mean(axis=1) for c in cells.values()], axis=0)
    return means


def typical_variance(by_seed: Floats, *, paired: bool) -> float | None:
    """Return the typical variance of an arm's mean over seeds, or of the difference of two arms' means.

    It is the median of the variances of all arms or pairs, which a single unusual arm cannot move. The median of an
    estimated variance is below its mean, so it is divided by the median of a chi-squared distribution with mean 1.

    Args:
        by_seed: The mean of each arm and seed, [arms, seeds].
        paired: Whether the variance is that of differences of two arms.

    Returns:
        The variance; None with fewer than two arms (or pairs, if `paired`) or with a single seed.
    """
    import numpy as np

    if paired:
        first, second = np.triu_indices(len(by_seed), 1)
        by_seed = by_seed[first] - by_seed[second]
    count, seeds = by_seed.shape
    if count < 2 or seeds < 2:
        return None
    df = seeds - 1
    # The median of a chi-squared over its degrees of freedom, by Wilson and Hilferty 1931: within 4% for one, 1.5% for more.
    median = (1 - 2 / (9 * df)) ** 3
    middle = float(np.median(by_seed.var(axis=1, ddof=1)))
    return float(middle / (seeds * median))


def sum_variances(parts: list[tuple[float, int]]) -> tuple[float, float]:
    """Return the sum of estimated variances and the degrees of freedom of this sum.

    Args:
        parts: Variances with their degrees of freedom.

    Returns:
        The variance, and its degrees of freedom.

    Source: Satterthwaite 1946.
    """
    variance = math.fsum(value for value, _ in parts)
    below = math.fsum(value**2 / df for value, df in parts)
    return variance, variance**2 / below if below > 0 else math.inf


def interaction(cells: Floats) -> float:
    """Return the variance of the mean from the interaction of seeds and questions, which includes sampling noise.

    Args:
        cells: Values, [seeds, questions].

    Returns:
        The cells' unit, squared.
    """
    import numpy as np

    seeds, questions = cells.shape
    rest = cells - cells.mean(axis=1, keepdims=True) - cells.mean(axis=0) + cells.mean()
    count = (seeds - 1) * (questions - 1) * seeds * questions
    return float(np.einsum("sq,sq->", rest, rest) / count)


NUM_HALVINGS = 20
"""The number of random halvings of the questions, over which the area is averaged to hardly depend on the halves."""

MAX_GROUPS = 24
"""The most groups of questions. Groups are halved and left out as units, so the work does not grow with the questions."""

MAX_SEED_PARTS = 5
"""The most folds of the seeds: the arms for each fold are chosen by the other folds."""


@dataclass(frozen=True, slots=True)
class CrossFit:
    """The area under a benchmark's frontier, in tokens.

    `cells`, shape [seeds, groups]: contributions to the area, which is their mean weighted by the groups' sizes. `without`,
    shape [groups]: the area if a group's questions are left out of both the choice of arms and the estimate.
    """

    area: float
    cells: Floats
    without: Floats


def group_questions(benchmark: str, questions: int) -> Ints:
    """Assign the questions of a benchmark to at most `MAX_GROUPS` groups, and return each question's group from 0.

    The assignment is random but the same on every machine, and sizes differ by at most 1.

    Args:
        benchmark: Name of the benchmark, which seeds the assignment.
        questions: The number of questions.
    """
    import numpy as np

    order = shuffle_positions(f"groups\0{benchmark}", questions)
    groups = np.empty(questions, dtype=np.int64)
    groups[order] = np.arange(questions) % min(MAX_GROUPS, questions)
    return groups


def crossfit(benchmark: str, sums: Floats, sizes: Floats, weights: Floats) -> CrossFit:
    """Return the area under the cross-fitted frontier of some arms on a benchmark.

    Groups of questions are divided into two halves at random, `NUM_HALVINGS` times, and seeds into folds. For each half
    and fold, the scores of the other half in the other folds choose the best arm at each budget. The scores of the
    chosen arm in this half and fold are then summed. With one seed, choice and estimate use the same seed. With one
    group, they use the same questions.

    Args:
        benchmark: Name of the benchmark, which seeds the halvings.
        sums: Scores summed over a group's questions: [arms, seeds, groups, budgets].
        sizes: The number of questions of each group.
        weights: Weight of each budget in the area, in tokens.
    """
    import numpy as np

    _, seeds, groups, _ = sums.shape
    parts = min(seeds, MAX_SEED_PARTS)
    cells, without = np.zeros((seeds, groups)), np.zeros(groups)
    indices = np.arange(groups)
    for halving in range(NUM_HALVINGS):
        half = np.empty(groups, dtype=np.int64)
        half[shuffle_positions(f"halves\0{benchmark}\0{halving}", groups)] = indices % 2
        fold = np.empty(seeds, dtype=np.int64)
        fold[shuffle_positions(f"parts\0{benchmark}\0{halving}", seeds)] = np.arange(seeds) % parts
        for k in range(parts):
            fold_scores = sums[:, fold == k]
            summed = fold_scores.sum(axis=1)
            choosing = sums[:, fold != k].sum(axis=1) if parts > 1 else summed
            half_scores = [sum_half(choosing, half, side) for side in (0, 1)]
            if groups == 1:
                half_scores = [half_scores[0], half_scores[0]]
            chosen = np.stack([scores.argmax(axis=0) for scores in (half_scores[1], half_scores[0])])
            cells[fold == k] += area(fold_scores, chosen[half][None], weights)
            valued = area(summed, chosen[half], weights)
            halves = np.array([valued[half == side].sum() for side in (0, 1)])
            # Leaving out a group changes the choice for the other half only; its own half loses just its scores.
            reduced = np.stack(half_scores)[half].swapaxes(0, 1) - choosing
            other_half = np.stack([sum_half(summed, half, side) for side in (0, 1)])[1 - half].swapaxes(0, 1)
            without += halves[half] - valued + area(other_half, reduced.argmax(axis=0), weights)
    weight_sum = sizes.sum() * seeds * NUM_HALVINGS
    return CrossFit(
        float(cells.sum() / weight_sum),
        cells / (sizes * NUM_HALVINGS),
        without / np.maximum(weight_sum - sizes * seeds * NUM_HALVINGS, 1),
    )


def sum_half(scores: Floats, half: Ints, side: int) -> Floats:
    """Sum scores over the groups of a half.

    Args:
        scores: [arms, groups, budgets].
        half: The half of each group, 0 or 1.
        side: The half that is summed, 0 or 1.

    Returns:
        [arms, budgets].
    """
    summed: Floats = scores[:, half == side].sum(axis=1)
    return summed


def area(scores: Floats, chosen: Ints, weights: Floats) -> Floats:
    """Return the sum over budgets of the chosen arm's score times the budget's weight.

    Args:
        scores: [arms, …, budgets].
        chosen: Index of the arm, [(1,) …, budgets].
        weights: Weight of each budget, in tokens.

    Returns:
        Areas, […].
    """
    import numpy as np

    index = np.broadcast_to(chosen, scores.shape[1:])[None]
    picked = np.take_along_axis(scores, index, axis=0)[0]
    return np.einsum("...k,k->...", picked, weights)  # type: ignore[no-any-return]


def shuffle_positions(key: str, count: int) -> Ints:
    """Return a permutation of `count` positions that depends on `key` alone.

    It is computed with Philox, a counter-based generator, and so is equal on every machine.
    """
    import numpy as np

    words = np.frombuffer(hashlib.sha256(key.encode()).digest()[:16], dtype="<u8")
    order: Ints = np.argsort(np.random.Philox(key=words).random_raw(count), kind="stable")
    return order
