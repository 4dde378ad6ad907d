"""Type operators and functions of rewards: from typed operands to the result, with the range of its values.

All of them raise `NoValue` if there is no result.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Literal, NoReturn, TypeAlias

from reodsl.diagnostics.model import Edit, Span, warning
from reodsl.ir.expression import (
    FUNCTIONS,
    READINGS,
    Aggregate,
    Bare,
    Constant,
    Correct,
    Domain,
    Expression,
    ForcedAnswer,
    Function,
    FunctionCall,
    Given,
    If,
    Infix,
    Length,
    Negation,
    Variable,
)
from reodsl.language.reward.names import (
    INF,
    Body,
    Room,
    Typed,
    bracket,
    check_unit,
    compare_ranges,
    contains_zero,
    divide,
    fail,
    make_constant,
    multiply,
    refuse_unit,
)
from reodsl.language.units import (
    PLAIN,
    STEPS,
    TOKENS,
    Quantity,
    format_quantity,
    multiply_units,
    write_amount,
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
    if _is_whole(body, value.data):
        body.wholes.add(name)
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
        side, at = (left, expr.left.span) if left.unit else (right, expr.right.span)
        refuse_unit(body, "a power is of plain numbers", side, at, operand=True)
    base, ways = body.ctx.text_at(expr.left.span), ("abs({})", "max({}, 0)")[: 1 + (left.high > 0)]
    if left.low < 0 and not (right.low == right.high and float(right.low).is_integer()):
        fail(
            body,
            "E0307",
            "a power of what may be negative may be no number",
            expr,
            "take " + " or ".join(f"`{way.format('…')}`" for way in ways),
            [Edit(expr.left.span, way.format(base)) for way in ways],
        )
    if contains_zero(left.interval) and right.low < 0:
        nonzero = narrow(body, left)
        if contains_zero(nonzero.interval) and body.facts.get(left.data, Room()).zero:
            helps, edits = _say_at_zero(body, expr, left, left, expr.left)
            fail(body, "E0307", "a negative power of what may be 0 divides by zero", expr, helps, edits)
    data = Infix(fn=expr.op, left=left.data, right=right.data)
    if left.low == left.high and right.low == right.high:
        value = _raise_power(left.low, right.low)
        if math.isinf(value):
            _refuse_endless(body, expr)
        return Typed(data, PLAIN, value, value)
    if _may_overflow(left, right):
        helps, edits = _bound_power(body, expr, left, right)
        fail(body, "E0307", "this power may be past every number", expr, helps, edits)
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
        base.low > SMALLEST and math.isinf(_raise_power(base.low, exponent.low))
    )


SMALLEST = 1e-300
"""A base of at least this is bounded away from 0, and not only known to be none."""


def _bound_power(body: Body, expr: tree.Binary, left: Typed, right: Typed) -> tuple[str, tuple[Edit, ...]]:
    """Return how to keep a power a number: by a bound past which it would be none, of the side that moves."""
    at, text = expr.left.span, body.ctx.text_at(expr.left.span)
    if left.constant:
        at, text = expr.right.span, body.ctx.text_at(expr.right.span)
        most = math.floor(MOST_DIGITS / abs(math.log10(abs(left.low))))
        form = f"min({{}}, {most})" if abs(left.low) > 1 else f"max({{}}, -{most})"
    elif max(abs(left.low), abs(left.high)) > 1 and right.high > 0:
        bound = f"1e{math.floor(MOST_DIGITS / right.high)}"
        form = f"clip({{}}, -{bound}, {bound})" if left.low < 0 else f"min({{}}, {bound})"
        if right.high > MOST_DIGITS:
            return "take a smaller power", ()
    else:
        form = f"max({{}}, 1e-{math.floor(MOST_DIGITS / abs(right.low))})"
        if abs(right.low) > MOST_DIGITS:
            return "take a smaller power", ()
    return f"bound it: `{form.format('…')}`", (Edit(at, form.format(text)),)


MOST_DIGITS = 307
"""Decimal digits of the largest numbers."""


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
    """Return how to keep a divisor from 0, in words and as edits, of which none changes another value of the quotient."""
    param = body.env.params.get(expr.right.name) if isinstance(expr.right, tree.Name) and right.open else None
    if param is not None and right.high > 0:
        kind = body.ctx.text_at(param.type.span)
        most = min(right.high, 2.0**20 if right.unit == TOKENS else 1e6)
        least = 1.0 if right.unit in (TOKENS, STEPS) or kind == "int" else min(1e-6, most / 100)
        ends = "..".join(write_quantity(Quantity(end, right.unit)) for end in (least, most))
        declared = f"{param.name.name}: {kind} in {ends}"
        return f"give the parameter a range above 0: `{declared}`", (Edit(param.span, declared),)
    quotient = replace(left, unit=multiply_units(left.unit, right.unit, -1))
    return _say_at_zero(body, expr, right, quotient, expr.right)


def _say_at_zero(
    body: Body, expr: tree.Binary, value: Typed, result: Typed, part: tree.Expr
) -> tuple[str, tuple[Edit, ...]]:
    """Return how to keep a part of an operation from 0: by a condition, or a whole number by a bound that is its next.

    `result` has the unit of the operation.
    """
    advice = "divide only where it is not 0" if expr.op == "/" else "say what it is where the base is 0"
    whole, text = body.ctx.text_at(expr.span), body.ctx.text_at(part.span)
    nothing = write_amount(0.0, result.unit)
    test = text if isinstance(part, (tree.Name, tree.Call, tree.Binary)) else f"({text})"
    test = test if value.condition else f"{test} != {write_amount(0.0, value.unit)}"
    condition = Edit(expr.span, f"({whole} if {test} else {nothing})")
    tested = f"`… if {test if len(test) < 60 else '… != 0'} else {nothing}`"
    bounded = max(abs(value.low), abs(value.high)) > 1 and _is_whole(body, value.data)
    if value.condition or value.low < 0 < value.high or not bounded:
        return f"{advice}: {tested}", (condition,)
    function, side = ("max", "above") if value.high > 0 else ("min", "below")
    bound = write_amount(1.0 if value.high > 0 else -1.0, value.unit)
    return (
        f"keep it {side} 0: `{function}(…, {bound})`, or {advice}: {tested}",
        (Edit(part.span, f"{function}({text}, {bound})"), condition),
    )


def _is_whole(body: Body, data: Expression) -> bool:
    """Return whether an expression is a whole number, or a whole number of tokens: a bound at 1 changes nothing but 0."""

    def are_whole(*parts: Expression | None) -> bool:
        return all(part is None or _is_whole(body, part) for part in parts)

    match data:
        case Length() | Correct() | ForcedAnswer() | Bare():
            return True
        case Constant():
            return data.value.is_integer()
        case Given():
            reading = READINGS.get(data.field)
            return reading is not None and (reading.tokens or reading.condition)
        case Variable():
            return data.name in body.wholes
        case Aggregate(fn="count"):
            return True
        case Aggregate(fn="sum" | "min" | "max"):
            return are_whole(data.value, data.empty)
        case Infix(fn="+" | "-" | "*"):
            return are_whole(data.left, data.right)
        case Infix():
            return data.fn not in ("/", "^")
        case Negation():
            return data.fn != "neg" or are_whole(data.value)
        case FunctionCall():
            return data.fn == "floor" or (data.fn in ("abs", "min", "max", "clip") and are_whole(*data.args))
        case If():
            return are_whole(data.then, data.other)
    return False


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


def apply_function(
    body: Body, call: tree.Call, name: Function, values: list[tuple[tree.Expr, Typed]]
) -> Typed:
    """Type a call of a function of numbers at as many as it takes. E0302 or E0307 if it has no value."""
    (first_expr, first), function = values[0], FUNCTIONS[name]
    if name == "exp":
        return exponentiate(body, first_expr, first)
    data = FunctionCall(fn=name, args=tuple(value.data for _, value in values))
    if function.plain and first.unit:
        refuse_unit(body, f"`{name}` wants a plain number", first, first_expr.span)
    for other_expr, other in values[1:]:
        check_unit(body, first, other, first_expr.span, other_expr.span, f"`{name}`")
    if name == "clip" and values[1][1].low > values[2][1].high:
        ends = [write_amount(values[at][1].low, first.unit) for at in (2, 1)]
        turned = f"write the smaller bound first: `clip(…, {', '.join(ends)})`"
        whole = Edit(call.span, f"clip({body.ctx.text_at(first_expr.span)}, {', '.join(ends)})")
        fail(
            body, "E0310", "`clip` goes from a greater number to a smaller one", values[1][0], turned, [whole]
        )
    domain = function.domain
    if domain is not None and first.low <= 0:
        first = narrow(body, first)
        values = [(first_expr, first)]
        if not domain.contains(first.low):
            helps, edit = _enter_domain(body, call, domain, first_expr, first)
            fail(body, "E0307", domain.why, first_expr, helps, [edit])
    low, high = function.range(*(value.interval for _, value in values))
    _report_still(body, name, values, low, high)
    return Typed(data, PLAIN if function.plain else first.unit, low, high)


def _enter_domain(
    body: Body, call: tree.Call, domain: Domain, argument: tree.Expr, value: Typed
) -> tuple[str, Edit]:
    """Return how a function gets a value where its argument leaves it, in words and as an edit; others are not changed."""
    text = body.ctx.text_at(argument.span)
    if value.high <= 0:
        return (
            f"take what it is away from 0: `{domain.otherwise.format('…')}`",
            Edit(argument.span, domain.otherwise.format(text)),
        )
    if not domain.open:
        return "keep it at 0 or above: `max(…, 0)`", Edit(argument.span, f"max({text}, 0)")
    if value.high > 1 and _is_whole(body, value.data):
        return "keep it above 0: `max(…, 1)`", Edit(argument.span, f"max({text}, 1)")
    name = body.ctx.text_at(call.function.span)
    return (
        f"say what it is at 0: `{name}(…) if … > 0 else {name}(1e-6)`",
        Edit(call.span, f"({name}({text}) if {bracket(text)} > 0 else {name}(1e-6))"),
    )


def exponentiate(body: Body, argument: tree.Expr, value: Typed) -> Typed:
    """Return `e^x` of an `argument` whose type is `value`."""
    if value.unit:
        refuse_unit(body, "`e^` wants a plain number", value, argument.span, operand=True)
    if value.high > 700:
        edit = Edit(argument.span, f"min({body.ctx.text_at(argument.span)}, 700)")
        fail(body, "E0307", "e to this may be past every number", argument, "bound it: `min(…, 700)`", [edit])
    return Typed(FunctionCall(fn="exp", args=(value.data,)), PLAIN, *FUNCTIONS["exp"].range(value.interval))
