"""References: frontiers with the models that they are of, and what keeps curves from being compared with them."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches

from reodsl.diagnostics import Diagnostic, error
from reodsl.numbers.curves import MEAN_NAMES, Curves, average, check_cover

PARTS = 16
"""The share of the range, 1/16, by which two points of a curve are apart at most where REG is taken between them.

It is the coarse step of the paper's grid at 16K. Of the 16 published curves and their means, those with points so far apart
differ by at most 65 tokens of 16K from all points (0.4%), and by 239 of 32K (0.7%). Points twice as far apart cost up to
239 and 755 tokens, and a curve of its two ends up to 4,978 and more, when the methods in print lie hundreds apart.
"""


@dataclass(frozen=True, slots=True)
class Reference:
    """A frontier: the curve of each benchmark, and `base`, the models from which all that it is over was made."""

    curves: Curves
    base: tuple[str, ...] = ()


def same_model(one: str, other: str) -> bool:
    """Return whether two names are of one model: `Qwen3-4B` is that of any owner."""
    short = one if "/" not in one else other
    return one == other or (
        "/" not in short and {one.rpartition("/")[2], other.rpartition("/")[2]} == {short}
    )


def check_base(
    reference: Reference, base: Sequence[str], go_back: str, name: str = "FILE"
) -> Diagnostic | None:
    """Return E0433 where `base`, the models that some curves go back to, are not those of the frontier `name`.

    `go_back` is the sentence's subject and verb: `these curves go back`.
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
    wrong = [each for each in base if not any(same_model(each, one) for one in reference.base)]
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
    """Return E0425 where a model's benchmarks are not exactly those of the frontier."""
    there = list(names)
    missing = [name for name in frontier if name not in there]
    extra = [name for name in there if name not in frontier]
    if not missing and not extra:
        return None
    notes = [f"the frontier: {', '.join(frontier)}", f"{whose}: {', '.join(there)}"]
    if mean_only(frontier):
        message = f"the frontier is a mean over benchmarks that it does not name, and {whose} has {', '.join(there)}"
        return error("E0425", message, notes=notes, help="take a frontier with the curve of each benchmark")
    lacks = [f"lacks {', '.join(missing)}"] if missing else []
    adds = [f"has {', '.join(extra)}, which the frontier has not"] if extra else []
    asked = {_plain(name): name for name in missing}
    near = {
        name: asked[close[0]] for name in extra if (close := get_close_matches(_plain(name), asked, 1, 0.5))
    }
    renamed = " and ".join(f"`{old}` is `{new}`" for old, new in near.items())
    return error(
        "E0425",
        f"{whose} {' and '.join(lacks + adds)}",
        notes=notes,
        help=f"name benchmarks as the frontier does, if {renamed}"
        if near
        else "evaluate on the frontier's benchmarks, all of them and no others: another mean is another quantity",
    )


def _plain(name: str) -> str:
    """Return a benchmark's name without what spellings differ in."""
    return "".join(filter(str.isalnum, name.lower()))


def too_sparse(budgets: Sequence[int], points: Sequence[int], whose: str) -> Diagnostic | None:
    """Return E0434 where a curve has no point over more than 1/16 of what `points` span, and some of these lie there."""
    widest = max((points[-1] - points[0]) / PARTS, 1)
    for left, right in itertools.pairwise(budgets):
        between = sum(left < point < right for point in points)
        # What lies past the ends of REG is not read.
        low, high = max(left, points[0]), min(right, points[-1])
        if between and high - low > widest:
            return error(
                "E0434",
                f"{whose} has no point between {left} and {right} tokens, where REG is taken at {between}",
                help=f"measure at budgets that are at most {widest:g} tokens apart, a sixteenth of what REG spans",
            )
    return None


def mean_only(frontier: Curves) -> bool:
    """Return whether a frontier is a single curve of a mean over benchmarks."""
    return len(frontier) == 1 and next(iter(frontier)).lower() in MEAN_NAMES


def misfits(
    reference: Reference,
    models: Mapping[str, Curves],
    base: Sequence[str],
    points: Sequence[int],
    name: str = "FILE",
) -> list[Diagnostic]:
    """Return why REG of some models, made from `base`, against the frontier `name` is not what it seems, each kind once.

    Raises E0424 for a curve that ends before REG does.
    """
    curves = {
        f"{whose} on {benchmark}": curve
        for whose, each in (("the frontier", reference.curves), *((f"`{m}`", c) for m, c in models.items()))
        for benchmark, curve in each.items()
    }
    for whose, curve in curves.items():
        check_cover(curve, points, whose)
    kinds = (
        [check_base(reference, base, "these curves go back", name)],
        (of_other_benchmarks(reference.curves, each, f"`{model}`") for model, each in models.items()),
        (too_sparse(curve.budgets, points, whose) for whose, curve in curves.items()),
    )
    return [first for each in kinds if (first := next(filter(None, each), None)) is not None]


def select_benchmarks(frontier: Curves, asked: Iterable[Iterable[str]]) -> Curves:
    """Return the frontier on the benchmarks that all models have, where it has all of these; else its mean."""
    sets = [set(names) for names in asked]
    if all(names == sets[0] <= set(frontier) for names in sets):
        return {name: curve for name, curve in frontier.items() if name in sets[0]}
    return frontier if mean_only(frontier) else {"Average": average(frontier)}
