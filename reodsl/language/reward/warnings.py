"""Warn of rewards that teach nothing, or nothing about being right."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TypeAlias

from reodsl.diagnostics.model import Span, warning
from reodsl.ir.base import Node
from reodsl.ir.expression import Bare, Correct, Expression, Forced, Given, Length, Name, Own, walk
from reodsl.language.context import Context
from reodsl.language.reward.names import Typed

Lets: TypeAlias = Mapping[str, Expression]


def report_constant(ctx: Context, name: str, values: Sequence[tuple[Typed, Span]], lets: Lets) -> None:
    """Report W0301: a reward, or each part of one, that is the same for every response of a question."""
    for value, span in values:
        if value.low != value.high and differs(value.data, lets):
            continue
        text = f"always {value.low:g}" if value.low == value.high else "nothing here is of the response `y`"
        ctx.report(
            warning(
                "W0301",
                f"the reward `{name}` is the same for every response of a question",
                span,
                text,
                notes=["equal rewards have no advantage: nothing is learnt from them"],
                help="let it depend on the response: `correct(y)`, `len(y)`",
            )
        )


def report_blind(ctx: Context, name: str, values: Sequence[tuple[Typed, Span]], lets: Lets) -> None:
    """Report W0302: a reward that never asks whether an answer is right."""
    whole = [value.data for value, _ in values]
    if (
        not values
        or any(_asks(data, lets) for data in whole)
        or not any(differs(data, lets) for data in whole)
    ):
        return
    ctx.report(
        warning(
            "W0302",
            f"the reward `{name}` never asks whether an answer is right",
            values[0][1],
            "no `correct`",
            notes=["a model trained by it may end in short, wrong answers"],
            help="let right answers earn more: `correct(y) + …`, or `… if correct(y) else …`",
        )
    )


def _asks(data: Expression, lets: Lets) -> bool:
    """Return whether correctness is measured anywhere in an expression, of whichever response, through its lets."""
    return any(isinstance(each, (Correct, Forced, Bare)) for each in _all(data, lets))


def differs(data: Expression, lets: Lets) -> bool:
    """Return whether anything in an expression is measured of the response itself, through its lets."""
    return any(
        isinstance(each, (Length, Correct, Forced, Bare, Given, Own))
        and each.of == "y"
        and not (isinstance(each, Given) and each.field != "mode")
        for each in _all(data, lets)
    )


def _all(data: Expression, lets: Lets) -> Iterator[Node]:
    """Everything in an expression and in the lets behind its names, each let once."""
    waiting, seen = [data], set[str]()
    while waiting:
        for each in walk(waiting.pop()):
            yield each
            if isinstance(each, Name) and each.name in lets and each.name not in seen:
                seen.add(each.name)
                waiting.append(lets[each.name])
