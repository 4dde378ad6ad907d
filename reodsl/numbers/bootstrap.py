"""Intervals: questions' scores of several models to percentile intervals of REG, its differences, accuracy and length."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from reodsl.diagnostics import Problem, problem
from reodsl.numbers.bootstrap_input import ArmScores, checked_arms
from reodsl.numbers.curves import Curve, Curves, same_benchmarks
from reodsl.numbers.draws import question_counts
from reodsl.numbers.grid import integration_grid, trapezoid_weights
from reodsl.numbers.reg import MEAN, check_cover, mean_only, reg, unknown_model

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]

__all__ = ["ArmScores", "Interval", "Scores", "bootstrap"]

MOST_RESAMPLES = 100_000


@dataclass(frozen=True, slots=True)
class Interval:
    """A value on all questions, and the percentiles `low` and `high` of it over resamples of them."""

    value: float
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class Scores:
    """A model on a benchmark, or on their `mean`.

    `reg` in tokens; `difference` its REG minus the baseline's, `change_pct` that in percent of the baseline's size;
    `accuracy` a fraction and `length` in tokens, of whole responses. None: there is no baseline, the baseline's REG is 0
    in some draw, or the frontier is a mean over benchmarks and this row is one of them.
    """

    model: str
    benchmark: str
    accuracy: Interval
    length: Interval
    reg: Interval | None
    difference: Interval | None
    change_pct: Interval | None


@dataclass(frozen=True, slots=True)
class Draws:
    """One quantity: on all questions, and in each resample, shape [resamples]."""

    value: float
    draws: Floats

    def minus(self, other: Draws) -> Draws:
        """The paired difference."""
        return Draws(self.value - other.value, self.draws - other.draws)


def bootstrap(
    arms: Mapping[str, ArmScores],
    budgets: Sequence[int],
    frontier: Sequence[str] | Curves,
    *,
    l_max: int | None = None,
    grid: Sequence[int] | None = None,
    relative_to: str | None = None,
    resamples: int = 1000,
    confidence: float = 0.95,
    seed: int = 0,
) -> tuple[Scores, ...]:
    """Paired bootstrap over questions; rows by model, its benchmarks and then their `mean`.

    Each draw resamples a benchmark's questions with replacement, the same for all models and independently of other
    benchmarks. `frontier` names the arms whose best it is, which is found anew in each draw; or it is curves, which are
    the same in all draws. `budgets` are the columns of the arms' `forced`; `l_max` and `grid` are those of `reg`.
    Percentiles are taken at (1 - confidence) / 2 on both sides. Equal input gives equal output, bit for bit.
    """
    sizes = checked_arms(arms, budgets)
    check_settings(resamples, confidence)
    points = integration_grid(l_max, grid)
    check_cover(Curve(tuple(budgets), (0.0,) * len(budgets)), points, "the evaluation")
    for name in [
        *(() if isinstance(frontier, Mapping) else frontier),
        *([relative_to] if relative_to else []),
    ]:
        if name not in arms:
            raise Problem(unknown_model(name, arms))
    weights = column_weights(budgets, points)
    counts = {b: question_counts(seed, b, questions, resamples) for b, questions in sizes.items()}

    def over(values: Mapping[str, Mapping[str, Floats]]) -> dict[str, dict[str, Draws]]:
        return {
            m: with_mean({b: resampled(v, counts[b]) for b, v in per.items()}) for m, per in values.items()
        }

    areas = over({m: {b: arm.forced[b] @ weights for b in sizes} for m, arm in arms.items()})
    accuracy = over({m: {b: arm.accuracy[b] for b in sizes} for m, arm in arms.items()})
    length = over({m: {b: arm.length[b] for b in sizes} for m, arm in arms.items()})
    if isinstance(frontier, Mapping):
        best = fixed_areas(frontier, points, tuple(sizes), resamples)
    else:
        best = with_mean(
            {b: best_area([arms[m].forced[b] for m in frontier], counts[b], weights) for b in sizes}
        )

    rows = []
    for model in arms:
        for benchmark in (*sizes, MEAN):
            own = best[benchmark].minus(areas[model][benchmark]) if benchmark in best else None
            base = (
                best[benchmark].minus(areas[relative_to][benchmark])
                if relative_to is not None and benchmark in best
                else None
            )
            gap = None if own is None or base is None else own.minus(base)
            rows.append(
                Scores(
                    model,
                    benchmark,
                    interval(accuracy[model][benchmark], confidence),
                    interval(length[model][benchmark], confidence),
                    None if own is None else interval(own, confidence),
                    None if gap is None else interval(gap, confidence),
                    None if gap is None or base is None else relative(gap, base, confidence),
                )
            )
    return tuple(rows)


def resampled(values: Floats, counts: NDArray[np.int64]) -> Draws:
    """The mean over questions of `values`, shape [questions], on all of them and in each draw."""
    import numpy as np

    # einsum, not a matrix product: its order of summation does not depend on threads.
    return Draws(float(values.mean()), np.einsum("bq,q->b", counts, values) / len(values))


def best_area(forced: Sequence[Floats], counts: NDArray[np.int64], weights: Floats) -> Draws:
    """The integral of the frontier over arms, whose scores have shape [questions, budgets]; found anew in each draw."""
    import numpy as np

    whole = np.max([values.mean(axis=0) for values in forced], axis=0)
    top: Floats | None = None
    for values in forced:
        means = np.einsum("bq,qk->bk", counts, values) / len(values)
        top = means if top is None else np.maximum(top, means)
    assert top is not None
    return Draws(float(whole @ weights), np.einsum("bk,k->b", top, weights))


def fixed_areas(
    frontier: Curves, points: Sequence[int], benchmarks: Sequence[str], resamples: int
) -> dict[str, Draws]:
    """The integral of given curves, the same in every draw. A frontier of means has only the `mean`."""
    import numpy as np

    def constant(curve: Curve, whose: str) -> Draws:
        check_cover(curve, points, whose)
        zero = Curve((points[0], points[-1]), (0.0, 0.0))
        value = reg(curve, zero, grid=points)
        return Draws(value, np.full(resamples, value))

    if mean_only(frontier) and set(frontier) != set(benchmarks):
        return {MEAN: constant(next(iter(frontier.values())), "the frontier")}
    same_benchmarks(
        dict.fromkeys(benchmarks, Curve((0,), (0.0,))), frontier, "the evaluation", "the frontier"
    )
    return with_mean({b: constant(frontier[b], f"the frontier on {b}") for b in benchmarks})


def with_mean(found: Mapping[str, Draws]) -> dict[str, Draws]:
    """Benchmarks' draws and, as `mean`, their mean draw by draw."""
    import numpy as np

    mean = Draws(
        math.fsum(d.value for d in found.values()) / len(found),
        np.mean([d.draws for d in found.values()], axis=0),
    )
    return {**found, MEAN: mean}


def column_weights(budgets: Sequence[int], points: Sequence[int]) -> Floats:
    """The weight of each evaluated budget in the trapezoid integral over points, between which scores are linear."""
    import numpy as np

    weights = np.array(trapezoid_weights(points))
    hats = [np.interp(points, budgets, row) for row in np.eye(len(budgets))]
    return np.array([weights @ hat for hat in hats])


def interval(draws: Draws, confidence: float) -> Interval:
    """The percentile interval of a quantity."""
    import numpy as np

    tail = (1 - confidence) / 2
    low, high = np.quantile(draws.draws, [tail, 1 - tail])
    return Interval(draws.value, float(low), float(high))


def relative(gap: Draws, base: Draws, confidence: float) -> Interval | None:
    """A difference in percent of the baseline's size, where that is never 0."""
    import numpy as np

    if base.value == 0 or (base.draws == 0).any():
        return None
    share = Draws(100 * gap.value / abs(base.value), 100 * gap.draws / np.abs(base.draws))
    return interval(share, confidence)


def check_settings(resamples: int, confidence: float) -> None:
    """Whether there are draws to take percentiles of, at a confidence that is a fraction."""
    if not 1 <= resamples <= MOST_RESAMPLES:
        raise problem(
            "E0430", f"{resamples} resamples are asked for", help=f"take 1 to {MOST_RESAMPLES}; 1000 is usual"
        )
    if not 0 < confidence < 1:
        raise problem("E0430", f"the confidence is {confidence:g}", help="write a fraction, such as 0.95")
