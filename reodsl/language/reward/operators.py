"""Type operators and functions of rewards: from typed operands to the result, with the range of its values.

All of them raise `Failed` if there is no result.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Literal, NoReturn, TypeAlias

from reodsl.diagnostics.model import Edit, Span, warning
from reodsl.ir.expression import (
    FUNCTIONS,
    Aggregate,
    Constant,
    Expression,
    Function,
    FunctionCall,
    If,
    Infix,
    Negation,
    Variable,
)
from reodsl.language.reward.names import (
    INF,
    Body,
    Room,
    Typed,
    check_unit,
    compare_ranges,
    contains_zero,
    divide,
    fail,
    make_constant,
    multiply,
)
from reodsl.language.units import (
    PLAIN,
    TOKENS,
    Dimension,
    Quantity,
    format_quantity,
    multiply_units,
    write_quantity,
)
from reodsl.syntax import tree

Comparison: TypeAlias = Literal["==", "!=", "<", "<=", ">", ">="]


def negate(value: Typed) -> Typed:
    """Return `-x`."""
    if value.constant:
        return make_constant(-value.low, value.unit)
    return Typed(Negation(fn="neg", value=value.data), value.unit, -value.high, -value.low)


def invert(test: Typed) -> Typed:
    """Return `not x`."""
    return Typed(Negation(fn="not", value=test.data), PLAIN, 1 - test.high, 1 - test.low, True)


def connect(body: Body, op: tree.LogicOp, left: Typed, right: Typed) -> Typed:
    """Return `left and right` or `left or right`."""
    end = min if op == "and" else max
    ends = end(left.low, right.low), end(left.high, right.high)
    if op == "and" and _exclude(list_facts(body, left.data), list_facts(body, right.data)):
        ends = 0.0, 0.0
    if op == "or" and _exclude(list_facts(body, left.data, False), list_facts(body, right.data, False)):
        ends = 1.0, 1.0
    return Typed(Infix(fn=op, left=left.data, right=right.data), PLAIN, *ends, True)


def list_facts(body: Body, test: Expression, holds: bool = True) -> dict[Expression, Room]:
    """Return the room of each value that a condition is about, where it holds or where it does not."""
    if isinstance(test, Negation) and test.fn == "not":
        return list_facts(body, test.value, not holds)
    if isinstance(test, Infix) and test.fn in ("and", "or"):
        left, right = list_facts(body, test.left, holds), list_facts(body, test.right, holds)
        if (test.fn == "and") == holds:
            return combine_facts(left, right)
        return {each: room.join(right[each]) for each, room in left.items() if each in right}
    rooms: dict[Expression, Room] = {test: Room(1, 1) if holds else Room(0, 0)}
    if isinstance(test, Variable):
        rooms |= body.tests.get(test, ({}, {}))[not holds]
    if isinstance(test, Infix) and test.fn in _TURNED:
        fn = test.fn if holds else _OPPOSITE[test.fn]
        for op, one, two in ((fn, test.left, test.right), (_TURNED[fn], test.right, test.left)):
            rooms[Infix(fn="-", left=one, right=two)] = _make_room(op, 0.0)
            if isinstance(two, Constant):
                rooms[one] = _make_room(op, two.value)
    return rooms


def combine_facts(one: Mapping[Expression, Room], two: Mapping[Expression, Room]) -> dict[Expression, Room]:
    """Return the facts of two conditions that both hold."""
    return {**one, **{each: room.meet(one.get(each, Room())) for each, room in two.items()}}


def _exclude(one: Mapping[Expression, Room], two: Mapping[Expression, Room]) -> bool:
    """Return whether two conditions never hold at once: together they leave a value no room."""
    return any(room.empty for room in combine_facts(one, two).values())


def _make_room(op: str, limit: float) -> Room:
    """Return the room of a value that is compared with a constant."""
    match op:
        case "!=":
            return Room(zero=limit != 0)
        case ">":
            return Room(low=math.nextafter(limit, INF))
        case ">=":
            return Room(low=limit)
        case "<":
            return Room(high=math.nextafter(limit, -INF))
        case "<=":
            return Room(high=limit)
    return Room(limit, limit)


_TURNED: Mapping[str, Comparison] = {"<": ">", "<=": ">=", ">": "<", ">=": "<=", "==": "==", "!=": "!="}
_OPPOSITE: Mapping[str, Comparison] = {"<": ">=", "<=": ">", ">": "<=", ">=": "<", "==": "!=", "!=": "=="}


def name_value(body: Body, name: str, value: Typed) -> Typed:
    """Return a value by the name that a let gives it. A condition means by its name what it means in place."""
    it = Variable(name=name)
    if value.condition:
        body.tests[it] = list_facts(body, value.data), list_facts(body, value.data, False)
    return Typed(it, value.unit, value.low, value.high, value.condition)


def narrow(body: Body, value: Typed) -> Typed:
    """Return a value with the range that it has where the conditions around it hold."""
    room = body.facts.get(value.data) if body.facts and not value.constant else None
    if room is None:
        return value
    low, high = room.within(value.low, value.high)
    return replace(value, low=low, high=high)


def calculate(body: Body, expr: tree.Binary, left: Typed, right: Typed) -> Typed:
    """Return `left op right` for + - * / ^. E0302 if the units do not go together, E0307 if it may be no number."""
    data = Infix(fn=expr.op, left=left.data, right=right.data)
    if expr.op in "+-":
        check_unit(body, left, right, expr.left.span, expr.right.span, f"`{expr.op}`")
        low, high = (
            (left.low + right.low, left.high + right.high)
            if expr.op == "+"
            else (left.low - right.high, left.high - right.low)
        )
        if expr.op == "-" and left.data == right.data:
            low, high = 0.0, 0.0
        return _fold(Typed(data, left.unit, low, high), left, right)
    if expr.op == "*":
        low, high = multiply(left.interval, right.interval)
        if low == high and math.isinf(low):
            _refuse_endless(body, expr)
        return _fold(Typed(data, multiply_units(left.unit, right.unit), low, high), left, right)
    if expr.op == "/":
        if contains_zero(right.interval):
            right = narrow(body, right)
            if contains_zero(right.interval) and body.facts.get(right.data, Room()).zero:
                _refuse_zero(body, expr, left, right)
        low, high = divide(left.interval, right.interval)
        if left.data == right.data:
            low, high = 1.0, 1.0
        elif _is_share(left.data, right.data):
            low, high = 0.0, 1.0
        return _fold(Typed(data, multiply_units(left.unit, right.unit, -1), low, high), left, right)
    return _calculate_power(body, expr, left, right)


def _calculate_power(body: Body, expr: tree.Binary, left: Typed, right: Typed) -> Typed:
    if left.unit or right.unit:
        fail(body, "E0302", "a power is of plain numbers", expr, "divide by a length first")
    if left.low < 0 and not (right.low == right.high and float(right.low).is_integer()):
        fail(
            body,
            "E0307",
            "a power of what may be negative may be no number",
            expr,
            "take `abs(…)` or `max(…, 0)`" if left.high > 0 else "take `abs(…)`",
        )
    if left.low <= 0 <= left.high and right.low < 0:
        fail(
            body,
            "E0307",
            "a negative power of what may be 0 divides by zero",
            expr,
            f"keep the base above 0: `max(…, {_write_bound(left)})`"
            if left.high > 0
            else "divide by something else",
        )
    data = Infix(fn=expr.op, left=left.data, right=right.data)
    if left.low == left.high and right.low == right.high:
        value = _raise_power(left.low, right.low)
        if math.isinf(value):
            _refuse_endless(body, expr)
        return Typed(data, PLAIN, value, value)
    if _may_overflow(left, right):
        fail(
            body,
            "E0307",
            "this power may be past every number",
            expr,
            "bound it: `min(…, 10)`, or divide first",
        )
    if left.low == left.high > 0:
        ends = _raise_power(left.low, right.low), _raise_power(left.low, right.high)
        return Typed(data, PLAIN, min(ends), max(ends))
    low = 0.0 if left.low >= 0 else -INF
    return Typed(data, PLAIN, low, INF)


def _may_overflow(base: Typed, exponent: Typed) -> bool:
    """Return whether known bounds make a power that no number can hold; False for unknown bounds."""
    if not all(map(math.isfinite, (*base.interval, *exponent.interval))):
        return False
    largest = max(abs(base.low), abs(base.high))
    return math.isinf(_raise_power(largest, exponent.high)) or (
        base.low > 0 and math.isinf(_raise_power(base.low, exponent.low))
    )


def _raise_power(base: float, exponent: float) -> float:
    """Return a power of two constants, or infinity if no number can hold it."""
    try:
        return math.pow(base, exponent)
    except OverflowError:
        return INF


def _refuse_endless(body: Body, expr: tree.Binary) -> NoReturn:
    fail(body, "E0307", "this is larger than any number", expr, "take smaller numbers")


def _fold(result: Typed, left: Typed, right: Typed) -> Typed:
    """Return a constant if both sides are constants, so that the spelling of a number leaves no trace."""
    if left.constant and right.constant and result.low == result.high and math.isfinite(result.low):
        return make_constant(result.low, result.unit)
    return result


def _is_share(part: Expression, whole: Expression) -> bool:
    """Return whether one count is at most another: of the same splits, under the other's conditions and more."""
    wholes = whole.args if isinstance(whole, FunctionCall) and whole.fn == "max" else (whole,)
    return (
        isinstance(part, Aggregate)
        and part.fn == "count"
        and part.empty is None
        and any(
            isinstance(each, Aggregate)
            and (each.fn, each.over, each.var) == ("count", part.over, part.var)
            and _split_conjuncts(each.where) <= _split_conjuncts(part.where)
            for each in wholes
        )
    )


def _split_conjuncts(test: Expression | None) -> set[Expression]:
    """Return the conditions that all hold where this one does."""
    if isinstance(test, Infix) and test.fn == "and":
        return _split_conjuncts(test.left) | _split_conjuncts(test.right)
    return set() if test is None else {test}


def _refuse_zero(body: Body, expr: tree.Binary, left: Typed, right: Typed) -> NoReturn:
    never = right.low == right.high == 0
    helps, edits = ("divide by something else", ()) if never else _keep_from_zero(body, expr, left, right)
    body.ctx.fail(
        "E0307",
        "this divides by zero" if never else "this may divide by zero",
        expr.right.span,
        "0" if never else "may be 0",
        help=helps,
        edits=edits,
    )


def _keep_from_zero(body: Body, expr: tree.Binary, left: Typed, right: Typed) -> tuple[str, tuple[Edit, ...]]:
    """Return how to keep a divisor from 0, in words and as edits: by a bound inside its range, or by a condition."""
    if isinstance(expr.right, tree.Name) and right.open and right.high > 0:
        kind, most = ("tokens", 2.0**20) if right.unit == TOKENS else ("number", 1e6)
        high = min(right.high, most)
        ends = (1.0 if right.unit == TOKENS else min(1e-6, high / 100), high)
        shown_ends = "..".join(write_quantity(Quantity(end, right.unit)) for end in ends)
        return f"give the parameter a range above 0: `{expr.right.name}: {kind} in {shown_ends}`", ()
    whole, divisor = body.ctx.written(expr.span), body.ctx.written(expr.right.span)
    nothing = _write_amount(0.0, multiply_units(left.unit, right.unit, -1))
    test = divisor if isinstance(expr.right, (tree.Name, tree.Call, tree.Binary)) else f"({divisor})"
    test = test if right.condition else f"{test} != {_write_amount(0.0, right.unit)}"
    where = Edit(expr.span, f"({whole} if {test} else {nothing})")
    tested = f"`… if {test if len(test) < 60 else '… != 0'} else {nothing}`"
    if right.condition or right.low < 0 < right.high:
        return f"divide only where it is not 0: {tested}", (where,)
    function, side = ("max", "above") if right.high > 0 else ("min", "below")
    bound = _write_bound(right)
    return (
        f"keep it {side} 0: `{function}(…, {bound})`, or divide only where it is not 0: {tested}",
        (Edit(expr.right.span, f"{function}({divisor}, {bound})"), where),
    )


def _write_bound(value: Typed) -> str:
    """Return a bound of a value of one sign that is inside its range and not 0."""
    size, sign = (value.high, 1) if value.high > 0 else (-value.low, -1)
    return _write_amount(sign * (1.0 if size > 1 else size / 100), value.unit)


def _write_amount(number: float, unit: Dimension) -> str:
    """Return how a number of a unit is written, which may be a power of one."""
    text = format_quantity(Quantity(number))
    for base, exponent in unit:
        text += f" {base}" if exponent > 0 else f" / 1 {base}"
        text += (f" * 1 {base}" if exponent > 0 else f" / 1 {base}") * (abs(exponent) - 1)
    return text


def compare(body: Body, expr: tree.Compare, op: Comparison, left: Typed, right: Typed) -> Typed:
    """Return `left op right` for == != < <= > >=: a condition. E0302 if the units differ."""
    check_unit(body, left, right, expr.left.span, expr.right.span, f"`{op}`")
    low, high = compare_ranges(op, left.interval, right.interval)
    return Typed(Infix(fn=op, left=left.data, right=right.data), PLAIN, low, high, True)


def choose(body: Body, expr: tree.IfElse, test: Typed, then: Typed, other: Typed) -> Typed:
    """Return `then if test else other`. E0302 if the units differ."""
    check_unit(body, then, other, expr.then.span, expr.otherwise.span, "`if … else`")
    data = If(test=test.data, then=then.data, other=other.data)
    taken = [then] if test.low == 1 else [other] if test.high == 0 else [then, other]
    low, high = min(each.low for each in taken), max(each.high for each in taken)
    return Typed(data, then.unit, low, high, then.condition and other.condition)


def _report_still(
    body: Body, name: Function, values: list[tuple[tree.Expr, Typed]], low: float, high: float
) -> None:
    """Report W0303: a bound, written as a number, outside the range of the other values."""
    moving = [value for _, value in values if value.low < value.high]
    # A number that is written out: that of a parameter is another one elsewhere.
    literals = [
        each
        for each, value in values
        if value not in moving
        and isinstance(each.operand if isinstance(each, tree.Unary) else each, tree.Number)
    ]
    if low != high or not moving or len(literals) + len(moving) != len(values):
        return
    (first, one), (last, _) = values[0], values[-1]
    helps, edits = "bound it inside its range, or write the number", list[Edit]()
    if name == "max" and len(moving) == len(literals) == 1 and 0 < moving[0].high <= 1:
        bound = format_quantity(Quantity(moving[0].high / 100, one.unit))
        helps = f"bound it inside its range: `max(…, {bound})`"
        edits.append(Edit(literals[0].span, bound))
    ends = [format_quantity(Quantity(end, one.unit)) for end in moving[0].interval]
    body.ctx.report(
        warning(
            "W0303",
            f"this `{name}` is always {format_quantity(Quantity(low, one.unit))}",
            Span(
                first.span.path, first.span.line, first.span.column, last.span.end_line, last.span.end_column
            ),
            f"from {ends[0]} to {ends[1]} without it",
            help=helps,
            edits=edits,
        )
    )


def apply_function(body: Body, name: Function, values: list[tuple[tree.Expr, Typed]]) -> Typed:
    """Type a function of numbers at as many as it takes. E0302 or E0307 if it has no value."""
    (first_expr, first), function = values[0], FUNCTIONS[name]
    if name == "exp":
        return exponentiate(body, first_expr, first)
    data = FunctionCall(fn=name, args=tuple(value.data for _, value in values))
    if function.plain and first.unit:
        fail(body, "E0302", f"`{name}` wants a plain number", first_expr, "divide by a length first")
    for other_expr, other in values[1:]:
        check_unit(body, first, other, first_expr.span, other_expr.span, f"`{name}`")
    if name == "clip" and values[1][1].low > values[2][1].high:
        turned = f"write the smaller bound first: `clip(…, {values[2][1].low:g}, {values[1][1].low:g})`"
        fail(body, "E0310", "`clip` goes from a greater number to a smaller one", values[1][0], turned)
    domain = function.domain
    if domain is not None and first.low <= 0:
        first = narrow(body, first)
        values = [(first_expr, first)]
        if not domain.contains(first.low):
            helps = domain.mend if first.high > domain.bound else domain.otherwise
            fail(body, "E0307", domain.why, first_expr, helps)
    low, high = function.range(*(value.interval for _, value in values))
    _report_still(body, name, values, low, high)
    return Typed(data, PLAIN if function.plain else first.unit, low, high)


def exponentiate(body: Body, argument: tree.Expr, value: Typed) -> Typed:
    """Return `e^x` of an `argument` whose type is `value`."""
    if value.unit:
        fail(body, "E0302", "`e^` wants a plain number", argument, "divide by a length first")
    if value.high > 700:
        fail(body, "E0307", "e to this may be past every number", argument, "bound it: `clip(…, -20, 20)`")
    return Typed(FunctionCall(fn="exp", args=(value.data,)), PLAIN, *FUNCTIONS["exp"].range(value.interval))
