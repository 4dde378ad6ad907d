"""Rewards that teach nothing: whether a value can differ between a question's responses, from its canonical data."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from reodsl.diagnostics.model import Span, warning
from reodsl.language.context import Context
from reodsl.language.reward_names import Data, Typed

OF_A_RESPONSE = ("length", "correct", "forced", "bare")


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
