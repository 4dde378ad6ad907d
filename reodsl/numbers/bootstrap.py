"""Intervals: questions' scores of several models to percentile intervals of REG, its differences, accuracy and length."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
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

MOST_RESAMPLES = 20_000


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
    """A quantity, a number or one per budget: `value` on all questions, `draws` with a leading axis of resamples."""

    value: Floats
    draws: Floats

    def minus(self, other: Draws) -> Draws:
        """The paired difference."""
        return Draws(self.value - other.value, self.draws - other.draws)

    def plus(self, constant: float) -> Draws:
        """The same constant added throughout."""
        return Draws(self.value + constant, self.draws + constant)


@dataclass(frozen=True, slots=True)
class Measured:
    """A model on a benchmark: its gap to the frontier (REG), and accuracy and length of whole responses."""

    gap: Draws
    accuracy: Draws
    length: Draws


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
    edge: Mapping[str, float] | Sequence[str] = (
        fixed_areas(frontier, points, tuple(sizes)) if isinstance(frontier, Mapping) else frontier
    )
    drawn = {
        b: measured(arms, b, question_counts(seed, b, questions, resamples), weights, edge)
        for b, questions in sizes.items()
    }
    by_mean = isinstance(frontier, Mapping) and mean_only(frontier) and set(frontier) != set(sizes)
    return tuple(
        scores(model, benchmark, drawn, relative_to, confidence, scored=benchmark == MEAN or not by_mean)
        for model in arms
        for benchmark in (*sizes, MEAN)
    )


def measured(
    arms: Mapping[str, ArmScores],
    benchmark: str,
    lots: Iterable[NDArray[np.int64]],
    weights: Floats,
    frontier: Mapping[str, float] | Sequence[str],
) -> dict[str, Measured]:
    """Each arm on a benchmark whose questions are drawn as `lots` count; `frontier` is its area by benchmark where it is
    the same in all draws, else the arms whose best it is."""
    values = {
        (model, what): scores[benchmark]
        for model, arm in arms.items()
        for what, scores in (("forced", arm.forced), ("accuracy", arm.accuracy), ("length", arm.length))
    }
    found = resampled(values, lots)
    curves = {model: found[model, "forced"] for model in arms}
    if isinstance(frontier, Mapping):
        gaps = {model: integral(own, -weights).plus(frontier[benchmark]) for model, own in curves.items()}
    else:
        best = highest([curves[model] for model in frontier])
        # The difference comes first, so that a model that is the frontier has a REG of exactly 0.
        gaps = {model: integral(best.minus(own), weights) for model, own in curves.items()}
    return {model: Measured(gaps[model], found[model, "accuracy"], found[model, "length"]) for model in arms}


def scores(
    model: str,
    benchmark: str,
    drawn: Mapping[str, Mapping[str, Measured]],
    relative_to: str | None,
    confidence: float,
    scored: bool,
) -> Scores:
    """The row of a model and benchmark, or of their `mean`; without REG where it is not `scored`."""

    def of(name: str, what: str) -> Draws:
        return pick({b: getattr(found[name], what) for b, found in drawn.items()}, benchmark)

    own = of(model, "gap") if scored else None
    base = of(relative_to, "gap") if relative_to is not None else None
    gap = own.minus(base) if own is not None and base is not None else None
    return Scores(
        model,
        benchmark,
        interval(of(model, "accuracy"), confidence),
        interval(of(model, "length"), confidence),
        None if own is None else interval(own, confidence),
        None if gap is None else interval(gap, confidence),
        None if gap is None or base is None else relative(gap, base, confidence),
    )


def resampled(
    values: Mapping[tuple[str, str], Floats], lots: Iterable[NDArray[np.int64]]
) -> dict[tuple[str, str], Draws]:
    """The means over questions of several `values`, shape [questions, …] each, on all of them and in each draw."""
    import numpy as np

    drawn: dict[tuple[str, str], list[Floats]] = {name: [] for name in values}
    for counts in lots:
        for name, each in values.items():
            # einsum, not a matrix product: its order of summation does not depend on threads, nor on the other rows.
            drawn[name].append(np.einsum("bq,q...->b...", counts, each) / len(each))
    return {name: Draws(each.mean(axis=0), np.concatenate(drawn[name])) for name, each in values.items()}


def highest(curves: Sequence[Draws]) -> Draws:
    """The frontier over curves at every budget, found anew in each draw."""
    import numpy as np

    return Draws(
        np.max([curve.value for curve in curves], axis=0), np.max([curve.draws for curve in curves], axis=0)
    )


def integral(curve: Draws, weights: Floats) -> Draws:
    """A curve's weighted sum over budgets, once for all questions and once for each draw."""
    import numpy as np

    return Draws(np.einsum("k,k->", curve.value, weights), np.einsum("bk,k->b", curve.draws, weights))


def pick(found: Mapping[str, Draws], benchmark: str) -> Draws:
    """A benchmark's draws, or for `mean` the mean over all of them draw by draw."""
    import numpy as np

    if benchmark != MEAN:
        return found[benchmark]
    return Draws(
        np.mean([d.value for d in found.values()], axis=0), np.mean([d.draws for d in found.values()], axis=0)
    )


def fixed_areas(frontier: Curves, points: Sequence[int], benchmarks: Sequence[str]) -> dict[str, float]:
    """The integral of given curves by benchmark; a frontier of means stands for each, as only means are scored then."""

    def area(curve: Curve, whose: str) -> float:
        check_cover(curve, points, whose)
        return reg(curve, Curve((points[0], points[-1]), (0.0, 0.0)), grid=points)

    if mean_only(frontier) and set(frontier) != set(benchmarks):
        return dict.fromkeys(benchmarks, area(next(iter(frontier.values())), "the frontier"))
    same_benchmarks(
        dict.fromkeys(benchmarks, Curve((0,), (0.0,))), frontier, "the evaluation", "the frontier"
    )
    return {b: area(frontier[b], f"the frontier on {b}") for b in benchmarks}


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
    return Interval(float(draws.value), float(low), float(high))


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
