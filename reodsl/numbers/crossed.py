"""The spread of a mean over seeds and questions: variances and a half-width.

Every seed meets every question, so the two are crossed. A mean over both errs by what the seeds have in common over all
questions, by what the questions have in common over all seeds, and by the rest: draws of responses and what a training
does to single questions. The rest is in both of the first two as they are estimated, and is taken off once.

An interval is never narrower than that of the evaluation's own noise, which the questions estimate well. Two or three seeds
estimate the variance between seeds poorly, so a test also counts what is typical of the study's differences.

A frontier's area is found without the winner's curse. The best of several noisy curves is too high: who is ahead by
chance is taken, and the chance is counted. Here one part of the seeds and questions says which arm is best at each budget,
and another part says how good that arm is.
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
"""Degrees of freedom that the typical variance of a study's differences has beside a difference's own seeds.

Arms differ in how much seeds change them. With variances drawn from a scaled inverse chi-squared, those of the committed
studies have more than one together (the page PROOFS).
"""


@dataclass(frozen=True, slots=True)
class Spread:
    """Variances of a mean, each in the mean's unit squared, with their degrees of freedom.

    `questions`: from question to question, `seeds`: from seed to seed, and `rest`, which is in both of them: the noise of
    the evaluation. With one seed `seeds` and `rest` are 0, and the spread is that of these trained models over questions.
    """

    questions: float
    question_df: float
    seeds: float = 0.0
    seed_df: float = math.inf
    rest: float = 0.0
    rest_df: float = math.inf

    @property
    def variance(self) -> float:
        """Return the variance of the mean, at least that of the evaluation's noise.

        Returns:
            The mean's unit, squared.
        """
        return max(self.seeds, self.rest) + max(self.questions - self.rest, 0.0)

    @property
    def sums(self) -> tuple[tuple[float, float], ...]:
        """Return two variances of the mean, each with its degrees of freedom; an interval has the wider.

        One variance has the measured variance between seeds, the other the noise of the evaluation alone. The degrees
        of freedom are those of a sum of variances, and at least those of its terms.

        Returns:
            Pairs of a variance and its degrees of freedom.

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
        """Return this spread with `typical` as the variance of a further seed; unchanged if `typical` is None.

        Args:
            typical: The typical variance of a study's differences over seeds.

        Returns:
            The spread, with `PRIOR_DF` more degrees of freedom.

        Source: Smyth 2004.
        """
        if typical is None:
            return self
        df = PRIOR_DF + self.seed_df
        return replace(self, seeds=(PRIOR_DF * typical + self.seed_df * self.seeds) / df, seed_df=df)

    def half_width(self, probability: float) -> float:
        """Return the half-width of an interval.

        Args:
            probability: The probability below the interval's upper end, such as 0.975.

        Returns:
            The mean's unit.
        """
        return max(t_quantile(probability, df) * math.sqrt(variance) for variance, df in self.sums)

    def p_value(self, value: float) -> float:
        """Return the two-sided probability of a mean as far from 0 as `value`, or farther, if the truth is 0.

        The interval of this spread and of that probability ends at 0.

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
    """Return the spread of the mean over benchmarks of the means of `cells`, each [seeds, questions].

    Benchmarks share their seeds and no questions. None if a benchmark has a single question, which shows no spread.
    """
    import numpy as np

    if any(c.shape[1] < 2 for c in cells.values()):
        return None
    share = 1 / len(cells) ** 2
    parts = [
        (share * float(np.mean(c, axis=0).var(ddof=1)) / c.shape[1], c.shape[1] - 1) for c in cells.values()
    ]
    (questions, question_df) = sum_variances(parts)
    seeds = len(next(iter(cells.values())))
    if seeds < 2:
        return Spread(questions, question_df)
    between = float(seed_means(cells).var(ddof=1)) / seeds
    (rest, rest_df) = sum_variances([
        (share * interaction(c), (seeds - 1) * (c.shape[1] - 1)) for c in cells.values()
    ])  # fmt: skip
    return Spread(questions, question_df, between, float(seeds - 1), rest, rest_df)


def seed_means(cells: Mapping[str, Floats]) -> Floats:
    """Return the mean over benchmarks and questions of each seed."""
    import numpy as np

    means: Floats = np.mean([c.mean(axis=1) for c in cells.values()], axis=0)
    return means


def typical_variance(by_seed: Floats, *, paired: bool) -> float | None:
    """Return the typical variance of an arm's mean over seeds, or with `paired` of two arms' difference.

    It is the median, which no single arm that seeds change much or not at all can move, over that of a chi-squared.

    Args:
        by_seed: The mean of each arm and seed, [arms, seeds].
        paired: Whether the variance is of differences.

    Returns:
        The variance, None without a second arm or difference.
    """
    import numpy as np

    if paired:
        first, second = np.triu_indices(len(by_seed), 1)
        by_seed = by_seed[first] - by_seed[second]
    count, seeds = by_seed.shape
    if count < 2 or seeds < 2:
        return None
    df = seeds - 1
    # Wilson and Hilferty 1931: within 4% for one degree of freedom, and 1.5% for more.
    median = (1 - 2 / (9 * df)) ** 3
    middle = float(np.median(by_seed.var(axis=1, ddof=1)))
    return float(middle / (seeds * median))


def sum_variances(parts: list[tuple[float, int]]) -> tuple[float, float]:
    """Return the sum of estimated variances and its degrees of freedom.

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
    """Return the variance of the mean that neither seeds nor questions share.

    Args:
        cells: [seeds, questions].

    Returns:
        The cells' unit, squared.
    """
    import numpy as np

    seeds, questions = cells.shape
    rest = cells - cells.mean(axis=1, keepdims=True) - cells.mean(axis=0) + cells.mean()
    count = (seeds - 1) * (questions - 1) * seeds * questions
    return float(np.einsum("sq,sq->", rest, rest) / count)


NUM_HALVINGS = 20
"""The number of times that questions are halved anew: the area is the mean over them, and hardly depends on the halves."""

MAX_GROUPS = 24
"""Groups of questions, at most, that are halved and left out together: what is computed does not grow with the questions."""

MAX_SEED_PARTS = 5
"""Parts of the seeds, at most: each is valued by what the others choose."""


@dataclass(frozen=True, slots=True)
class CrossFit:
    """The area under a benchmark's frontier, in tokens.

    `cells`, shape [seeds, groups]: its parts, whose mean weighted by the groups' sizes it is. `without`, shape [groups]:
    the area when a group's questions are left out, of choosing as well as of valuing.
    """

    area: float
    cells: Floats
    without: Floats


def group_questions(benchmark: str, questions: int) -> Ints:
    """Return the group of each question, from 0: random, the same on every machine, of sizes that differ by at most 1."""
    import numpy as np

    order = shuffle_positions(f"groups\0{benchmark}", questions)
    groups = np.empty(questions, dtype=np.int64)
    groups[order] = np.arange(questions) % min(MAX_GROUPS, questions)
    return groups


def crossfit(benchmark: str, sums: Floats, sizes: Floats, weights: Floats) -> CrossFit:
    """Return the cross-fitted frontier of arms.

    `sums` are their scores summed over a group's questions: [arms, seeds, groups, budgets]. `sizes` counts each
    group's questions, and `weights` (tokens) make an area of scores at the budgets. For each half of the groups and
    part of the seeds, the other half and the other parts choose an arm at each budget, and their own scores of that
    arm count: every score of the data counts once in each of the halvings. With one seed the halves have it in
    common, and with one group nothing is halved.
    """
    import numpy as np

    _, seeds, groups, _ = sums.shape
    parts = min(seeds, MAX_SEED_PARTS)
    cells, without = np.zeros((seeds, groups)), np.zeros(groups)
    every = np.arange(groups)
    for number in range(NUM_HALVINGS):
        half = np.empty(groups, dtype=np.int64)
        half[shuffle_positions(f"halves\0{benchmark}\0{number}", groups)] = every % 2
        fold = np.empty(seeds, dtype=np.int64)
        fold[shuffle_positions(f"parts\0{benchmark}\0{number}", seeds)] = np.arange(seeds) % parts
        for k in range(parts):
            judged = sums[:, fold == k]
            summed = judged.sum(axis=1)
            choosing = sums[:, fold != k].sum(axis=1) if parts > 1 else summed
            both = [sum_half(choosing, half, side) for side in (0, 1)]
            if groups == 1:
                both = [both[0], both[0]]
            chosen = np.stack([scores.argmax(axis=0) for scores in (both[1], both[0])])
            cells[fold == k] += area(judged, chosen[half][None], weights)
            valued = area(summed, chosen[half], weights)
            halves = np.array([valued[half == side].sum() for side in (0, 1)])
            # Without a group its own half is chosen for as before, and the other half by what is left.
            less = np.stack(both)[half].swapaxes(0, 1) - choosing
            other_half = np.stack([sum_half(summed, half, side) for side in (0, 1)])[1 - half].swapaxes(0, 1)
            without += halves[half] - valued + area(other_half, less.argmax(axis=0), weights)
    everything = sizes.sum() * seeds * NUM_HALVINGS
    return CrossFit(
        float(cells.sum() / everything),
        cells / (sizes * NUM_HALVINGS),
        without / np.maximum(everything - sizes * seeds * NUM_HALVINGS, 1),
    )


def sum_half(scores: Floats, half: Ints, side: int) -> Floats:
    """Sum over the groups of a half: [arms, groups, budgets] to [arms, budgets]."""
    summed: Floats = scores[:, half == side].sum(axis=1)
    return summed


def area(scores: Floats, chosen: Ints, weights: Floats) -> Floats:
    """Sum the chosen arms' scores, weighted, over budgets: [arms, …, budgets] and arms [(1,) …, budgets] to […]."""
    import numpy as np

    index = np.broadcast_to(chosen, scores.shape[1:])[None]
    picked = np.take_along_axis(scores, index, axis=0)[0]
    return np.einsum("...k,k->...", picked, weights)  # type: ignore[no-any-return]


def shuffle_positions(key: str, count: int) -> Ints:
    """Return an order of `count` things that depends on `key` alone, by words of a counter-based generator, Philox."""
    import numpy as np

    words = np.frombuffer(hashlib.sha256(key.encode()).digest()[:16], dtype="<u8")
    order: Ints = np.argsort(np.random.Philox(key=words).random_raw(count), kind="stable")
    return order
