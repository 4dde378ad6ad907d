"""Curves: accuracy over budgets per benchmark, and frontiers with the models that they are made from."""

from __future__ import annotations

import itertools
import json
import math
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches

from reodsl.diagnostics import Diagnostic, error, problem
from reodsl.numbers.budgets import MOST_TOKENS

MEAN_NAMES = frozenset({"average", "mean"})
KINDS = {
    "J": "answers forced at every budget",
    "ended": "only responses that ended within the budget count",
    "bare": "the last answer in the first tokens of the response, up to the budget",
    "asked": "one run for each budget",
}
"""The kinds of curves. They measure different things, and a curve without a label is `J`."""
# A mean of means may pass 1 by rounding alone.
SLACK = 1e-9


@dataclass(frozen=True, slots=True)
class Curve:
    """Accuracy over budgets, J(L): `accuracy[k]`, 0 to 1, with responses cut to `budgets[k]` tokens and answers forced.

    `kind` is another of the `KINDS` for curves that are not J. Raises `Problem` unless budgets increase from 0 or more.
    """

    budgets: tuple[int, ...]
    accuracy: tuple[float, ...]
    kind: str = "J"

    def __post_init__(self) -> None:
        """Check that the budgets and accuracies make a curve."""
        check_curve(self.budgets, self.accuracy)

    def at(self, budget: float) -> float:
        """Return J at a budget, linear between the curve's points.

        Args:
            budget: In tokens, within the curve's budgets.

        Returns:
            Accuracy, 0 to 1.

        Raises:
            Problem: E0424, the budget is outside the curve.
        """
        if not self.budgets[0] <= budget <= self.budgets[-1]:
            raise problem(
                "E0424",
                f"a curve over {span_text(self)} says nothing about {budget:g} tokens",
                help="evaluate at more budgets, or stay inside these",
            )
        k = bisect_left(self.budgets, budget)
        if self.budgets[k] == budget:
            return self.accuracy[k]
        left, right = self.budgets[k - 1], self.budgets[k]
        low, high = self.accuracy[k - 1], self.accuracy[k]
        return low + (high - low) * (budget - left) / (right - left)


Curves = Mapping[str, Curve]
"""A model's or a frontier's curves by benchmark."""


def common_kind(curves: Iterable[tuple[str, Curve]]) -> str:
    """Return the kind that all of some named curves have; `J` without curves.

    Args:
        curves: Each curve with its name in messages.

    Raises:
        Problem: E0435 for curves of two kinds.
    """
    kinds: dict[str, str] = {}
    for name, curve in curves:
        kinds.setdefault(curve.kind, name)
    if len(kinds) > 1:
        (kind, first), (other, second) = list(kinds.items())[:2]
        raise problem(
            "E0435",
            f"{first} is of the kind `{kind}`, and {second} is of the kind `{other}`",
            notes=[f"`{kind}`: {KINDS[kind]}" for kind in (kind, other)],
            help="measure both in the same way; answers that are forced at every budget give `J`",
        )
    return next(iter(kinds), "J")


def named_curves(models: Mapping[str, Curves]) -> Iterator[tuple[str, Curve]]:
    """Yield the name for messages of each curve of models, and the curve."""
    for model, curves in models.items():
        yield from ((f"`{model}` on {benchmark}", curve) for benchmark, curve in curves.items())


def average(curves: Curves) -> Curve:
    """Return the mean curve over benchmarks, at every budget that any curve has and all curves cover.

    Raises:
        Problem: E0421 without curves, E0424 if no budget is covered by all curves.
    """
    if not curves:
        raise problem("E0421", "there is no curve to average", help="give at least one benchmark")
    first = max(curve.budgets[0] for curve in curves.values())
    last = min(curve.budgets[-1] for curve in curves.values())
    if first > last:
        raise problem(
            "E0424",
            f"the curves of {', '.join(curves)} share no budgets",
            notes=[f"{name}: {span_text(curve)}" for name, curve in curves.items()],
            help="evaluate every benchmark on one grid",
        )
    budgets = sorted({b for curve in curves.values() for b in curve.budgets if first <= b <= last})
    return Curve(
        tuple(budgets),
        tuple(math.fsum(c.at(b) for c in curves.values()) / len(curves) for b in budgets),
        common_kind(curves.items()),
    )


def check_cover(curve: Curve, points: Sequence[int], whose: str) -> None:
    """Check that a curve reaches from the first to the last point of integration.

    Args:
        curve: The curve.
        points: The points of integration, in tokens.
        whose: The curve's name in messages.

    Raises:
        Problem: E0424 if the curve begins later or ends earlier.
    """
    if curve.budgets[0] <= points[0] and curve.budgets[-1] >= points[-1]:
        return
    spans = f"REG is integrated over {points[0]} to {points[-1]}"
    if len(curve.budgets) == 1:
        raise problem(
            "E0424",
            f"{whose} has one point, at {curve.budgets[0]} tokens, and {spans}",
            help=f"give budgets from {points[0]} to {points[-1]} tokens: one point has no area",
        )
    raise problem(
        "E0424",
        f"{whose} covers {span_text(curve)}, and {spans}",
        help=f"integrate to {curve.budgets[-1]} (`--l-max`), or evaluate at further budgets"
        if curve.budgets[-1] < points[-1]
        else f"evaluate at {points[0]} tokens too: REG starts there",
    )


def same_benchmarks(curves: Curves, expected: Iterable[str], whose: str, against: str) -> None:
    """Check that a model's benchmarks are exactly the expected benchmarks (E0425).

    Means over other benchmarks could not be compared.

    Args:
        curves: The model's curves.
        expected: The names of the expected benchmarks.
        whose: The model's name in messages.
        against: The name in messages of what has the expected benchmarks.
    """
    has, needs = set(curves), set(expected)
    missing, extra = sorted(needs - has), sorted(has - needs)
    if missing or extra:
        lacks = [f"lacks {', '.join(missing)}"] if missing else []
        adds = [f"has {', '.join(extra)} beside them"] if extra else []
        raise problem(
            "E0425",
            f"{whose} {' and '.join(lacks + adds)}",
            notes=[f"{against}: {', '.join(sorted(needs))}", f"{whose}: {', '.join(sorted(has)) or 'none'}"],
            help="a mean over other benchmarks is another quantity: evaluate all on the same ones",
        )


def check_benchmarks(names: Iterable[str], where: str | None = None) -> None:
    """Check the names of benchmarks.

    There must be at least one, each must have a name, and `mean` or `average` must be the only benchmark if it is
    listed.

    Args:
        names: The names of the benchmarks.
        where: The location in messages.

    Raises:
        Problem: E0421 or E0425.
    """
    names = list(names)
    if not names:
        raise problem("E0421", "there is no benchmark", where=where, help="give at least one")
    if any(not name.strip() for name in names):
        raise problem("E0421", "a benchmark has no name", where=where, help="name every benchmark")
    mean = next((name for name in names if name.lower() in MEAN_NAMES), None)
    if mean is not None and len(names) > 1:
        raise problem(
            "E0425",
            f"`{mean}` is listed beside the benchmarks that it is the mean of",
            where=where,
            help=f"leave `{mean}` out: means over benchmarks are computed",
        )


def check_curve(budgets: Sequence[object], accuracy: Sequence[object], where: str | None = None) -> None:
    """Check that budgets and accuracies make a curve.

    Args:
        budgets: Should be whole numbers of tokens that increase from 0 or more.
        accuracy: Should be as many fractions.
        where: The location in messages.

    Raises:
        Problem: E0421 for the first fault.
    """
    if not budgets:
        raise problem(
            "E0421", "a curve is empty", where=where, help="give at least one budget and its accuracy"
        )
    if len(budgets) != len(accuracy):
        raise problem(
            "E0421",
            f"a curve has {_count(budgets, 'budget', 'budgets')} and {_count(accuracy, 'accuracy', 'accuracies')}",
            where=where,
            help="give one accuracy for each budget",
        )
    before: int | None = None
    for i, budget in enumerate(budgets):
        if isinstance(budget, bool) or not isinstance(budget, int) or not 0 <= budget <= MOST_TOKENS:
            raise problem(
                "E0421",
                f"budgets[{i}] is {format_value(budget)}, which is not a number of tokens",
                where=where,
                help=f"write whole tokens from 0 to {MOST_TOKENS}",
            )
        if budget == before:
            raise problem(
                "E0421",
                f"the budget {budget} is listed twice",
                where=where,
                help="keep one accuracy for it; average over seeds or samples first",
            )
        if before is not None and budget < before:
            raise problem(
                "E0421",
                f"budgets must increase, and {budget} follows {before}",
                where=where,
                help="sort the curve by budget, with each budget once",
            )
        before = budget
    _check_accuracy(accuracy, where)


def _check_accuracy(accuracy: Sequence[object], where: str | None = None) -> None:
    """Check that all accuracies are fractions; the message for the first fault names a likely reason.

    Args:
        accuracy: Should be numbers from 0 to 1.
        where: The location in messages.
    """
    for i, value in enumerate(accuracy):
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            raise problem(
                "E0421",
                f"accuracy[{i}] is {format_value(value)}, which is not a number",
                where=where,
                help="write a fraction from 0 to 1",
            )
        if isinstance(value, float) and not math.isfinite(value):
            raise problem(
                "E0421",
                f"accuracy[{i}] is {value}",
                where=where,
                help="leave out what was not measured; a curve holds finite numbers",
            )
        if not -SLACK <= value <= 1 + SLACK:
            largest = max(v for v in accuracy if isinstance(v, (int, float)))
            percent = value > 1 and largest <= 100
            raise problem(
                "E0421",
                f"accuracy[{i}] is {f'{value:g}' if isinstance(value, float) else format_value(value)}, outside 0 to 1"
                + (": it looks like percent" if percent else ""),
                where=where,
                help="divide by 100: accuracies are fractions"
                if percent
                else "accuracies are fractions from 0 to 1",
            )


def _count(items: Sequence[object], singular: str, plural: str) -> str:
    """Return a number of items with its noun."""
    return f"{len(items)} {singular if len(items) == 1 else plural}"


def span_text(curve: Curve) -> str:
    """Return a curve's range of budgets: `0 to 32768 tokens`."""
    return f"{curve.budgets[0]} to {curve.budgets[-1]} tokens"


def format_value(value: object) -> str:
    """Return a value for a message, as in JSON if possible, in at most 40 characters."""
    text = json.dumps(value) if value is None or isinstance(value, bool) else repr(value)
    return text if len(text) <= 40 else text[:37] + "..."


@dataclass(frozen=True, slots=True)
class Winner:
    """The best models at a benchmark and budget: several where they tie, in the order they were given."""

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
    """Return the paper's frontier: on each benchmark and at each budget, the best accuracy of the models.

    All models must have the same benchmarks and budgets. With other budgets, measured values would be compared with
    interpolated values.

    Args:
        models: The curves of each model.
        to: The last budget of the frontier, in tokens; None for all budgets. Curves may not end before it.

    Raises:
        Problem: E0421, E0424, E0425 or E0435 if the curves cannot be compared.
    """
    if not models:
        raise problem("E0421", "a frontier over no model", help="name at least one")
    first, reference = next(iter(models.items()))
    check_benchmarks(reference, first)
    kind = common_kind(named_curves(models))
    for name, curves in models.items():
        same_benchmarks(curves, reference, name, first)
        for benchmark, curve in curves.items():
            same_grid(curve, reference[benchmark], f"`{name}`", f"`{first}`", benchmark)
    best: dict[str, Curve] = {}
    winners: list[Winner] = []
    for benchmark, shape in reference.items():
        indices = [k for k, budget in enumerate(shape.budgets) if to is None or budget <= to]
        if not indices or (to is not None and shape.budgets[-1] < to):
            raise problem(
                "E0424",
                f"a frontier up to {to} tokens over curves from {shape.budgets[0]} to {shape.budgets[-1]} tokens",
                where=benchmark,
                help="evaluate further, or stop the frontier where the curves do",
            )
        top = []
        for k in indices:
            value = max(curves[benchmark].accuracy[k] for curves in models.values())
            best_models = tuple(
                name for name, curves in models.items() if curves[benchmark].accuracy[k] == value
            )
            winners.append(Winner(benchmark, shape.budgets[k], value, best_models))
            top.append(value)
        best[benchmark] = Curve(tuple(shape.budgets[k] for k in indices), tuple(top), kind)
    return Envelope(best, tuple(winners))


def same_grid(curve: Curve, other: Curve, whose: str, against: str, benchmark: str) -> None:
    """Check that two curves were measured at the same budgets (E0424).

    Args:
        curve: The curve.
        other: The curve that it is compared with.
        whose: The first curve's name in messages.
        against: The other curve's name in messages.
        benchmark: The benchmark, for messages.
    """
    if curve.budgets == other.budgets:
        return
    only = sorted(set(curve.budgets) - set(other.budgets))
    lacking = sorted(set(other.budgets) - set(curve.budgets))
    raise problem(
        "E0424",
        f"{whose} and {against} were measured at different budgets",
        where=benchmark,
        notes=[
            f"only {who}: {format_value(budgets)}"
            for who, budgets in ((whose, only), (against, lacking))
            if budgets
        ],
        help="evaluate all models of a frontier on one grid",
    )


SPAN_PARTS = 16
"""The reciprocal of the largest allowed gap between two points of a curve, as a share of the range of REG: 1/16.

It is the coarse step of the paper's grid at 16K. If the 16 published curves and their means are thinned to this gap, REG
changes by at most 65 tokens of 16K (0.4%), and 239 of 32K (0.7%). Twice the gap changes it by up to 239 and 755 tokens, and
only two end points by 4,978 and more, while published methods differ by hundreds of tokens.
"""


@dataclass(frozen=True, slots=True)
class ReferenceFrontier:
    """A frontier: the curve of each benchmark, and `base`, the models that all models of the frontier were trained from."""

    curves: Curves
    base: tuple[str, ...] = ()


def same_model(first: str, other: str) -> bool:
    """Return whether two names mean the same model.

    A name without an owner, such as `Qwen3-4B`, matches the name with any owner, such as `Qwen/Qwen3-4B`.
    """
    short = first if "/" not in first else other
    return first == other or (
        "/" not in short and {first.rpartition("/")[2], other.rpartition("/")[2]} == {short}
    )


def check_base(
    reference: ReferenceFrontier, base: Sequence[str], go_back: str, name: str = "FILE"
) -> Diagnostic | None:
    """Return E0433 if the base models of some curves are not among the base models of the frontier; else None.

    It is also returned if the base models of the frontier or of the curves are unknown.

    Args:
        reference: The frontier.
        base: The models that the curves' models were trained from; empty if unknown.
        go_back: Subject and verb of the message, such as `these curves go back`.
        name: The frontier's file in messages.
    """
    theirs = ", ".join(reference.base)
    if not reference.base:
        model = base[0] if base else "MODEL"
        return error(
            "E0433",
            "nothing says which model the frontier is of",
            help=f"write it anew with its model: `reodsl frontier {name} --base {model} -o edge.json`",
        )
    if not base:
        return error(
            "E0433",
            f"nothing says to which model {go_back}, and the frontier is of {theirs}",
            help=f"add `--base {reference.base[0]}` if that is the model",
        )
    wrong = [name_ for name_ in base if not any(same_model(name_, model_) for model_ in reference.base)]
    if not wrong:
        return None
    return error(
        "E0433",
        f"the frontier is of {theirs}, and {go_back} to {', '.join(wrong)}",
        help=f'name it `hub("{reference.base[0]}")`, which a local mirror serves, if the folder is a copy of that; if it was'
        " made from that, give the model a `base`"
        if wrong[0].startswith("folder(")
        else f"take a frontier of {wrong[0]}",
    )


def of_other_benchmarks(frontier: Curves, names: Iterable[str], whose: str) -> Diagnostic | None:
    """Return E0425 if a model's benchmarks are not exactly the frontier's; else None.

    The advice names benchmarks that may be the same under another spelling.

    Args:
        frontier: The frontier's curves.
        names: The model's benchmarks.
        whose: The model's name in messages.
    """
    has = list(names)
    missing = [name for name in frontier if name not in has]
    extra = [name for name in has if name not in frontier]
    if not missing and not extra:
        return None
    notes = [f"the frontier: {', '.join(frontier)}", f"{whose}: {', '.join(has)}"]
    if mean_only(frontier):
        message = f"the frontier is a mean over unnamed benchmarks, and {whose} has {', '.join(has)}"
        return error("E0425", message, notes=notes, help="take a frontier with the curve of each benchmark")
    lacks = [f"lacks {', '.join(missing)}"] if missing else []
    adds = [f"has {', '.join(extra)}, which the frontier lacks"] if extra else []
    plain = {_plain(name): name for name in missing}
    similar = {
        name: plain[close[0]] for name in extra if (close := get_close_matches(_plain(name), plain, 1, 0.5))
    }
    renamed = " and ".join(f"`{old}` is `{new}`" for old, new in similar.items())
    return error(
        "E0425",
        f"{whose} {' and '.join(lacks + adds)}",
        notes=notes,
        help=f"name benchmarks as the frontier does, if {renamed}"
        if similar
        else "evaluate on the frontier's benchmarks, all of them and no others: another mean is another quantity",
    )


def _plain(name: str) -> str:
    """Return a benchmark's name in lower case without punctuation, in which spellings often differ."""
    return "".join(filter(str.isalnum, name.lower()))


def too_sparse(budgets: Sequence[int], points: Sequence[int], whose: str) -> Diagnostic | None:
    """Return E0434 for the first gap of a curve that is wider than 1/16 of the range of REG; else None.

    A gap lies between two successive budgets of the curve. It counts only within the range of REG, and only if it
    contains a point of integration, at which the curve would be interpolated.

    Args:
        budgets: The curve's budgets, in tokens.
        points: The points of integration, in tokens.
        whose: The curve's name in messages.
    """
    widest = max((points[-1] - points[0]) / SPAN_PARTS, 1)
    for left, right in itertools.pairwise(budgets):
        between = sum(left < point < right for point in points)
        # Points outside the range of REG are not used.
        low, high = max(left, points[0]), min(right, points[-1])
        if between and high - low > widest:
            return error(
                "E0434",
                f"{whose} has no point between {left} and {right} tokens, where REG is taken at {between}",
                help=f"measure at budgets that are at most {widest:g} tokens apart, a sixteenth of what REG spans",
            )
    return None


def mean_only(frontier: Curves) -> bool:
    """Return whether a frontier is a single curve that is a mean over benchmarks."""
    return len(frontier) == 1 and next(iter(frontier)).lower() in MEAN_NAMES


def misfits(
    reference: ReferenceFrontier,
    models: Mapping[str, Curves],
    base: Sequence[str],
    points: Sequence[int],
    name: str = "FILE",
) -> list[Diagnostic]:
    """Return the reasons why a published frontier does not match some models, at most one of each kind.

    The kinds are another base model (E0433), other benchmarks (E0425), and sparse curves (E0434). The list is empty if
    the frontier matches.

    Args:
        reference: The frontier.
        models: The curves of each model.
        base: The models that these models were trained from.
        points: The points of integration, in tokens.
        name: The frontier's file in messages.

    Raises:
        Problem: E0424 for a curve that ends before REG does.
    """
    curves = {
        f"{whose} on {benchmark}": curve
        for whose, group in (("the frontier", reference.curves), *((f"`{m}`", c) for m, c in models.items()))
        for benchmark, curve in group.items()
    }
    for whose, curve in curves.items():
        check_cover(curve, points, whose)
    kinds = (
        [check_base(reference, base, "these curves go back", name)],
        (of_other_benchmarks(reference.curves, group, f"`{model}`") for model, group in models.items()),
        (too_sparse(curve.budgets, points, whose) for whose, curve in curves.items()),
    )
    return [first for group in kinds if (first := next(filter(None, group), None)) is not None]


def select_benchmarks(frontier: Curves, benchmarks: Iterable[Iterable[str]]) -> Curves:
    """Return the frontier on the models' benchmarks, or else its mean over benchmarks.

    The mean is returned if models have different benchmarks, or if the frontier lacks any of their benchmarks.

    Args:
        frontier: The frontier's curves.
        benchmarks: The names of each model's benchmarks.
    """
    sets = [set(names) for names in benchmarks]
    if all(names == sets[0] <= set(frontier) for names in sets):
        return {name: curve for name, curve in frontier.items() if name in sets[0]}
    return frontier if mean_only(frontier) else {"Average": average(frontier)}
