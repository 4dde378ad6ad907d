"""Frontiers: from several models' curves to the best accuracy at each benchmark and budget, and who reaches it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from reodsl.diagnostics import Problem, problem
from reodsl.numbers.curves import Curve, Curves, benchmark_error, same_benchmarks, shown


@dataclass(frozen=True, slots=True)
class Winner:
    """Who is best at a benchmark and budget: several models where they tie, in the order they were given."""

    benchmark: str
    budget: int
    accuracy: float
    models: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Envelope:
    """A frontier as `curves` by benchmark, with the models that reach it at every point."""

    curves: dict[str, Curve]
    winners: tuple[Winner, ...]


def envelope(models: Mapping[str, Curves], to: int | None = None) -> Envelope:
    """The paper's frontier: per benchmark and budget, the best J over the models. `to` (tokens) drops what lies past.

    All models must have the same benchmarks on the same budgets: a best over unequal grids would mix measured
    with interpolated values. Anything else is a `Problem`.
    """
    if not models:
        raise problem("E0421", "a frontier over no model", help="name at least one")
    first, reference = next(iter(models.items()))
    bad = benchmark_error(reference, first)
    if bad is not None:
        raise Problem(bad)
    for name, curves in models.items():
        same_benchmarks(curves, reference, name, first)
        for benchmark, curve in curves.items():
            same_grid(curve, reference[benchmark], f"`{name}`", f"`{first}`", benchmark)
    best: dict[str, Curve] = {}
    winners: list[Winner] = []
    for benchmark, shape in reference.items():
        kept = [k for k, budget in enumerate(shape.budgets) if to is None or budget <= to]
        if not kept or (to is not None and shape.budgets[-1] < to):
            raise problem(
                "E0424",
                f"a frontier up to {to} tokens over curves from {shape.budgets[0]} to {shape.budgets[-1]} tokens",
                where=benchmark,
                help="evaluate further, or stop the frontier where the curves do",
            )
        top = []
        for k in kept:
            value = max(curves[benchmark].accuracy[k] for curves in models.values())
            at = tuple(name for name, curves in models.items() if curves[benchmark].accuracy[k] == value)
            winners.append(Winner(benchmark, shape.budgets[k], value, at))
            top.append(value)
        best[benchmark] = Curve(tuple(shape.budgets[k] for k in kept), tuple(top))
    return Envelope(best, tuple(winners))


def same_grid(curve: Curve, other: Curve, whose: str, against: str, benchmark: str) -> None:
    """Whether two curves were measured at the same budgets."""
    if curve.budgets == other.budgets:
        return
    only = sorted(set(curve.budgets) - set(other.budgets))
    lacking = sorted(set(other.budgets) - set(curve.budgets))
    raise problem(
        "E0426",
        f"{whose} and {against} were measured at different budgets",
        where=benchmark,
        notes=[f"only {who}: {shown(at)}" for who, at in ((whose, only), (against, lacking)) if at],
        help="evaluate all models of a frontier on one grid",
    )
