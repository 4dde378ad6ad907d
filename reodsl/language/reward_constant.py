"""Rewards that teach nothing, or nothing of being right: what a value depends on, from its canonical data."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from reodsl.diagnostics.model import Span, warning
from reodsl.language.context import Context
from reodsl.language.reward_names import Data, Typed

OF_AN_ANSWER = ("correct", "forced", "bare")
OF_A_RESPONSE = ("length", *OF_AN_ANSWER)


def report_constant(
    ctx: Context, name: str, values: Sequence[tuple[Typed, Span]], lets: Mapping[str, Data]
) -> None:
    """W0301: a reward, or each part of one, that is the same for every response of a question."""
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


def report_blind(
    ctx: Context, name: str, values: Sequence[tuple[Typed, Span]], lets: Mapping[str, Data]
) -> None:
    """W0302: a reward that nowhere asks whether an answer is right."""
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


def _asks(data: object, lets: Mapping[str, Data]) -> bool:
    """Whether correctness is measured anywhere in an expression, of whichever response, through its lets."""
    if isinstance(data, list):
        return any(_asks(each, lets) for each in data)
    if not isinstance(data, dict):
        return False
    if data.get("op") in OF_AN_ANSWER:
        return True
    if data.get("op") == "name":
        return _asks(lets.get(data["name"]), lets)
    return any(_asks(each, lets) for each in data.values())


def differs(data: object, lets: Mapping[str, Data]) -> bool:
    """Whether anything in an expression is measured of the response itself, through its lets."""
    if isinstance(data, list):
        return any(differs(each, lets) for each in data)
    if not isinstance(data, dict):
        return False
    own = data.get("of") == "y"
    if own and (data["op"] in OF_A_RESPONSE or (data["op"] == "given" and data["field"] == "mode")):
        return True
    if data.get("op") == "name":
        return differs(lets.get(data["name"]), lets)
    return any(differs(each, lets) for each in data.values())
