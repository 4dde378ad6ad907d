"""Functions of numbers in a reward: typed arguments in, the typed result out, with the range of its values."""

from __future__ import annotations

import math

from reodsl.language.reward_names import INF, Body, Data, Typed, fail, same_unit
from reodsl.language.units import PLAIN
from reodsl.syntax import tree

PLAIN_ONLY = ("sigmoid", "log", "sqrt", "cos")
"""Functions whose one argument has no unit."""


def number_function(body: Body, name: str, values: list[tuple[tree.Expr, Typed]]) -> Typed | None:
    """A function of `NUMERIC` at as many arguments as it takes. Reports E0302 or E0307 where it has no value."""
    first_expr, first = values[0]
    if name == "exp":
        return exponential(body, first_expr, first)
    data: Data = {"op": "call", "fn": name, "args": [value.data for _, value in values]}
    if name in PLAIN_ONLY and first.unit:
        return fail(body, "E0302", f"`{name}` wants a plain number", first_expr, "divide by a length first")
    for other_expr, other in values[1:]:
        if not same_unit(body, first, other, first_expr.span, other_expr.span, f"`{name}`"):
            return None
    if name == "clip" and values[1][1].low > values[2][1].high:
        turned = f"write the smaller bound first: `clip(…, {values[2][1].low:g}, {values[1][1].low:g})`"
        return fail(body, "E0310", "`clip` goes from a greater number to a smaller one", values[1][0], turned)
    if name == "log" and first.low <= 0:
        return fail(
            body,
            "E0307",
            "the logarithm of 0 or less is no number",
            first_expr,
            "keep it above 0: `max(…, 1e-6)`",
        )
    if name == "sqrt" and first.low < 0:
        return fail(
            body,
            "E0307",
            "the root of a negative number is no number",
            first_expr,
            "keep it at 0 or above: `max(…, 0)`",
        )
    low, high = _range(name, [value for _, value in values])
    return Typed(data, PLAIN if name in PLAIN_ONLY else first.unit, low, high)


def exponential(body: Body, argument: tree.Expr, value: Typed) -> Typed | None:
    """`e^x`, where `argument` was found to be `value`."""
    if value.unit:
        return fail(body, "E0302", "`e^` wants a plain number", argument, "divide by a length first")
    if value.high > 700:
        return fail(
            body, "E0307", "e to this may be past every number", argument, "bound it: `clip(…, -20, 20)`"
        )
    return Typed({"op": "call", "fn": "exp", "args": [value.data]}, PLAIN, 0.0, math.exp(value.high))


def _range(name: str, values: list[Typed]) -> tuple[float, float]:
    first = values[0]
    match name:
        case "sigmoid":
            return 0.0, 1.0
        case "log":
            return math.log(first.low), INF if math.isinf(first.high) else math.log(first.high)
        case "sqrt":
            return math.sqrt(first.low), INF if math.isinf(first.high) else math.sqrt(first.high)
        case "cos":
            if first.low >= 0 and first.high <= math.pi:
                return math.cos(first.high), math.cos(first.low)
            return -1.0, 1.0
        case "abs":
            crossing = first.low <= 0 <= first.high
            ends = abs(first.low), abs(first.high)
            return (0.0 if crossing else min(ends)), max(ends)
        case "min":
            return min(v.low for v in values), min(v.high for v in values)
        case "max":
            return max(v.low for v in values), max(v.high for v in values)
    low, high = values[1], values[2]
    return min(max(first.low, low.low), high.high), max(min(first.high, high.high), low.low)
