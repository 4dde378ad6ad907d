"""REG, its differences, accuracy and length with their intervals, from the scores of models by seed and question.

`reodsl explain science` explains them, and benchmarks/INTERVALS.md shows how often they hold the truth.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from statistics import NormalDist
from typing import TYPE_CHECKING

from reodsl.diagnostics import Problem, problem
from reodsl.numbers.arm_scores import ArmScores, check_arms
from reodsl.numbers.crossed import (
    Spread,
    area,
    crossfit,
    group_questions,
    seed_means,
    spread_of,
    sum_variances,
    typical_variance,
)
from reodsl.numbers.curves import Curve, Curves, check_cover, mean_only, same_benchmarks
from reodsl.numbers.reg import (
    MEAN,
    change_pct,
    holm,
    integration_grid,
    reg,
    t_quantile,
    trapezoid_weights,
    unknown_model,
)

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]

__all__ = ["ArmScores", "Comparisons", "Interval", "Scores", "compare_arms", "score_arms"]


@dataclass(frozen=True, slots=True)
class Interval:
    """A value with its interval; a difference also has its p-value and its spread."""

    value: float
    """The estimate."""
    low: float | None = None
    """The lower end; None if the data do not give an interval."""
    high: float | None = None
    """The upper end; None if the data do not give an interval."""
    p: float | None = None
    """The two-sided p-value of a difference against a true difference of 0."""
    p_holm: float | None = None
    """`p` corrected for all comparisons of the study."""
    significant: bool = False
    """True if `p_holm` is small enough for a star."""
    spreads: tuple[Spread, ...] = ()
    """A difference's spread, and the same moderated by the study's typical variance; empty if the data give none."""

    @property
    def excludes_zero(self) -> bool:
        """Return whether the interval is known and excludes 0."""
        return self.low is not None and self.high is not None and (self.low > 0 or self.high < 0)


@dataclass(frozen=True, slots=True)
class Scores:
    """The scores of a model on a benchmark, or on the `mean` of benchmarks.

    None: there is no baseline, the interval of the baseline's `reg` contains 0 (`change_pct`), or the frontier is a
    mean over benchmarks and this row is of a benchmark (`reg`, `reg_plain`).
    """

    model: str
    """The model's name."""
    benchmark: str
    """The benchmark, or `mean`."""
    seed: int | None
    """None for all seeds; a row of a single seed has no intervals."""
    accuracy: Interval
    """Accuracy of complete responses, 0 to 1."""
    length: Interval
    """Length of complete responses, in tokens."""
    reg: Interval | None
    """REG against the cross-fitted frontier, in tokens."""
    reg_plain: float | None
    """REG against the best measured score of each seed, as the paper defines it, in tokens."""
    difference: Interval | None
    """REG minus the baseline's in tokens, which is the same against any frontier."""
    change_pct: float | None
    """The difference in percent of the baseline's `reg`."""
    accuracy_change: Interval | None
    """Accuracy minus the baseline's."""
    length_change: Interval | None
    """Length minus the baseline's, in tokens."""


Cells = Mapping[str, "Floats"]
"""Each benchmark's numbers, one for each seed and question: [seeds, questions]."""


@dataclass(frozen=True, slots=True)
class ArmCells:
    """A model's cells: `area` under its curve (tokens), accuracy (0 to 1) and length (tokens).

    `replicated` says whether it has another checkpoint for each seed, rather than a single checkpoint for all.
    """

    area: Cells
    accuracy: Cells
    length: Cells
    replicated: bool


MEASURES = ("area", "accuracy", "length")
STAR_FIELDS = ("difference", "accuracy_change")
"""The differences in a table that can have a star."""

MAX_PAIRED = 32
"""The most arms of a study that are compared in all pairs: the arms with the lowest REG."""

ONE_TAIL_SHARE = 0.9
"""The share of the error rate (1 - confidence) that one tail gets near an end of the range.

The other tail keeps the remainder, because the spread is itself an estimate.
"""

EQUIVALENCE_ERROR = 0.05
"""The rate at which any pair of a study may be called the same within a margin that its difference exceeds."""


@dataclass(frozen=True, slots=True)
class Comparisons:
    """The comparisons of a study, which are corrected together (*Stars* of the page SCIENCE)."""

    arms: tuple[str, ...]
    """The arms that are compared in all pairs, the best first, and the baseline."""
    reg: Mapping[tuple[str, str], Interval]
    """REG of a pair's first arm minus that of its second, in tokens on the mean over benchmarks; the better arm is first."""
    accuracy: Mapping[str, Interval]
    """The accuracy of each arm minus the accuracy of the arm in `against`."""
    within: Mapping[tuple[str, str], float]
    """The margin in tokens within which a pair's arms are the same, by two one-sided tests that are corrected for all
    pairs.
    """
    against: Mapping[str, str]
    """The arm that each arm's accuracy is compared with."""
    count: int
    """The number of comparisons that is corrected for."""
    seeds: int
    """Seeds of the study."""
    questions: int
    """Questions of the study, over all benchmarks."""
    confidence: float
    """The confidence of intervals, such as 0.95."""

    def of(self, arm: str, measure: str) -> Interval | None:
        """Return an arm's difference from the arm in `against`, of REG or of accuracy; None if it was not compared.

        The sign of a difference of REG may be reversed, since pairs are stored with the better arm first.

        Args:
            arm: Name of the arm.
            measure: `difference` or `accuracy_change`.
        """
        if measure == "accuracy_change" or arm not in self.against:
            return self.accuracy.get(arm)
        other = self.against[arm]
        return self.reg.get((arm, other)) or self.reg.get((other, arm))


TypicalVariances = Mapping[tuple[str, bool], float | None]
"""`typical_variance` by measure, and by whether both arms of a difference were trained with several seeds."""


@dataclass(frozen=True, slots=True)
class EdgeGroups:
    """A measured frontier's areas in tokens by group of questions, for the variance of REG.

    `cells` and `best_cells` are the contributions to `Edge.area` and `Edge.best`: [seeds, groups]. `without` is `Edge.area`
    with one group left out: [groups]. `groups` has each question's group, and `sizes` the number of questions per group.
    """

    cells: Floats
    best_cells: Floats
    without: Floats
    sizes: Floats
    groups: NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Edge:
    """A frontier on a benchmark, as areas in tokens.

    `area` is the cross-fitted frontier's. `plain` is each seed's area under its best measured scores, and `best` the area
    under the best means over seeds, which bounds the frontier of these arms from above. A frontier given as curves has only
    `area`.
    """

    area: float
    plain: tuple[float, ...] = ()
    best: float = math.nan
    parts: EdgeGroups | None = None


def score_arms(
    arms: Mapping[str, Sequence[ArmScores]],
    budgets: Sequence[int],
    frontier: Sequence[str] | Curves,
    *,
    seeds: Sequence[int] = (0,),
    l_max: int | None = None,
    grid: Sequence[int] | None = None,
    relative_to: str | None = None,
    confidence: float = 0.95,
    comparisons: Comparisons | None = None,
) -> tuple[Scores, ...]:
    """Return the scores of each model on each benchmark and on their mean: over all seeds, then for each seed.

    With a single seed there are only rows over all seeds. If the frontier is a mean over benchmarks, only rows of the
    mean have REG. Equal input gives equal output, bit for bit.

    Args:
        arms: Scores of each model by seed, or a single item if a model is the same for all seeds.
        budgets: The columns of the scores' `forced`, in tokens.
        frontier: Names of the arms whose best makes the frontier, or the frontier's curves.
        seeds: The seeds, in the order of the scores.
        l_max: The end of integration in tokens, as for `reg`.
        grid: The points of integration, as for `reg`.
        relative_to: The baseline, if there is one.
        confidence: Confidence of intervals, such as 0.95.
        comparisons: The study's comparisons, which decide on stars; None computes them.

    Returns:
        The rows.

    Raises:
        Problem: E0114 for an unknown arm, E0303 for a confidence out of range, E0431 for arms that cannot be paired.
    """
    sizes = check_arms(arms, budgets, len(seeds))
    if not 0 < confidence < 1:
        raise problem("E0303", f"the confidence is {confidence:g}", help="write a fraction, such as 0.95")
    points = integration_grid(l_max, grid)
    check_cover(Curve(tuple(budgets), (0.0,) * len(budgets)), points, "the evaluation")
    for name in [
        *(() if isinstance(frontier, Mapping) else frontier),
        *([relative_to] if relative_to else []),
    ]:
        if name not in arms:
            raise Problem(unknown_model(name, arms))
    weights = column_weights(budgets, points)
    models = {name: measure_cells(arm, tuple(sizes), len(seeds), weights) for name, arm in arms.items()}
    if isinstance(frontier, Mapping):
        edges = {b: Edge(size) for b, size in fixed_areas(frontier, points, tuple(sizes)).items()}
        by_mean = mean_only(frontier) and set(frontier) != set(sizes)
    else:
        edges = {b: edge([arms[name] for name in frontier], b, len(seeds), weights) for b in sizes}
        by_mean = False
    base = models[relative_to] if relative_to is not None else None
    places = {**{b: (b,) for b in sizes}, MEAN: tuple(sizes)}
    scored = {title for title in places if title == MEAN or not by_mean}
    gaps = {
        (name, title): gap_of(model, edges, places[title], confidence)
        for name, model in models.items()
        for title in scored
    }
    typical = {title: typical_of(models.values(), where) for title, where in places.items()}
    rows = [
        scores(name, title, where, model, base, confidence, typical[title])
        if title not in scored
        else add_gap(
            scores(name, title, where, model, base, confidence, typical[title]),
            gaps[name, title],
            mean(
                [
                    (mean(edges[b].plain) if edges[b].plain else edges[b].area) - float(model.area[b].mean())
                    for b in where
                ]
            ),
            gaps[relative_to, title] if relative_to is not None else None,
        )
        for name, model in models.items()
        for title, where in places.items()
    ]
    if relative_to is not None:
        rows = add_stars(rows, comparisons or compare_arms(
            arms, budgets, seeds=len(seeds), l_max=l_max, grid=grid, against=relative_to, confidence=confidence
        ))  # fmt: skip
    if len(seeds) < 2:
        return tuple(rows)
    return tuple(rows) + tuple(
        score_seed(row, tuple(sizes), models, relative_to, edges, index, seed)
        for index, seed in enumerate(seeds)
        for row in rows
    )


def compare_arms(
    arms: Mapping[str, Sequence[ArmScores]],
    budgets: Sequence[int],
    *,
    seeds: int,
    l_max: int | None = None,
    grid: Sequence[int] | None = None,
    against: str | Mapping[str, str] | None = None,
    confidence: float = 0.95,
) -> Comparisons:
    """Return all comparisons of a study's arms, with p-values that are corrected together.

    Arms are ordered by REG, the lowest first. The first `MAX_PAIRED` are compared in all pairs, and every other arm only
    with the arm in `against`. The correction counts all pairs of arms, also those that are not compared.

    Args:
        arms: Scores of each model by seed.
        budgets: The columns of the scores' `forced`, in tokens.
        seeds: The number of seeds.
        l_max: The end of integration in tokens, as for `reg`.
        grid: The points of integration, as for `reg`.
        against: The baseline, or for each arm the arm that its accuracy is compared with.
        confidence: Confidence of intervals, such as 0.95.

    Returns:
        The comparisons.
    """
    sizes = tuple(checked := check_arms(arms, budgets, seeds))
    weights = column_weights(budgets, integration_grid(l_max, grid))
    models = {name: measure_cells(of_seeds, sizes, seeds, weights) for name, of_seeds in arms.items()}
    typical = typical_of(models.values(), sizes)
    baseline = against if isinstance(against, str) else None
    if isinstance(against, str):
        against = {name: against for name in arms if name != against}
    against = against or {}
    under = {name: mean([float(model.area[b].mean()) for b in sizes]) for name, model in models.items()}
    order = sorted(arms, key=lambda name: -under[name])
    paired = {frozenset(pair) for pair in combinations(order[:MAX_PAIRED], 2)}
    paired |= {frozenset(pair) for pair in against.items()}
    pairs = math.comb(len(arms), 2)
    reg, margins = {}, {}
    for better, worse in combinations(order, 2):
        if frozenset((better, worse)) in paired:
            # REG falls as the area under a curve grows.
            both = models[worse], models[better], "area", sizes
            reg[better, worse] = result = difference(*both, confidence, typical)
            for spread in result.spreads[:1]:
                margins[better, worse] = abs(result.value) + spread.half_width(1 - EQUIVALENCE_ERROR / pairs)
    accuracy = {
        name: difference(models[name], models[other], "accuracy", sizes, confidence, typical)
        for name, other in against.items()
    }
    count = pairs + len(accuracy)
    corrected = correct([*reg.values(), *accuracy.values()], confidence, count)
    return Comparisons(
        tuple(name for rank, name in enumerate(order) if rank < MAX_PAIRED or name == baseline),
        dict(zip(reg, corrected, strict=False)),
        dict(zip(accuracy, corrected[len(reg) :], strict=True)),
        margins,
        dict(against),
        count,
        seeds,
        sum(checked.values()),
        confidence,
    )


def correct(differences: Sequence[Interval], confidence: float, count: int | None = None) -> list[Interval]:
    """Return differences with p-values corrected by Holm's method, and marked if they are significant.

    A difference without a p-value is unchanged.

    Args:
        differences: The differences.
        confidence: 1 minus the level of significance.
        count: The number of comparisons; comparisons that are not in `differences` get the p-value 1.

    Returns:
        The differences in their order.

    Source: Holm 1979.
    """
    p_values = [d.p for d in differences if d.p is not None]
    more = 0 if count is None else count - len(differences)
    adjusted = iter(holm([*p_values, *[1.0] * more]))
    return [
        d if d.p is None else replace(d, p_holm=(p := next(adjusted)), significant=p <= 1 - confidence)
        for d in differences
    ]


def typical_of(models: Iterable[ArmCells], places: Sequence[str]) -> TypicalVariances:
    """Return the typical variance over seeds of a difference between two arms, for each measure.

    Only arms with a checkpoint for each seed are used. If one of the two arms has a single checkpoint, the difference
    varies over seeds as the other arm's mean does, so that variance is returned as well.

    Args:
        models: The cells of a study's arms.
        places: Benchmarks, over which differences are averaged.

    Returns:
        The variance by measure, and by whether both arms of the difference have a checkpoint for each seed; None if
        too few arms or seeds show it.
    """
    import numpy as np

    trained = [model for model in models if model.replicated]
    typical: dict[tuple[str, bool], float | None] = {}
    for measure in MEASURES:
        by_seed = [seed_means({b: getattr(model, measure)[b] for b in places}) for model in trained]
        for paired in (False, True):
            typical[measure, paired] = typical_variance(np.array(by_seed), paired=paired) if trained else None
    return typical


def difference(
    first: ArmCells,
    second: ArmCells,
    measure: str,
    places: Sequence[str],
    confidence: float,
    typical: TypicalVariances,
) -> Interval:
    """Return a measure of one model minus the measure of another, paired by seed and question, with its interval.

    The interval uses only the variance of these two models. The p-value is the larger of two: one from this variance,
    and one from the variance between seeds shrunk towards the study's typical variance. There is no interval and no
    p-value if a benchmark has a single question.

    Args:
        first: The model.
        second: The model that is subtracted.
        measure: A field of `ArmCells`.
        places: Benchmarks, over which the difference is averaged.
        confidence: Confidence of the interval.
        typical: Typical variances of the study, from `typical_of`. They are not used if neither model has a checkpoint
            for each seed.

    Returns:
        The difference in the measure's unit.
    """
    cells = {b: getattr(first, measure)[b] - getattr(second, measure)[b] for b in places}
    spread = spread_of(cells)
    bare = interval_of(cells, spread, confidence)
    if spread is None:
        return bare
    like = typical.get((measure, first.replicated and second.replicated))
    spreads = spread, spread.moderated(like if first.replicated or second.replicated else None)
    return replace(bare, p=max(s.p_value(bare.value) for s in spreads), spreads=spreads)


def add_stars(rows: Sequence[Scores], comparisons: Comparisons) -> list[Scores]:
    """Return the rows with corrected p-values, and with their significant differences marked.

    A difference on the mean over benchmarks takes its p-value from `comparisons`. All differences on single benchmarks
    are corrected together, separately from the means. The p-value of such a difference is at least that of the arm's
    mean. So a benchmark can have a star only if the mean has a star.

    Args:
        rows: Rows over all seeds.
        comparisons: The study's comparisons; differences that they do not contain are unchanged.
    """
    confidence = comparisons.confidence
    single = {
        (i, name): change
        for i, row in enumerate(rows)
        if row.benchmark != MEAN
        for name in STAR_FIELDS
        if (change := getattr(row, name)) is not None and comparisons.of(row.model, name) is not None
    }
    corrected = dict(zip(single, correct(list(single.values()), confidence), strict=True))

    def star(i: int, row: Scores, name: str) -> Interval | None:
        """Return a difference of a row with its corrected p-value, at least that of the arm's mean over benchmarks.

        A difference that the study's comparisons do not contain is unchanged, and so is None.

        Args:
            i: Index of the row.
            row: The row.
            name: A field of `STAR_FIELDS`.
        """
        own: Interval | None = getattr(row, name)
        of_mean = comparisons.of(row.model, name)
        if own is None or of_mean is None or of_mean.p_holm is None:
            return own
        of_own = of_mean if row.benchmark == MEAN else corrected[i, name]
        p = max(of_mean.p_holm, of_own.p_holm or 0.0)
        return replace(own, p_holm=p, significant=p <= 1 - confidence)

    return [
        replace(row, difference=star(i, row, "difference"), accuracy_change=star(i, row, "accuracy_change"))
        for i, row in enumerate(rows)
    ]


def measure_cells(
    of_seeds: Sequence[ArmScores], benchmarks: Sequence[str], seeds: int, weights: Floats
) -> ArmCells:
    """Return a model's area under its curve, accuracy and length, each by benchmark, seed and question.

    A model counts as having a checkpoint for each seed (`replicated`) if any number differs between seeds.

    Args:
        of_seeds: Scores by seed, or a single item if the model is the same for all seeds.
        benchmarks: Names of benchmarks.
        seeds: The number of seeds; a single item is repeated as often.
        weights: Weight of each budget in the area, in tokens.
    """
    import numpy as np

    def cells(arms: Sequence[Mapping[str, Floats]], benchmark: str) -> Floats:
        """Return the scores of a benchmark, [seeds, questions], with a single item repeated for every seed."""
        stacked = np.stack([scores[benchmark] for scores in arms])
        return np.broadcast_to(stacked, (seeds, stacked.shape[1]))

    # einsum, not a matrix product: its order of summation does not depend on threads, nor on the other rows.
    areas = [{b: np.einsum("qk,k->q", arm.forced[b], weights) for b in benchmarks} for arm in of_seeds]
    area = {b: cells(areas, b) for b in benchmarks}
    accuracy = {b: cells([arm.accuracy for arm in of_seeds], b) for b in benchmarks}
    length = {b: cells([arm.length for arm in of_seeds], b) for b in benchmarks}
    every = (each for kind in (area, accuracy, length) for each in kind.values())
    return ArmCells(area, accuracy, length, any(bool((each != each[0]).any()) for each in every))


def edge(arms: Sequence[Sequence[ArmScores]], benchmark: str, seeds: int, weights: Floats) -> Edge:
    """Return the frontier of some arms on a benchmark as three areas (cross-fitted, plain, best) and their group parts.

    The plain areas are under each seed's best scores, and the best area is under the best means over seeds (see `Edge`).
    For intervals, the areas are also split by groups of questions that are resampled together. `fitted.cells` and
    `best_cells` have the area of each seed and group, and `fitted.without` has the area if a group is left out.

    Args:
        arms: Scores of each arm by seed, or a single item for an arm that is the same for all seeds.
        benchmark: Name of the benchmark.
        seeds: The number of seeds.
        weights: Weight of each budget in an area, in tokens.
    """
    import numpy as np

    questions = len(arms[0][0].forced[benchmark])
    groups = group_questions(benchmark, questions)
    sizes = np.bincount(groups).astype(np.float64)
    sums = np.stack([
        np.broadcast_to(
            np.stack([sum_groups(scores.forced[benchmark], groups) for scores in of_seeds]),
            (seeds, len(sizes), len(weights)),
        )
        for of_seeds in arms
    ])  # fmt: skip
    fitted = crossfit(benchmark, sums, sizes, weights)
    means = sums.sum(axis=2) / questions
    winners = means.mean(axis=1).argmax(axis=0)
    best_cells = area(sums, winners[None, None], weights) / sizes
    plain = tuple(float(value) for value in np.einsum("sk,k->s", means.max(axis=0), weights))
    best = float(np.einsum("k,k->", means.mean(axis=1).max(axis=0), weights))
    parts = EdgeGroups(fitted.cells, best_cells, fitted.without, sizes, groups)
    return Edge(fitted.area, plain, best, parts)


def sum_groups(values: Floats, groups: NDArray[np.int64]) -> Floats:
    """Sum values over the questions of each group: [questions, …] to [groups, …].

    Args:
        values: Values by question.
        groups: The group of each question, from 0; no group is empty.
    """
    import numpy as np

    order = np.argsort(groups, kind="stable")
    starts = np.searchsorted(groups[order], np.arange(int(groups.max()) + 1))
    summed: Floats = np.add.reduceat(values[order], starts, axis=0)
    return summed


def scores(
    model: str,
    title: str,
    places: Sequence[str],
    arm: ArmCells,
    base: ArmCells | None,
    confidence: float,
    typical: TypicalVariances | None = None,
) -> Scores:
    """Return the row of a model on a benchmark or on a mean, over all seeds and without REG (see `add_gap`).

    The differences from the baseline are None if there is no baseline.

    Args:
        model: Name of the model.
        title: Name of the benchmark, or `mean`.
        places: Benchmarks, over which the row is averaged.
        arm: The model's cells.
        base: The baseline's cells, if there is a baseline.
        confidence: Confidence of intervals.
        typical: Typical variances of the study.

    Returns:
        The row.
    """

    def change(measure: str) -> Interval | None:
        return None if base is None else difference(arm, base, measure, places, confidence, typical or {})

    area = change("area")
    return Scores(
        model,
        title,
        None,
        share_interval({b: arm.accuracy[b] for b in places}, confidence),
        bound_interval(interval({b: arm.length[b] for b in places}, confidence), 0.0, math.inf, confidence),
        None,
        None,
        None if area is None else negate_interval(area),
        None,
        change("accuracy"),
        change("length"),
    )


def add_gap(row: Scores, gap: Interval, plain: float, base: Interval | None) -> Scores:
    """Return the row with its REG, and with the change of REG in percent of the baseline's.

    The change is None if there is no baseline, or if the interval of the baseline's REG does not exclude 0.

    Args:
        row: The row of a model.
        gap: REG against the cross-fitted frontier.
        plain: REG against the plain frontier, in tokens.
        base: REG of the baseline, if there is a baseline.

    Returns:
        The row.
    """
    percent = None if base is None or not base.excludes_zero else change_pct(gap.value, base.value)
    return replace(row, reg=gap, reg_plain=plain, change_pct=percent)


def gap_of(model: ArmCells, edges: Mapping[str, Edge], places: Sequence[str], confidence: float) -> Interval:
    """Return REG against the cross-fitted frontier, with an interval that covers the true REG.

    The cross-fitted frontier may be too low, because the chosen arm may not be the best. The frontier of the best
    measured scores is too high. The truth lies between the two, so the interval begins below the first REG and ends
    above the second, just far enough for the confidence at every value between them. A frontier that is given as
    curves is taken as exact.

    Args:
        model: The model's cells.
        edges: The frontier on each benchmark.
        places: Benchmarks, over which REG is averaged.
        confidence: Confidence of the interval.

    Returns:
        REG in tokens.

    Source: Imbens and Manski 2004.
    """
    value = mean([edges[b].area - float(model.area[b].mean()) for b in places])
    parts = {b: edge_parts for b in places if (edge_parts := edges[b].parts) is not None}
    if len(parts) < len(places):
        return round_interval(interval({b: edges[b].area - model.area[b] for b in places}, confidence))
    lower = fitted_spread(model, parts)
    upper = spread_of({b: grouped_gap(model, b, p, p.best_cells) for b, p in parts.items()})
    if lower is None or upper is None:
        return round_interval(Interval(value))
    top = mean([edges[b].best - float(model.area[b].mean()) for b in places])
    probability = one_sided(top - value, math.sqrt(lower.variance), confidence)
    below = lower.half_width(probability)
    above = max(top + upper.half_width(probability), value + below)
    return round_interval(Interval(value, value - below, above))


def round_interval(exact: Interval) -> Interval:
    """Return a REG and its interval rounded to a billionth of a token: an arm on the frontier then has exactly 0."""
    ends = (exact.value, exact.low, exact.high)
    return Interval(*(None if end is None else round(end, 9) + 0.0 for end in ends))  # type: ignore[arg-type]


def grouped_gap(model: ArmCells, benchmark: str, parts: EdgeGroups, cells: Floats) -> Floats:
    """Return a frontier's areas minus a model's areas, by seed and group of questions: [seeds, groups], in tokens.

    Args:
        model: The model's cells.
        benchmark: Name of the benchmark.
        parts: The frontier's groups.
        cells: The frontier's areas, [seeds, groups], such as `parts.cells`.
    """
    areas: Floats = sum_groups(model.area[benchmark].T, parts.groups).T
    return cells - areas / parts.sizes


def fitted_spread(model: ArmCells, parts: Mapping[str, EdgeGroups]) -> Spread | None:
    """Return the spread of REG against a cross-fitted frontier.

    Questions choose the arms of the frontier, and other questions measure these arms. A variance over questions with
    fixed choices is too low. The jackknife's variance, with new choices after each group is left out, is too high (Efron
    and Stein 1981). So the mean of the two is used.

    Args:
        model: The model's cells.
        parts: The frontier's groups by benchmark.

    Returns:
        The spread; None if a benchmark has a single group of questions.
    """
    import numpy as np

    fixed = spread_of({b: grouped_gap(model, b, p, p.cells) for b, p in parts.items()})
    if fixed is None:
        return None
    variances = []
    for b, p in parts.items():
        areas = model.area[b].mean(axis=0)
        rest = (areas.sum() - sum_groups(areas, p.groups)) / (p.sizes.sum() - p.sizes)
        gaps = p.without - rest
        count = len(p.sizes)
        variance = (count - 1) / count * float(np.square(gaps - gaps.mean()).sum())
        variances.append((variance / len(parts) ** 2, count - 1))
    jackknifed, df = sum_variances(variances)
    return replace(fixed, questions=(fixed.questions + jackknifed) / 2, question_df=df)


def one_sided(gap: float, error: float, confidence: float) -> float:
    """Return the probability of the normal quantile by which an interval extends beyond two estimates.

    The truth lies between the estimates. The interval begins this quantile times `error` below the lower estimate, and
    ends as far above the higher. If the estimates are equal, the truth may lie beyond either end; if they are far apart,
    beyond only one of them.

    Args:
        gap: The distance between the estimates.
        error: The standard error of each estimate.
        confidence: Confidence of the interval.

    Returns:
        A probability, from `confidence` to (1 + confidence) / 2.
    """
    normal = NormalDist()
    if gap <= 0:
        return (1 + confidence) / 2
    if error == 0:
        return confidence
    low, high = normal.inv_cdf(confidence), normal.inv_cdf((1 + confidence) / 2)
    for _ in range(60):
        middle = (low + high) / 2
        if normal.cdf(middle + gap / error) - normal.cdf(-middle) < confidence:
            low = middle
        else:
            high = middle
    return normal.cdf((low + high) / 2)


def score_seed(
    row: Scores,
    benchmarks: Sequence[str],
    models: Mapping[str, ArmCells],
    relative_to: str | None,
    edges: Mapping[str, Edge],
    index: int,
    seed: int,
) -> Scores:
    """Return the row of a single seed, without intervals.

    REG is against the study's cross-fitted frontier, and plain REG against the best measured scores of this seed. Values
    that the row over all seeds lacks are None.

    Args:
        row: The row over all seeds.
        benchmarks: Names of all benchmarks.
        models: The models' cells.
        relative_to: The baseline, if there is one.
        edges: The frontier on each benchmark.
        index: Index of the seed in the cells.
        seed: The seed.
    """
    model, base = models[row.model], None if relative_to is None else models[relative_to]
    places = benchmarks if row.benchmark == MEAN else (row.benchmark,)

    def value(cells: Cells) -> float:
        """Return the seed's mean of some cells over questions and benchmarks."""
        return mean([float(cells[b][index].mean()) for b in places])

    def change(measure: str) -> Interval | None:
        """Return the seed's difference of a measure from the baseline."""
        return (
            None if base is None else Interval(value(getattr(model, measure)) - value(getattr(base, measure)))
        )

    under = value(model.area)
    best = mean([edges[b].plain[index] if edges[b].plain else edges[b].area for b in places])
    base_gap = None if base is None else mean([edges[b].area for b in places]) - value(base.area)
    gap = mean([edges[b].area for b in places]) - under
    scored = row.reg is not None
    return Scores(
        row.model,
        row.benchmark,
        seed,
        Interval(value(model.accuracy)),
        Interval(value(model.length)),
        Interval(gap) if scored else None,
        best - under if scored else None,
        Interval(gap - base_gap) if base_gap is not None else None,
        None if row.change_pct is None or base_gap is None else change_pct(gap, base_gap),
        change("accuracy"),
        change("length"),
    )


def mean(values: Sequence[float]) -> float:
    """Return the mean of numbers, exactly summed."""
    return math.fsum(values) / len(values)


def interval(cells: Cells, confidence: float) -> Interval:
    """Return a mean over benchmarks, seeds and questions with its interval.

    Args:
        cells: Values by benchmark, each [seeds, questions].
        confidence: Confidence of the interval.

    Returns:
        In the cells' unit; the value has no interval if a benchmark has a single question.
    """
    return interval_of(cells, spread_of(cells), confidence)


def interval_of(cells: Cells, spread: Spread | None, confidence: float) -> Interval:
    """Return a mean over benchmarks, seeds and questions with its interval, given the mean's spread.

    Args:
        cells: Values by benchmark, each [seeds, questions].
        spread: The spread of the mean; None if the cells show none.
        confidence: Confidence of the interval.

    Returns:
        The cells' unit; a value without an interval if the spread is None.
    """
    value = mean([float(c.mean()) for c in cells.values()])
    if spread is None:
        return Interval(value)
    reach = spread.half_width((1 + confidence) / 2)
    return Interval(value, value - reach, value + reach)


def share_interval(cells: Cells, confidence: float) -> Interval:
    """Return a mean share over benchmarks, seeds and questions with its interval, which stays within 0 to 1.

    Args:
        cells: Shares by benchmark, each [seeds, questions].
        confidence: Confidence of the interval.

    Returns:
        The share; without an interval if a benchmark has a single question.
    """
    spread = spread_of(cells)
    plain = interval_of(cells, spread, confidence)
    return bound_interval(plain, 0.0, 1.0, confidence, spread, count_questions(cells))


def negate_interval(positive: Interval) -> Interval:
    """Return the interval of the negated value, with the same p-value.

    A difference of REG is the negated difference of areas under curves.
    """
    if positive.low is None or positive.high is None:
        return Interval(0.0 - positive.value)
    return replace(positive, value=0.0 - positive.value, low=0.0 - positive.high, high=0.0 - positive.low)


def bound_interval(
    plain: Interval,
    low: float,
    high: float,
    confidence: float,
    spread: Spread | None = None,
    questions: float | None = None,
) -> Interval:
    """Return an interval that stays within the range of possible values, `low` to `high`.

    With `spread` and `questions`, the mean is rescaled to a share from 0 to 1, and the interval is that of `share_ends`.
    Without them, or with an infinite range, the ends of the interval are clipped to the range.

    Args:
        plain: The interval without regard to the range.
        low: The smallest possible value.
        high: The largest possible value.
        confidence: Confidence of the interval.
        spread: Spread of the mean, if Wilson's interval is wanted.
        questions: Effective number of questions, as of `count_questions`.

    Returns:
        The interval within the range.

    Source: Wilson 1927.
    """
    if plain.low is None or plain.high is None:
        return plain
    if spread is None or questions is None or questions < 2 or not math.isfinite(high - low):
        return Interval(plain.value, max(plain.low, low), min(plain.high, high))
    share = min(max((plain.value - low) / (high - low), 0.0), 1.0)
    first, last = share_ends(share, spread, high - low, questions, confidence)
    return Interval(
        plain.value, min(low + (high - low) * first, plain.value), max(low + (high - low) * last, plain.value)
    )


def share_ends(
    share: float, spread: Spread, scale: float, questions: float, confidence: float
) -> tuple[float, float]:
    """Return the ends of a share's interval by Wilson's method, which does not leave 0 to 1.

    The interval has two equal tails. With several seeds, an end near 0 or 1 uses instead a single tail with almost the
    complete error rate, because nearly all uncertainty lies on the other side of the share. An upper end counts as near
    1 if it is above the local `full`: at a true share of `full`, all independent questions are right with the
    probability of one equal tail. With one seed the evaluation's noise is not measured, so both tails stay equal.

    Args:
        share: The share, 0 to 1.
        spread: Spread of the share times `scale`.
        scale: Factor from the share's unit to the spread's unit.
        questions: Effective number of questions.
        confidence: Confidence of the interval.

    Returns:
        Two shares, 0 to 1.
    """
    variance = share * (1 - share)

    def wilson(probability: float) -> tuple[float, float, float]:
        """Return Wilson's interval whose ends each have a one-sided probability.

        If no error is measured, because all questions have equal results, the error of independent questions is used.

        Args:
            probability: Probability below the upper end, such as 0.975.

        Returns:
            The ends, and the squared quantile over the number of independent questions with the measured error.
        """
        reach = spread.half_width(probability) / scale
        # The squared quantile over the number of independent questions that have the measured error.
        alike = reach == 0 or variance == 0
        worth = t_quantile(probability, questions - 1) ** 2 / questions if alike else reach**2 / variance
        middle = (share + worth / 2) / (1 + worth)
        half = math.sqrt(worth * variance + worth**2 / 4) / (1 + worth)
        return max(middle - half, 0.0), min(middle + half, 1.0), worth

    tail = (1 - confidence) / 2
    first, last, _ = wilson(1 - tail)
    if spread.rest == 0:
        return first, last
    one_tail = 1 - ONE_TAIL_SHARE * (1 - confidence)
    lower, upper, worth = wilson(one_tail)
    # From this share on, as many independent questions are all right with the probability of a tail, or a higher one.
    full = tail ** (worth / NormalDist().inv_cdf(one_tail) ** 2)
    return max(first, min(lower, 1 - full)), min(last, max(upper, full))


def subtract_intervals(first: Interval, second: Interval, correlation: float) -> Interval:
    """Return the difference of two means with its interval, from the intervals of the means.

    If both intervals respect a range of possible values, the interval of the difference does too.

    Args:
        first: The mean.
        second: The mean that is subtracted.
        correlation: The correlation of the two means.

    Returns:
        The difference; without an interval if a mean has no interval.

    Source: Zou and Donner 2008.
    """
    value = first.value - second.value
    if first.low is None or first.high is None or second.low is None or second.high is None:
        return Interval(value)

    def reach(a: float, b: float) -> float:
        """Return the distance from the difference to an end of its interval.

        Args:
            a: Distance from the first mean to the end of its interval on the same side.
            b: Distance from the second mean to the end of its interval on the opposite side.
        """
        return math.sqrt(max(a * a - 2 * correlation * a * b + b * b, 0.0))

    below = reach(first.value - first.low, second.high - second.value)
    above = reach(first.high - first.value, second.value - second.low)
    return Interval(value, value - below, value + above)


def count_questions(cells: Cells) -> float:
    """Return the effective number of questions of a mean over benchmarks.

    It is the number of questions if all benchmarks have equally many, else less.

    Returns:
        A number of questions.
    """
    return len(cells) ** 2 / math.fsum(1 / c.shape[1] for c in cells.values())


def fixed_areas(frontier: Curves, points: Sequence[int], benchmarks: Sequence[str]) -> dict[str, float]:
    """Return the area under given frontier curves, for each benchmark of an evaluation.

    If the frontier is a single curve that is a mean over benchmarks, its area is returned for every benchmark.

    Args:
        frontier: The frontier's curves.
        points: The points of integration, in tokens.
        benchmarks: Benchmarks of the evaluation.

    Returns:
        Accuracy times tokens.
    """

    def size(curve: Curve, whose: str) -> float:
        """Return the area under a curve, in tokens; `whose` names the curve in messages."""
        check_cover(curve, points, whose)
        return reg(curve, Curve((points[0], points[-1]), (0.0, 0.0)), grid=points)

    if mean_only(frontier) and set(frontier) != set(benchmarks):
        return dict.fromkeys(benchmarks, size(next(iter(frontier.values())), "the frontier"))
    same_benchmarks(
        dict.fromkeys(benchmarks, Curve((0,), (0.0,))), frontier, "the evaluation", "the frontier"
    )
    return {b: size(frontier[b], f"the frontier on {b}") for b in benchmarks}


def column_weights(budgets: Sequence[int], points: Sequence[int]) -> Floats:
    """Return the weight of each evaluated budget in the trapezoid integral over points.

    The score is linear between budgets, so a point between two budgets adds to the weights of both.

    Args:
        budgets: The evaluated budgets, in tokens.
        points: The points of integration, in tokens.

    Returns:
        Tokens for each budget.
    """
    import numpy as np

    weights = np.array(trapezoid_weights(points))
    hats = [np.interp(points, budgets, row) for row in np.eye(len(budgets))]
    return np.array([weights @ hat for hat in hats])
