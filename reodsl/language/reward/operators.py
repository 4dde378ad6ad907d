"""Operators and functions of rewards: from typed operands to the typed result, with the range of its values.

Where there is no result, what is wrong is reported and None comes back.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Literal, TypeAlias

from reodsl.ir.expression import Binary, Call, Expression, Function, If, Number, Unary
from reodsl.language.intervals import compared, contains_zero, product, quotient
from reodsl.language.reward.names import INF, Body, Typed, constant, fail, same_unit
from reodsl.language.units import PLAIN, TOKENS, times
from reodsl.syntax import tree

Comparison: TypeAlias = Literal["==", "!=", "<", "<=", ">", ">="]


def negative(value: Typed) -> Typed:
    """`-x`."""
    if value.constant:
        return constant(-value.low, value.unit)
    return Typed(Unary(fn="neg", value=value.data), value.unit, -value.high, -value.low)


def opposite(test: Typed) -> Typed:
    """`not x`."""
    return Typed(Unary(fn="not", value=test.data), PLAIN, 1 - test.high, 1 - test.low, True)


def both_or_either(op: tree.LogicOp, left: Typed, right: Typed) -> Typed:
    """`left and right`, `left or right`."""
    end = min if op == "and" else max
    ends = end(left.low, right.low), end(left.high, right.high)
    if op == "and" and _excluded(left.data, right.data):
        ends = 0.0, 0.0
    if op == "or" and _excluded(opposite(left).data, opposite(right).data):
        ends = 1.0, 1.0
    return Typed(Binary(fn=op, left=left.data, right=right.data), PLAIN, *ends, True)


def _excluded(one: Expression, two: Expression) -> bool:
    """Whether two conditions never hold at once: one is the other's opposite, or they leave a value no room."""
    conjuncts = [*_parts(one), *_parts(two)]
    known = set(conjuncts)
    if any(_opposed(each) in known for each in conjuncts):
        return True
    rooms: dict[Expression, tuple[float, float]] = {}
    for each in conjuncts:
        bounds = _bounds(each)
        if bounds is not None:
            side, low, high = bounds
            room = rooms.get(side, (-INF, INF))
            rooms[side] = max(low, room[0]), min(high, room[1])
    return any(low > high for low, high in rooms.values())


def _parts(test: Expression) -> list[Expression]:
    """The conditions that all hold where this one does."""
    if isinstance(test, Binary) and test.fn == "and":
        return [*_parts(test.left), *_parts(test.right)]
    return [test]


def _opposed(test: Expression) -> Expression:
    return test.value if isinstance(test, Unary) and test.fn == "not" else Unary(fn="not", value=test)


def _bounds(test: Expression) -> tuple[Expression, float, float] | None:
    """What a comparison with a constant says of the other side, and the range that is left for it."""
    if not isinstance(test, Binary) or test.fn not in _TURNED:
        return None
    fn, side, limit = test.fn, test.left, test.right
    if isinstance(side, Number):
        fn, side, limit = _TURNED[fn], limit, side
    if not isinstance(limit, Number):
        return None
    value = limit.value
    low = {">": math.nextafter(value, INF), ">=": value, "==": value}.get(fn, -INF)
    high = {"<": math.nextafter(value, -INF), "<=": value, "==": value}.get(fn, INF)
    return side, low, high


_TURNED: Mapping[str, Literal["<", "<=", ">", ">=", "=="]] = {
    "<": ">",
    "<=": ">=",
    ">": "<",
    ">=": "<=",
    "==": "==",
}


def calculated(body: Body, expr: tree.Binary, left: Typed, right: Typed) -> Typed | None:
    """`left op right` for + - * / ^. Reports E0302 where the units do not go together, E0307 where it may be no number."""
    data = Binary(fn=expr.op, left=left.data, right=right.data)
    if expr.op in "+-":
        if not same_unit(body, left, right, expr.left.span, expr.right.span, f"`{expr.op}`"):
            return None
        low, high = (
            (left.low + right.low, left.high + right.high)
            if expr.op == "+"
            else (left.low - right.high, left.high - right.low)
        )
        if expr.op == "-" and left.data == right.data:
            low, high = 0.0, 0.0
        return _folded(Typed(data, left.unit, low, high), left, right)
    if expr.op == "*":
        low, high = product(left.interval, right.interval)
        if low == high and math.isinf(low):
            return _endless(body, expr)
        return _folded(Typed(data, times(left.unit, right.unit), low, high), left, right)
    if expr.op == "/":
        if contains_zero(right.interval) and right.data not in body.nonzero:
            return _by_zero(body, expr, right)
        low, high = quotient(left.interval, right.interval)
        if left.data == right.data:
            low, high = 1.0, 1.0
        return _folded(Typed(data, times(left.unit, right.unit, -1), low, high), left, right)
    return _power(body, expr, left, right)


def _power(body: Body, expr: tree.Binary, left: Typed, right: Typed) -> Typed | None:
    if left.unit or right.unit:
        return fail(body, "E0302", "a power is of plain numbers", expr, "divide by a length first")
    if left.low < 0 and not (right.low == right.high and float(right.low).is_integer()):
        return fail(
            body,
            "E0307",
            "a power of what may be negative may be no number",
            expr,
            "take `abs(…)` or `max(…, 0)`",
        )
    if left.low <= 0 <= left.high and right.low < 0:
        return fail(
            body,
            "E0307",
            "a negative power of what may be 0 divides by zero",
            expr,
            "keep the base above 0: `max(…, 1)`",
        )
    data = Binary(fn=expr.op, left=left.data, right=right.data)
    if left.low == left.high and right.low == right.high:
        value = _raised(left.low, right.low)
        return _endless(body, expr) if math.isinf(value) else Typed(data, PLAIN, value, value)
    if _may_be_endless(left, right):
        return fail(
            body,
            "E0307",
            "this power may be past every number",
            expr,
            "bound it: `min(…, 10)`, or divide first",
        )
    if left.low == left.high > 0:
        ends = _raised(left.low, right.low), _raised(left.low, right.high)
        return Typed(data, PLAIN, min(ends), max(ends))
    low = 0.0 if left.low >= 0 else -INF
    return Typed(data, PLAIN, low, INF)


def _may_be_endless(base: Typed, exponent: Typed) -> bool:
    """Whether bounds that are known make a power that no number can hold. Of what has no bounds nothing is said."""
    if not all(map(math.isfinite, (*base.interval, *exponent.interval))):
        return False
    largest = max(abs(base.low), abs(base.high))
    return math.isinf(_raised(largest, exponent.high)) or (
        base.low > 0 and math.isinf(_raised(base.low, exponent.low))
    )


def _raised(base: float, exponent: float) -> float:
    """A power of two constants; infinite where no number can hold it."""
    try:
        return math.pow(base, exponent)
    except OverflowError:
        return INF


def _endless(body: Body, expr: tree.Binary) -> Typed | None:
    return fail(body, "E0307", "this is larger than any number", expr, "take smaller numbers")


def _folded(result: Typed, left: Typed, right: Typed) -> Typed:
    """A constant where both sides are constants, so that the spelling of a number leaves no trace."""
    if left.constant and right.constant and result.low == result.high and math.isfinite(result.low):
        return constant(result.low, result.unit)
    return result


def _by_zero(body: Body, expr: tree.Binary, right: Typed) -> Typed | None:
    unit = " tokens" if right.unit == TOKENS else ""
    never = right.low == right.high == 0
    above = f"keep it above 0: `max(…, 1{unit})`, or test it with `if`"
    if isinstance(expr.right, tree.Name) and right.open:
        bounds = "tokens in 1 tokens..1M tokens" if unit else "number in 1e-6..1M"
        above = f"give the parameter a range above 0: `{expr.right.name}: {bounds}`"
    return body.ctx.fail(
        "E0307",
        "this divides by zero" if never else "this may divide by zero",
        expr.right.span,
        "0" if never else "may be 0",
        help="divide by something else" if never else above,
    )


def comparison(body: Body, expr: tree.Compare, op: Comparison, left: Typed, right: Typed) -> Typed | None:
    """`left op right` for == != < <= > >=: a condition. Reports E0302 where the units differ."""
    if not same_unit(body, left, right, expr.left.span, expr.right.span, f"`{op}`"):
        return None
    low, high = compared(op, left.interval, right.interval)
    return Typed(Binary(fn=op, left=left.data, right=right.data), PLAIN, low, high, True)


def choice(body: Body, expr: tree.IfElse, test: Typed, then: Typed, other: Typed) -> Typed | None:
    """`then if test else other`. Reports E0302 where the units differ."""
    if not same_unit(body, then, other, expr.then.span, expr.otherwise.span, "`if … else`"):
        return None
    data = If(test=test.data, then=then.data, other=other.data)
    taken = [then] if test.low == 1 else [other] if test.high == 0 else [then, other]
    low, high = min(each.low for each in taken), max(each.high for each in taken)
    return Typed(data, then.unit, low, high, then.condition and other.condition)


def nonzero(test: Expression) -> tuple[frozenset[Expression], frozenset[Expression]]:
    """What cannot be 0 where a condition holds, and where it does not; as `Body.nonzero` has it."""
    none: frozenset[Expression] = frozenset()
    if isinstance(test, Unary) and test.fn == "not":
        then, other = nonzero(test.value)
        return other, then
    if not isinstance(test, Binary) or test.fn not in ("==", "!=", "<", ">"):
        return none, none
    left, right = test.left, test.right
    facts: set[Expression] = {Binary(fn="-", left=a, right=b) for a, b in ((left, right), (right, left))}
    for one, two in ((left, right), (right, left)):
        if isinstance(one, Number) and one.value == 0:
            facts.add(two)
    known = frozenset(facts)
    return (none, known) if test.fn == "==" else (known, none)


PLAIN_ONLY = ("sigmoid", "log", "sqrt", "cos")
"""Functions whose one argument has no unit."""


def number_function(body: Body, name: Function, values: list[tuple[tree.Expr, Typed]]) -> Typed | None:
    """A function of `NUMERIC` at as many arguments as it takes. Reports E0302 or E0307 where it has no value."""
    first_expr, first = values[0]
    if name == "exp":
        return exponential(body, first_expr, first)
    data = Call(fn=name, args=tuple(value.data for _, value in values))
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
            "the logarithm of 0 or less is not a number",
            first_expr,
            "keep it above 0: `max(…, 1e-6)`",
        )
    if name == "sqrt" and first.low < 0:
        return fail(
            body,
            "E0307",
            "the root of a negative number is not a number",
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
    return Typed(Call(fn="exp", args=(value.data,)), PLAIN, *_range("exp", [value]))


def _range(name: Function, values: list[Typed]) -> tuple[float, float]:
    first = values[0]
    match name:
        case "sigmoid":
            return 0.0, 1.0
        case "exp":
            return 0.0, math.exp(first.high)
        case "log":
            return math.log(first.low), INF if math.isinf(first.high) else math.log(first.high)
        case "sqrt":
            return math.sqrt(first.low), INF if math.isinf(first.high) else math.sqrt(first.high)
        case "cos":
            if first.low >= 0 and first.high <= math.pi:
                return math.cos(first.high), math.cos(first.low)
            return -1.0, 1.0
        case "floor":
            return _floor(first.low), _floor(first.high)
        case "abs":
            crossing = first.low <= 0 <= first.high
            ends = abs(first.low), abs(first.high)
            return (0.0 if crossing else min(ends)), max(ends)
        case "min":
            return min(v.low for v in values), min(v.high for v in values)
        case "max":
            return max(v.low for v in values), max(v.high for v in values)
        case "clip":
            low, high = values[1], values[2]
            return min(max(first.low, low.low), high.high), max(min(first.high, high.high), low.low)


def _floor(bound: float) -> float:
    return bound if math.isinf(bound) else float(math.floor(bound))
