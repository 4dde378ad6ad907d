"""REG: a frontier and models' curves to the signed area between them, per model and benchmark, and the mean."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from reodsl.diagnostics import Diagnostic, Problem, error, problem
from reodsl.numbers.curves import (
    Curve,
    Curves,
    average,
    benchmark_error,
    check_cover,
    same_benchmarks,
)
from reodsl.numbers.grid import integration_grid, paper_grid, trapezoid_weights
from reodsl.numbers.reference import mean_only
from reodsl.numbers.student import t_quantile

__all__ = ["MEAN", "RegRow", "RegTable", "change_pct", "paper_grid", "reg", "reg_table"]

MEAN = "mean"


@dataclass(frozen=True, slots=True)
class RegRow:
    """REG of a model on a benchmark, or on their `mean`, in tokens.

    `difference` is REG minus that of the table's `relative_to`, and `change_pct` that in percent of its size: None where its
    95% interval holds 0, or no interval is known.
    """

    model: str
    benchmark: str
    reg: float
    difference: float | None = None
    change_pct: float | None = None


@dataclass(frozen=True, slots=True)
class RegTable:
    """REG of every model: `rows` by model, benchmarks in the frontier's order and then `mean`; `grid` in tokens."""

    rows: tuple[RegRow, ...]
    grid: tuple[int, ...]
    relative_to: str | None = None

    def __getitem__(self, key: tuple[str, str]) -> RegRow:
        """The row of a model and benchmark (or `mean`)."""
        return next(row for row in self.rows if (row.model, row.benchmark) == key)

    def nested(self) -> dict[str, dict[str, float]]:
        """`{model: {benchmark: REG, …, "mean": REG}}`."""
        out: dict[str, dict[str, float]] = {}
        for row in self.rows:
            out.setdefault(row.model, {})[row.benchmark] = row.reg
        return out


def reg(frontier: Curve, curve: Curve, l_max: int | None = None, grid: Sequence[int] | None = None) -> float:
    """The trapezoid integral of (frontier - J) over the grid up to `l_max` (16K), in tokens: signed, never clipped.

    A curve that beats the frontier has a negative REG. Both curves are linear between their points and must cover
    the grid; one that does not is a `Problem`.
    """
    points = integration_grid(l_max, grid)
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
    """REG of each model on each benchmark of the frontier, the mean over them, and changes from `relative_to`.

    `questions` is how many a benchmark's curve is a mean over, at least; changes in percent need it. A model has exactly
    the frontier's benchmarks. A frontier that is one mean curve (as the published ones, "Average") is compared with the
    mean of the model's curves, which has the same REG as the mean over benchmarks.
    """
    points = integration_grid(l_max, grid)
    bad = benchmark_error(frontier, "the frontier")
    if bad is not None:
        raise Problem(bad)
    if not models:
        raise problem("E0421", "there are no models to score", help="give the curves of at least one")
    if relative_to is not None and relative_to not in models:
        raise Problem(unknown_model(relative_to, models))
    values: dict[str, dict[str, float]] = {}
    for name, curves in models.items():
        bad = benchmark_error(curves, name)
        if bad is not None:
            raise Problem(bad)
        covered = comparable(frontier, curves)
        same_benchmarks(covered, frontier, f"`{name}`", "the frontier")
        for benchmark in frontier:
            check_cover(frontier[benchmark], points, f"the frontier on {benchmark}")
            check_cover(covered[benchmark], points, f"`{name}` on {benchmark}")
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
            if apart(base[benchmark], models[relative_to], benchmark, points, questions)
            else None,
        )
        for name, gaps in values.items()
        for benchmark, value in gaps.items()
    ]
    return RegTable(tuple(rows), points, relative_to)


def apart(value: float, curves: Curves, benchmark: str, points: Sequence[int], questions: int | None) -> bool:
    """Whether a 95% interval of a REG leaves out 0, where a benchmark's curve is a mean over so many questions.

    Curves do not say how a question's scores at several budgets go together. The standard error is that of questions which
    are right at all budgets or at none, as far as the curve allows: no other is larger. The frontier is taken as it is.
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
    """The change from a baseline's REG in percent of its size, positive where REG grew; None where the base is 0."""
    return None if base == 0 else 100 * (value - base) / abs(base)


def comparable(frontier: Curves, curves: Curves) -> Curves:
    """A model's curves as the frontier has them: their mean where the frontier is one, else as they are."""
    if mean_only(frontier) and set(curves) != set(frontier):
        return {next(iter(frontier)): average(curves)}
    return curves


def unknown_model(name: str, models: Mapping[str, object]) -> Diagnostic:
    """The finding that a baseline is none of the models."""
    return error(
        "E0428",
        f"there is no model `{name}` to compare with",
        notes=[f"there is {', '.join(f'`{model}`' for model in models)}"],
        help="take one of these as the baseline",
    )
