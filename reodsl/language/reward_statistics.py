"""Statistics in rewards, over responses or splits: a comprehension in, the typed result out, with its range."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from reodsl.diagnostics.model import Span, error
from reodsl.language.reward_names import INF, Body, Data, Typed, fail, same_unit
from reodsl.language.reward_types import condition, typed
from reodsl.language.units import PLAIN, TOKENS
from reodsl.syntax import tree


def statistic(body: Body, expr: tree.Call, name: str) -> Typed | None:
    """A function of `AGGREGATES` over a comprehension; None with what is wrong reported."""
    over = expr.args[0].value
    assert isinstance(over, tree.Comprehension)
    known = ("group", "ref") if body.variable is None else ("group", "ref", "splits")
    if not isinstance(over.over, tree.Name) or over.over.name not in known:
        _nowhere(body, name, over.over)
        return None
    source = over.over.name
    if source == "ref" and "y" not in body.env.responses:
        return fail(
            body,
            "E0301",
            "a selection knows no starting model",
            over.over,
            "run over `group`, the pool's responses",
        )
    if source == "splits" and over.var.name == body.variable:
        return fail(
            body,
            "E0208",
            f"`{over.var.name}` is the split at hand",
            over,
            "run over others by another name: `for M in splits`",
        )
    inner, variable = _over(body, over.var.name, source)
    # What is counted does not matter: `count(z for z in group if correct(z))`.
    counted = name == "count" and isinstance(over.expr, tree.Name) and over.expr.name == over.var.name
    one: Data = {"op": "number", "value": 1.0}
    value = Typed(one, PLAIN, 1.0, 1.0) if counted else typed(inner, over.expr)
    where = condition(inner, over.condition) if over.condition is not None else None
    given = _empty(body, expr.args[1:], name)
    if given is None:
        return None
    if value is None or (over.condition is not None and where is None):
        return None
    if over.condition is not None and not given and name not in ("sum", "count"):
        unit = " tokens" if value.unit == TOKENS else ""
        body.ctx.report(
            error(
                "E0306",
                f"`{name}` may have nothing to run over: perhaps no response meets the condition",
                over.condition.span,
                "may leave nothing",
                help=f"say what it is then: `{name}(… if …, empty: 1{unit})`",
            )
        )
        return None
    span, empty = given[-1] if given else (over.span, None)
    compared = empty if name != "count" else None
    if compared is not None and not same_unit(body, compared, value, span, over.expr.span, "`empty`"):
        return None
    data: Data = {
        "op": "aggregate",
        "fn": name,
        "var": variable,
        "over": source,
        "value": value.data,
        "where": where.data if where is not None else None,
        "empty": empty.data if empty is not None else None,
    }
    low, high = _range_of(name, value, where is not None, body.limits.group if source == "group" else INF)
    if empty is not None:
        low, high = min(low, empty.low), max(high, empty.high)
    return Typed(data, PLAIN if name == "count" else value.unit, low, high)


def _nowhere(body: Body, name: str, at: tree.Expr) -> None:
    """E0301: a statistic over something that is neither responses nor splits."""
    helps = "`group` is the question's responses, `ref` the starting model's"
    if body.variable is not None:
        helps += f", `splits` the places of this line: `sum(correct(y[:M]) for M in splits if M < {body.variable})`"
    elif isinstance(at, tree.Name) and at.name == "splits":
        helps = (
            "splits belong to a line `dense L in at: …`: count them in its value itself, "
            "as in `dense L in at: count(M for M in splits if M <= L and correct(answer(y[:M])))`"
        )
    elif isinstance(at, tree.Name) and at.name in body.env.others:
        helps = (
            f"budgets are gone through by a line of their own, `dense L in {at.name}: …`, whose values add up"
        )
    fail(body, "E0301", f"`{name}` runs over `group` or `ref`", at, helps)


def _over(body: Body, name: str, source: str) -> tuple[Body, str]:
    """The inside of a statistic, where `name` is a response or a split's place, and what that is called in the result."""
    if source != "splits":
        body.uses.add(source)
        variable = f"z{sum(1 for each in body.env.responses.values() if each != 'y') or ''}"
        return replace(body, env=body.env.with_response(name, variable, source)), variable
    inside = sum(1 for each in body.env.values.values() if str(each.data.get("name")).startswith("M"))
    variable = f"M{inside or ''}"
    at_hand = body.env.values[body.variable or ""]
    place = Typed({"op": "name", "name": variable}, TOKENS, at_hand.low, at_hand.high)
    return replace(body, env=body.env.with_value(name, place)), variable


def _empty(body: Body, args: Sequence[tree.Arg], name: str) -> list[tuple[Span, Typed]] | None:
    """What statistics over nothing are, and where it says so; None with what is wrong reported."""
    found = []
    for arg in args:
        if (
            arg.name is None
            or arg.name.name != "empty"
            or isinstance(arg.value, (tree.Binding, tree.Comprehension))
        ):
            fail(
                body,
                "E0310",
                f"`{name}` takes one thing more: what it is when nothing is left",
                arg,
                "write `empty: …`",
            )
            return None
        value = typed(body, arg.value)
        if value is None:
            return None
        found.append((arg.value.span, value))
    return found


def _range_of(name: str, value: Typed, filtered: bool, members: float) -> tuple[float, float]:
    if name == "count":
        return (0.0 if filtered else 1.0), members
    if name == "std":
        spread = (value.high - value.low) / 2 if math.isfinite(value.high - value.low) else INF
        return 0.0, spread
    if name == "sum":
        low = (0.0 if filtered else value.low) if value.low >= 0 else -INF
        return low, (0.0 if value.high <= 0 else INF)
    return value.low, value.high
