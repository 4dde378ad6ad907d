"""REG: the gap between a frontier and a curve, integrated over budgets; and the probabilities of its tests."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from statistics import NormalDist
from typing import Any

from reodsl.diagnostics import Diagnostic, Problem, error, problem
from reodsl.numbers.budgets import MOST_TOKENS
from reodsl.numbers.curves import (
    Curve,
    Curves,
    average,
    check_benchmarks,
    check_cover,
    common_kind,
    mean_only,
    named_curves,
    same_benchmarks,
)

NORMAL_DF = 1e9
"""Degrees of freedom above which Student's t is the normal distribution, to nine digits."""

_STEPS = 200
"""The most Newton steps and terms of a continued fraction; both converge much earlier."""


@lru_cache(maxsize=4096)
def t_quantile(probability: float, df: float) -> float:
    """Return the quantile of Student's t distribution, accurate to rounding, by Newton's method.

    Args:
        probability: The probability below the quantile, in (0, 1).
        df: Degrees of freedom, above 0.

    Returns:
        The quantile.
    """
    if df > NORMAL_DF:
        return NormalDist().inv_cdf(probability)
    if probability < 0.5:
        return -t_quantile(1 - probability, df)
    # Cornish and Fisher's expansion is close for many degrees of freedom. A first Newton step from above the quantile ends
    # below it, because the density falls; all further steps rise towards the quantile without passing it.
    normal = NormalDist().inv_cdf(probability)
    terms = (normal**3 + normal) / 4, (5 * normal**5 + 16 * normal**3 + 3 * normal) / 96
    t = normal + terms[0] / df + terms[1] / df**2
    front = math.exp(math.lgamma((df + 1) / 2) - math.lgamma(df / 2)) / math.sqrt(df * math.pi)
    for number in range(_STEPS):
        density = front * math.exp(-(df + 1) / 2 * math.log1p(t * t / df))
        step = (probability - t_probability(t, df)) / density
        t = max(t + (step if number == 0 else max(step, 0.0)), normal)
        if number > 0 and step <= 1e-14 * t:
            break
    return t


def t_probability(t: float, df: float) -> float:
    """Return the probability that Student's t is below `t`: 1 - I(df / (df + t^2); df/2, 1/2) / 2.

    Args:
        t: 0 or more.
        df: Degrees of freedom, above 0.

    Returns:
        A probability, 0.5 to 1.
    """
    return NormalDist().cdf(t) if df > NORMAL_DF else 1 - incomplete_beta(df / (df + t * t), df / 2, 0.5) / 2


def incomplete_beta(x: float, a: float, b: float) -> float:
    """Compute the regularised incomplete beta function I(x; a, b) by its continued fraction.

    Args:
        x: The argument; I is 0 below 0 and 1 above 1.
        a: The first parameter, above 0.
        b: The second parameter, above 0.

    Returns:
        A probability, 0 to 1.

    Source: DLMF 8.17.22, by Lentz's algorithm.
    """
    if x <= 0 or x >= 1:
        return float(x >= 1)
    front = math.exp(
        math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b) + a * math.log(x) + b * math.log1p(-x)
    )
    if x > (a + 1) / (a + b + 2):
        return 1 - front / b * _fraction(1 - x, b, a)
    return front / a * _fraction(x, a, b)


def _fraction(x: float, a: float, b: float) -> float:
    """Return the continued fraction of the incomplete beta function I(x; a, b), by Lentz's algorithm.

    `incomplete_beta` multiplies it by the function's prefactor. It converges quickly for x up to (a + 1) / (a + b + 2).
    """
    tiny = 1e-300
    c, d = 1.0, 1 / _replace_tiny(1 - (a + b) * x / (a + 1), tiny)
    value = d
    for m in range(1, _STEPS):
        for term in (
            m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m)),
            -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1)),
        ):
            d = 1 / _replace_tiny(1 + term * d, tiny)
            c = _replace_tiny(1 + term / c, tiny)
            value *= c * d
        if abs(c * d - 1) < 1e-16:
            break
    return value


def _replace_tiny(value: float, tiny: float) -> float:
    """Return the value, or `tiny` if the value is too small to divide by, as Lentz's algorithm requires."""
    return value if abs(value) > tiny else tiny


def holm(p_values: Sequence[float]) -> list[float]:
    """Return p-values corrected by Holm's step-down method, in the given order.

    Returns:
        Probabilities, 0 to 1.

    Source: Holm 1979.
    """
    order = sorted(range(len(p_values)), key=lambda index: p_values[index])
    adjusted = [0.0] * len(p_values)
    largest = 0.0
    for rank, index in enumerate(order):
        largest = max(largest, min(1.0, (len(p_values) - rank) * p_values[index]))
        adjusted[index] = largest
    return adjusted


REG_TO = 16 * 1024
FINE, COARSE = 64, 1024


def paper_grid(l_max: int = REG_TO) -> tuple[int, ...]:
    """Return the paper's grid `{64 i, 0 ≤ i < 16} ∪ {1024 i, i ≥ 1}` up to `l_max` tokens.

    `l_max` is always the last point. The paper's own grid ("Evaluating Reasoning Efficiency Gap") ends at 16K; above,
    multiples of 1024 continue.
    """
    check_end(l_max)
    points = {*range(0, min(COARSE, l_max), FINE), *range(COARSE, l_max, COARSE), l_max}
    return tuple(sorted(points))


def integration_grid(l_max: int | None = None, grid: Sequence[int] | None = None) -> tuple[int, ...]:
    """Return the points of integration in tokens: `grid` up to `l_max`, or the paper's grid if `grid` is None.

    `l_max` itself is always the last point, even if it is not in `grid`.

    Args:
        l_max: The last point. None stands for the end of `grid`, or for 16K in the paper's grid.
        grid: Budgets in tokens.

    Raises:
        Problem: E0404 for a grid that does not increase, has fewer than two points, or ends before `l_max`.
    """
    if grid is None:
        return paper_grid(REG_TO if l_max is None else l_max)
    for before, after in itertools.pairwise(grid):
        if after <= before:
            raise problem(
                "E0404",
                f"the grid must increase, and {after} follows {before}",
                help="write it from the smallest to the largest budget, each once",
            )
    if not grid or grid[0] < 0 or grid[-1] > MOST_TOKENS:
        ends = f"runs from {grid[0]} to {grid[-1]} tokens" if grid else "is empty"
        raise problem("E0404", f"the grid {ends}", help=f"give budgets from 0 to {MOST_TOKENS} tokens")
    end = grid[-1] if l_max is None else l_max
    check_end(end)
    if grid[-1] < end:
        raise problem(
            "E0404",
            f"the grid stops at {grid[-1]} tokens, before {end}",
            help=f"let it reach {end}, or integrate to {grid[-1]}",
        )
    points = (*(point for point in grid if point < end), end)
    if len(points) < 2:
        raise problem(
            "E0404",
            f"the grid has no point below {end} tokens",
            help="start it at 0: an integral needs two points",
        )
    return points


def trapezoid_weights(points: Sequence[int]) -> tuple[float, ...]:
    """Return the weight of each point in the trapezoid integral over points.

    Args:
        points: The points of integration, in tokens.

    Returns:
        Weights in tokens.
    """
    widths = [b - a for a, b in itertools.pairwise(points)]
    return tuple((a + b) / 2 for a, b in zip([0, *widths], [*widths, 0], strict=True))


def check_end(l_max: int) -> None:
    """Check that the end of integration is from 1 to `MOST_TOKENS` tokens (E0404)."""
    if not 1 <= l_max <= MOST_TOKENS:
        raise problem(
            "E0404",
            f"REG is integrated to {l_max} tokens",
            help=f"integrate to 1 to {MOST_TOKENS} tokens; the paper goes to 16384",
        )


__all__ = ["MEAN", "RegRow", "RegTable", "change_pct", "paper_grid", "reg", "reg_table"]

MEAN = "mean"


@dataclass(frozen=True, slots=True)
class RegRow:
    """REG of a model on a benchmark, or on the `mean` over benchmarks, in tokens.

    An `ended` curve has only two bounds of REG, `between`. For other kinds of curves `reg` is the gap between the curves,
    which is not REG. `difference` is REG minus the REG of the table's `relative_to`. `change_pct` is the difference in
    percent of the size of that REG, None if its 95% interval contains 0 or is unknown.
    """

    model: str
    benchmark: str
    reg: float | None
    difference: float | None = None
    change_pct: float | None = None
    between: tuple[float, float] | None = None


@dataclass(frozen=True, slots=True)
class RegTable:
    """REG of every model: `rows` by model, benchmarks in the frontier's order and then `mean`; `grid` in tokens.

    `kind` is the kind of the models' curves.
    """

    rows: tuple[RegRow, ...]
    grid: tuple[int, ...]
    relative_to: str | None = None
    kind: str = "J"

    def __getitem__(self, key: tuple[str, str]) -> RegRow:
        """Return the row of a model and a benchmark (or `mean`)."""
        return next(row for row in self.rows if (row.model, row.benchmark) == key)

    def nested(self, field: str = "reg") -> dict[str, dict[str, Any]]:
        """Return `{model: {benchmark: REG, …, "mean": REG}}`, or the same of another field.

        Args:
            field: A field of `RegRow`.
        """
        out: dict[str, dict[str, Any]] = {}
        for row in self.rows:
            out.setdefault(row.model, {})[row.benchmark] = getattr(row, field)
        return out


def reg(frontier: Curve, curve: Curve, l_max: int | None = None, grid: Sequence[int] | None = None) -> float:
    """Integrate (frontier - J) over the grid up to `l_max` by trapezoids; the result keeps its sign.

    A curve that beats the frontier has a negative REG. Both curves are linear between their points.

    Args:
        frontier: The frontier's curve.
        curve: The model's curve, J.
        l_max: The end of integration in tokens; None for 16K.
        grid: The points of integration; None for the paper's grid.

    Returns:
        REG in tokens.

    Raises:
        Problem: E0424 for a curve that does not cover the grid, E0435 for curves of different kinds.
    """
    points = integration_grid(l_max, grid)
    common_kind([("the frontier", frontier), ("the curve", curve)])
    check_cover(frontier, points, "the frontier")
    check_cover(curve, points, "the curve")
    weights = trapezoid_weights(points)
    return math.fsum(w * (frontier.at(p) - curve.at(p)) for w, p in zip(weights, points, strict=True))


def reg_table(
    frontier: Curves,
    models: Mapping[str, Curves],
    l_max: int | None = None,
    grid: Sequence[int] | None = None,
    relative_to: str | None = None,
    questions: int | None = None,
) -> RegTable:
    """Return REG of each model on each benchmark and on their mean, with differences from a baseline if one is given.

    A published frontier may be a single curve, a mean over benchmarks. It is then compared with the mean of the model's
    curves, whose REG equals the mean REG. Models with `ended` curves have two bounds of REG and no differences.

    Args:
        frontier: The frontier's curve on each benchmark.
        models: The curves of each model, on exactly the frontier's benchmarks.
        l_max: The end of integration in tokens; None for 16K.
        grid: The points of integration; None for the paper's grid.
        relative_to: The baseline, if changes are wanted.
        questions: The least number of questions of a benchmark. Without it no change in percent is given.

    Raises:
        Problem: E0114 for an unknown baseline, E0421 without models, E0424, E0425 or E0435 if curves cannot be compared.
    """
    points = integration_grid(l_max, grid)
    check_benchmarks(frontier, "the frontier")
    if not models:
        raise problem("E0421", "there are no models to score", help="give the curves of at least one")
    if relative_to is not None and relative_to not in models:
        raise Problem(unknown_model(relative_to, models))
    kind = common_kind(named_curves(models))
    if kind == "ended" and (relative_to is not None or common_kind(frontier.items()) != "J"):
        raise problem(
            "E0435",
            "a gap or a difference between `ended` curves is not REG and does not bound REG",
            help="use a frontier of the kind `J` and no baseline, which gives a lower and an upper bound of REG",
        )
    values: dict[str, dict[str, float]] = {}
    between: dict[str, dict[str, tuple[float, float]]] = {}
    for name, curves in models.items():
        check_benchmarks(curves, name)
        covered = comparable(frontier, curves)
        same_benchmarks(covered, frontier, f"`{name}`", "the frontier")
        for benchmark in frontier:
            check_cover(frontier[benchmark], points, f"the frontier on {benchmark}")
            check_cover(covered[benchmark], points, f"`{name}` on {benchmark}")
        if kind == "ended":
            ends = [bound_reg(frontier[benchmark], covered[benchmark], points) for benchmark in frontier]
            low, high = (math.fsum(column) / len(ends) for column in zip(*ends, strict=True))
            between[name] = {**dict(zip(frontier, ends, strict=True)), MEAN: (low, high)}
            continue
        gaps = {
            benchmark: reg(frontier[benchmark], covered[benchmark], grid=points) for benchmark in frontier
        }
        values[name] = {**gaps, MEAN: math.fsum(gaps.values()) / len(gaps)}
    base = None if relative_to is None else values[relative_to]
    rows = [
        RegRow(name, benchmark, value)
        if base is None or relative_to is None
        else RegRow(
            name,
            benchmark,
            value,
            value - base[benchmark],
            change_pct(value, base[benchmark])
            if excludes_zero(base[benchmark], models[relative_to], benchmark, points, questions)
            else None,
        )
        for name, gaps in values.items()
        for benchmark, value in gaps.items()
    ]
    rows += [
        RegRow(name, benchmark, None, between=ends)
        for name, column in between.items()
        for benchmark, ends in column.items()
    ]
    return RegTable(tuple(rows), points, relative_to, kind)


def bound_reg(frontier: Curve, curve: Curve, points: Sequence[int]) -> tuple[float, float]:
    """Return bounds of REG from a curve that counts only responses that ended within the budget.

    A response that has ended needs no forced answer, so its verdict is known. A forced answer to any other response may
    be right or wrong. So the lower bound takes an accuracy of 1 at every budget, and the upper bound this curve.

    Args:
        frontier: The frontier's curve.
        curve: The curve of ended responses.
        points: The points of integration, in tokens.

    Returns:
        The lower and the upper bound in tokens.
    """
    most = Curve((points[0], points[-1]), (1.0, 1.0))
    return reg(frontier, most, grid=points), reg(frontier, replace(curve, kind="J"), grid=points)


def excludes_zero(
    value: float, curves: Curves, benchmark: str, points: Sequence[int], questions: int | None
) -> bool:
    """Return whether a 95% interval of a REG excludes 0; False with an unknown number of questions or fewer than two.

    Curves do not say how a question's scores at different budgets are correlated. The standard error therefore assumes
    a perfect correlation, which gives the largest possible error. The frontier is taken as exact.

    Args:
        value: The REG, in tokens.
        curves: The model's curves.
        benchmark: The benchmark of the REG, or `mean`.
        points: The points of integration, in tokens.
        questions: The number of questions over which a benchmark's curve is a mean.
    """
    if questions is None or questions < 2:
        return False
    measured = [curves[benchmark]] if benchmark in curves else list(curves.values())
    weights = trapezoid_weights(points)
    variance = 0.0
    for curve in measured:
        scores = [curve.at(point) for point in points]
        error = math.fsum(
            w * math.sqrt(p * (1 - p) / questions) for w, p in zip(weights, scores, strict=True)
        )
        variance += (error / len(measured)) ** 2
    return abs(value) > t_quantile(0.975, questions - 1) * math.sqrt(variance)


def change_pct(value: float, base: float) -> float | None:
    """Return the change from a baseline's REG in percent of the size of that REG; None if that REG is 0.

    Args:
        value: REG.
        base: REG of the baseline.

    Returns:
        Percent, positive if REG grew.
    """
    return None if base == 0 else 100 * (value - base) / abs(base)


def comparable(frontier: Curves, curves: Curves) -> Curves:
    """Return a model's curves in the frontier's form: the mean curve if the frontier is a mean, else all curves."""
    if mean_only(frontier) and set(curves) != set(frontier):
        return {next(iter(frontier)): average(curves)}
    return curves


def unknown_model(name: str, models: Mapping[str, object]) -> Diagnostic:
    """Return E0114 for a baseline that is not among the models.

    Args:
        name: The name of the baseline.
        models: A mapping whose keys are the models' names; its values are not used.
    """
    return error(
        "E0114",
        f"there is no model `{name}` to compare with",
        notes=[f"there is {', '.join(f'`{model}`' for model in models)}"],
        help="take one of these as the baseline",
    )
