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
    Attribute,
    Constant,
    Correct,
    CutAnswer,
    Domain,
    Expression,
    ForcedAnswer,
    Function,
    FunctionCall,
    If,
    Infix,
    Length,
    Negation,
    Variable,
)
from reodsl.language.reward.names import (
    INF,
    Facts,
    FormulaScope,
    TypedExpr,
    ValueRange,
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


def negate(value: TypedExpr) -> TypedExpr:
    """Return `-x`."""
    if value.constant:
        return make_constant(-value.low, value.unit)
    return TypedExpr(Negation(fn="neg", value=value.data), value.unit, -value.high, -value.low)


def invert(test: TypedExpr) -> TypedExpr:
    """Return `not x`."""
    return TypedExpr(Negation(fn="not", value=test.data), PLAIN, 1 - test.high, 1 - test.low, True)


def connect(body: FormulaScope, op: tree.LogicOp, left: TypedExpr, right: TypedExpr) -> TypedExpr:
    """Return `left and right` or `left or right`."""
    end = min if op == "and" else max
    ends = end(left.low, right.low), end(left.high, right.high)
    if op == "and" and _exclude(list_facts(body, left.data), list_facts(body, right.data)):
        ends = 0.0, 0.0
    if op == "or" and _exclude(list_facts(body, left.data, False), list_facts(body, right.data, False)):
        ends = 1.0, 1.0
    return TypedExpr(Infix(fn=op, left=left.data, right=right.data), PLAIN, *ends, True)


def list_facts(body: FormulaScope, test: Expression, holds: bool = True) -> dict[Expression, ValueRange]:
    """Return the range of each value that a condition is about, if it `holds` or if it does not."""
    if isinstance(test, Negation) and test.fn == "not":
        return list_facts(body, test.value, not holds)
    if isinstance(test, Infix) and test.fn in ("and", "or"):
        left, right = list_facts(body, test.left, holds), list_facts(body, test.right, holds)
        if (test.fn == "and") == holds:
            return combine_facts(left, right)
        return {expr: fact.unite(right[expr]) for expr, fact in left.items() if expr in right}
    ranges: dict[Expression, ValueRange] = {test: ValueRange(1, 1) if holds else ValueRange(0, 0)}
    if isinstance(test, Variable):
        ranges |= body.tests.get(test, ({}, {}))[not holds]
    if isinstance(test, Infix) and test.fn in _MIRRORED:
        fn = test.fn if holds else _OPPOSITE[test.fn]
        for op, a, b in ((fn, test.left, test.right), (_MIRRORED[fn], test.right, test.left)):
            ranges[Infix(fn="-", left=a, right=b)] = _make_range(op, 0.0)
            if isinstance(b, Constant):
                ranges[a] = _make_range(op, b.value)
    return ranges


def combine_facts(a: Facts, b: Facts) -> dict[Expression, ValueRange]:
    """Return the facts of two conditions that both hold."""
    return {**a, **{expr: fact.intersect(a.get(expr, ValueRange())) for expr, fact in b.items()}}


def _exclude(a: Facts, b: Facts) -> bool:
    """Return whether two conditions never hold together, since they leave no value to an expression."""
    return any(fact.empty for fact in combine_facts(a, b).values())


def _make_range(op: str, limit: float) -> ValueRange:
    """Return the range of a value that is compared with a constant."""
    match op:
        case "!=":
            return ValueRange(zero=limit != 0)
        case ">":
            return ValueRange(low=math.nextafter(limit, INF))
        case ">=":
            return ValueRange(low=limit)
        case "<":
            return ValueRange(high=math.nextafter(limit, -INF))
        case "<=":
            return ValueRange(high=limit)
    return ValueRange(limit, limit)


_MIRRORED: Mapping[str, Comparison] = {"<": ">", "<=": ">=", ">": "<", ">=": "<=", "==": "==", "!=": "!="}
_OPPOSITE: Mapping[str, Comparison] = {"<": ">=", "<=": ">", ">": "<=", ">=": "<", "==": "!=", "!=": "=="}


def name_value(body: FormulaScope, name: str, value: TypedExpr) -> TypedExpr:
    """Return a value under the name of a `let`; as a condition it has the facts of the value."""
    it = Variable(name=name)
    if _is_integer(body, value.data):
        body.integers.add(name)
    if value.condition:
        body.tests[it] = list_facts(body, value.data), list_facts(body, value.data, False)
    return TypedExpr(it, value.unit, value.low, value.high, value.condition)


def narrow(body: FormulaScope, value: TypedExpr) -> TypedExpr:
    """Return a value with the range that the conditions around it leave."""
    fact = body.facts.get(value.data) if body.facts and not value.constant else None
    if fact is None:
        return value
    low, high = fact.clip(value.low, value.high)
    return replace(value, low=low, high=high)


def calculate(body: FormulaScope, expr: tree.Binary, left: TypedExpr, right: TypedExpr) -> TypedExpr:
    """Return `left op right` for + - * / ^.

    Raises:
        NoValue: E0302 if the units do not fit, E0307 if the result may be no number.
    """
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
        return _fold(TypedExpr(data, left.unit, low, high), left, right)
    if expr.op == "*":
        low, high = multiply(left.interval, right.interval)
        if low == high and math.isinf(low):
            _refuse_infinite(body, expr)
        return _fold(TypedExpr(data, multiply_units(left.unit, right.unit), low, high), left, right)
    if expr.op == "/":
        if contains_zero(right.interval):
            right = narrow(body, right)
            if contains_zero(right.interval) and body.facts.get(right.data, ValueRange()).zero:
                _refuse_zero(body, expr, left, right)
        low, high = divide(left.interval, right.interval)
        if left.data == right.data:
            low, high = 1.0, 1.0
        elif _is_share(left.data, right.data):
            low, high = 0.0, 1.0
        return _fold(TypedExpr(data, multiply_units(left.unit, right.unit, -1), low, high), left, right)
    return _calculate_power(body, expr, left, right)


def _calculate_power(body: FormulaScope, expr: tree.Binary, left: TypedExpr, right: TypedExpr) -> TypedExpr:
    """Return `left ^ right`.

    Raises:
        NoValue: E0302 if an operand has a unit, E0307 if the power may be no number.
    """
    if left.unit or right.unit:
        side, span = (left, expr.left.span) if left.unit else (right, expr.right.span)
        refuse_unit(body, "a power is of plain numbers", side, span, operand=True)
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
        if contains_zero(nonzero.interval) and body.facts.get(left.data, ValueRange()).zero:
            hint, edits = _guard_zero(body, expr, left, left, expr.left)
            fail(body, "E0307", "a negative power of what may be 0 divides by zero", expr, hint, edits)
    data = Infix(fn=expr.op, left=left.data, right=right.data)
    if left.low == left.high and right.low == right.high:
        value = _raise_power(left.low, right.low)
        if math.isinf(value):
            _refuse_infinite(body, expr)
        return TypedExpr(data, PLAIN, value, value)
    if _may_overflow(left, right):
        hint, edits = _bound_power(body, expr, left, right)
        fail(body, "E0307", "this power may be past every number", expr, hint, edits)
    if left.low == left.high > 0:
        ends = _raise_power(left.low, right.low), _raise_power(left.low, right.high)
        return TypedExpr(data, PLAIN, min(ends), max(ends))
    low = 0.0 if left.low >= 0 else -INF
    return TypedExpr(data, PLAIN, low, INF)


def _may_overflow(base: TypedExpr, exponent: TypedExpr) -> bool:
    """Return whether known bounds make a power that no number can hold; False for unknown bounds."""
    if not all(map(math.isfinite, (*base.interval, *exponent.interval))):
        return False
    largest = max(abs(base.low), abs(base.high))
    return math.isinf(_raise_power(largest, exponent.high)) or (
        base.low > SMALLEST and math.isinf(_raise_power(base.low, exponent.low))
    )


SMALLEST = 1e-300
"""A base of at least this is bounded away from 0, and not only known to be none."""


def _bound_power(
    body: FormulaScope, expr: tree.Binary, left: TypedExpr, right: TypedExpr
) -> tuple[str, tuple[Edit, ...]]:
    """Return how to keep a power finite: by a bound on the operand that varies."""
    span, text = expr.left.span, body.ctx.text_at(expr.left.span)
    if left.constant:
        span, text = expr.right.span, body.ctx.text_at(expr.right.span)
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
    return f"bound it: `{form.format('…')}`", (Edit(span, form.format(text)),)


MOST_DIGITS = 307
"""Decimal digits of the largest numbers."""


def _raise_power(base: float, exponent: float) -> float:
    """Return a power of two constants, or infinity if no number can hold it."""
    try:
        return math.pow(base, exponent)
    except OverflowError:
        return INF


def _refuse_infinite(body: FormulaScope, expr: tree.Binary) -> NoReturn:
    """Report E0307: a constant is larger than any number."""
    fail(body, "E0307", "this is larger than any number", expr, "take smaller numbers")


def _fold(result: TypedExpr, left: TypedExpr, right: TypedExpr) -> TypedExpr:
    """Return a constant if both sides are constants, so that the spelling of a number leaves no trace."""
    if left.constant and right.constant and result.low == result.high and math.isfinite(result.low):
        return make_constant(result.low, result.unit)
    return result


def _is_share(count: Expression, total: Expression) -> bool:
    """Return whether a count is at most another count: over the same splits, under its conditions and more."""
    totals = total.args if isinstance(total, FunctionCall) and total.fn == "max" else (total,)
    return (
        isinstance(count, Aggregate)
        and count.fn == "count"
        and count.empty is None
        and any(
            isinstance(item, Aggregate)
            and (item.fn, item.over, item.var) == ("count", count.over, count.var)
            and _split_conjuncts(item.where) <= _split_conjuncts(count.where)
            for item in totals
        )
    )


def _split_conjuncts(test: Expression | None) -> set[Expression]:
    """Return the conditions that a condition joins by `and`."""
    if isinstance(test, Infix) and test.fn == "and":
        return _split_conjuncts(test.left) | _split_conjuncts(test.right)
    return set() if test is None else {test}


def _refuse_zero(body: FormulaScope, expr: tree.Binary, left: TypedExpr, right: TypedExpr) -> NoReturn:
    """Report E0307: a division by 0, certain or possible.

    Raises:
        NoValue: Always.
    """
    never = right.low == right.high == 0
    hint, edits = ("divide by something else", ()) if never else _suggest_nonzero(body, expr, left, right)
    body.ctx.fail(
        "E0307",
        "this divides by zero" if never else "this may divide by zero",
        expr.right.span,
        "0" if never else "may be 0",
        help=hint,
        edits=edits,
    )


def _suggest_nonzero(
    body: FormulaScope, expr: tree.Binary, left: TypedExpr, right: TypedExpr
) -> tuple[str, tuple[Edit, ...]]:
    """Return how to keep a divisor from 0, in words and as edits; no edit changes another value of the quotient."""
    param = body.env.params.get(expr.right.name) if isinstance(expr.right, tree.Name) and right.open else None
    if param is not None and right.high > 0:
        kind = body.ctx.text_at(param.type.span)
        most = min(right.high, 2.0**20 if right.unit == TOKENS else 1e6)
        least = 1.0 if right.unit in (TOKENS, STEPS) or kind == "int" else min(1e-6, most / 100)
        ends = "..".join(write_quantity(Quantity(end, right.unit)) for end in (least, most))
        declared = f"{param.name.name}: {kind} in {ends}"
        return f"give the parameter a range above 0: `{declared}`", (Edit(param.span, declared),)
    quotient = replace(left, unit=multiply_units(left.unit, right.unit, -1))
    return _guard_zero(body, expr, right, quotient, expr.right)


def _guard_zero(
    body: FormulaScope, expr: tree.Binary, value: TypedExpr, result: TypedExpr, operand: tree.Expr
) -> tuple[str, tuple[Edit, ...]]:
    """Return how to keep an operand from 0: by a condition, or by a bound at 1 for an integer.

    `result` has the unit of the operation.
    """
    hint = "divide only where it is not 0" if expr.op == "/" else "say what it is where the base is 0"
    source, text = body.ctx.text_at(expr.span), body.ctx.text_at(operand.span)
    nothing = write_amount(0.0, result.unit)
    test = text if isinstance(operand, (tree.Name, tree.Call, tree.Binary)) else f"({text})"
    test = test if value.condition else f"{test} != {write_amount(0.0, value.unit)}"
    condition = Edit(expr.span, f"({source} if {test} else {nothing})")
    tested = f"`… if {test if len(test) < 60 else '… != 0'} else {nothing}`"
    bounded = max(abs(value.low), abs(value.high)) > 1 and _is_integer(body, value.data)
    if value.condition or value.low < 0 < value.high or not bounded:
        return f"{hint}: {tested}", (condition,)
    function, side = ("max", "above") if value.high > 0 else ("min", "below")
    bound = write_amount(1.0 if value.high > 0 else -1.0, value.unit)
    return (
        f"keep it {side} 0: `{function}(…, {bound})`, or {hint}: {tested}",
        (Edit(operand.span, f"{function}({text}, {bound})"), condition),
    )


def _is_integer(body: FormulaScope, data: Expression) -> bool:
    """Return whether an expression is an integer, so that a bound at 1 changes no value but 0."""

    def are_ints(*operands: Expression | None) -> bool:
        return all(operand is None or _is_integer(body, operand) for operand in operands)

    match data:
        case Length() | Correct() | ForcedAnswer() | CutAnswer():
            return True
        case Constant():
            return data.value.is_integer()
        case Attribute():
            reading = READINGS.get(data.field)
            return reading is not None and (reading.tokens or reading.condition)
        case Variable():
            return data.name in body.integers
        case Aggregate(fn="count"):
            return True
        case Aggregate(fn="sum" | "min" | "max"):
            return are_ints(data.value, data.empty)
        case Infix(fn="+" | "-" | "*"):
            return are_ints(data.left, data.right)
        case Infix():
            return data.fn not in ("/", "^")
        case Negation():
            return data.fn != "neg" or are_ints(data.value)
        case FunctionCall():
            return data.fn == "floor" or (data.fn in ("abs", "min", "max", "clip") and are_ints(*data.args))
        case If():
            return are_ints(data.then, data.other)
    return False


def compare(
    body: FormulaScope, expr: tree.Compare, op: Comparison, left: TypedExpr, right: TypedExpr
) -> TypedExpr:
    """Return `left op right` for == != < <= > >=, a condition.

    Raises:
        NoValue: E0302 if the units differ.
    """
    check_unit(body, left, right, expr.left.span, expr.right.span, f"`{op}`")
    low, high = compare_ranges(op, left.interval, right.interval)
    return TypedExpr(Infix(fn=op, left=left.data, right=right.data), PLAIN, low, high, True)


def choose(
    body: FormulaScope, expr: tree.IfElse, test: TypedExpr, then: TypedExpr, other: TypedExpr
) -> TypedExpr:
    """Return `then if test else other`.

    Raises:
        NoValue: E0302 if the units differ.
    """
    check_unit(body, then, other, expr.then.span, expr.otherwise.span, "`if … else`")
    data = If(test=test.data, then=then.data, other=other.data)
    branches = [then] if test.low == 1 else [other] if test.high == 0 else [then, other]
    low, high = min(branch.low for branch in branches), max(branch.high for branch in branches)
    return TypedExpr(data, then.unit, low, high, then.condition and other.condition)


def _report_idle_bound(
    body: FormulaScope, name: Function, values: list[tuple[tree.Expr, TypedExpr]], low: float, high: float
) -> None:
    """Report W0303: a bound, written as a number, outside the range of the other values."""
    varying = [value for _, value in values if value.low < value.high]
    # A number that is written out: that of a parameter is another one elsewhere.
    literals = [
        item
        for item, value in values
        if value not in varying
        and isinstance(item.operand if isinstance(item, tree.Unary) else item, tree.Number)
    ]
    if low != high or not varying or len(literals) + len(varying) != len(values):
        return
    (first, typed), (last, _) = values[0], values[-1]
    hint, edits = "bound it inside its range, or write the number", list[Edit]()
    if name == "max" and len(varying) == len(literals) == 1 and 0 < varying[0].high <= 1:
        bound = format_quantity(Quantity(varying[0].high / 100, typed.unit))
        hint = f"bound it inside its range: `max(…, {bound})`"
        edits.append(Edit(literals[0].span, bound))
    ends = [format_quantity(Quantity(end, typed.unit)) for end in varying[0].interval]
    body.ctx.report(
        warning(
            "W0303",
            f"this `{name}` is always {format_quantity(Quantity(low, typed.unit))}",
            Span(
                first.span.path, first.span.line, first.span.column, last.span.end_line, last.span.end_column
            ),
            f"from {ends[0]} to {ends[1]} without it",
            help=hint,
            edits=edits,
        )
    )


def apply_function(
    body: FormulaScope, call: tree.Call, name: Function, values: list[tuple[tree.Expr, TypedExpr]]
) -> TypedExpr:
    """Return a call of a function of numbers; `values` are its arguments, as written and typed.

    Raises:
        NoValue: E0302 if units differ, E0307 if the function may have no value.
    """
    (first_expr, first), function = values[0], FUNCTIONS[name]
    if name == "exp":
        return exponentiate(body, first_expr, first)
    data = FunctionCall(fn=name, args=tuple(value.data for _, value in values))
    if function.plain and first.unit:
        refuse_unit(body, f"`{name}` wants a plain number", first, first_expr.span)
    for other_expr, other in values[1:]:
        check_unit(body, first, other, first_expr.span, other_expr.span, f"`{name}`")
    if name == "clip" and values[1][1].low > values[2][1].high:
        ends = [write_amount(values[i][1].low, first.unit) for i in (2, 1)]
        hint = f"write the smaller bound first: `clip(…, {', '.join(ends)})`"
        swap = Edit(call.span, f"clip({body.ctx.text_at(first_expr.span)}, {', '.join(ends)})")
        fail(body, "E0310", "`clip` goes from a greater number to a smaller one", values[1][0], hint, [swap])
    domain = function.domain
    if domain is not None and first.low <= 0:
        first = narrow(body, first)
        values = [(first_expr, first)]
        if not domain.contains(first.low):
            hint, edit = _enter_domain(body, call, domain, first_expr, first)
            fail(body, "E0307", domain.why, first_expr, hint, [edit])
    low, high = function.range(*(value.interval for _, value in values))
    _report_idle_bound(body, name, values, low, high)
    return TypedExpr(data, PLAIN if function.plain else first.unit, low, high)


def _enter_domain(
    body: FormulaScope, call: tree.Call, domain: Domain, argument: tree.Expr, value: TypedExpr
) -> tuple[str, Edit]:
    """Return how to keep an argument in a function's domain, in words and as an edit that changes no other value."""
    text = body.ctx.text_at(argument.span)
    if value.high <= 0:
        return (
            f"take what it is away from 0: `{domain.otherwise.format('…')}`",
            Edit(argument.span, domain.otherwise.format(text)),
        )
    if not domain.open:
        return "keep it at 0 or above: `max(…, 0)`", Edit(argument.span, f"max({text}, 0)")
    if value.high > 1 and _is_integer(body, value.data):
        return "keep it above 0: `max(…, 1)`", Edit(argument.span, f"max({text}, 1)")
    name = body.ctx.text_at(call.function.span)
    return (
        f"say what it is at 0: `{name}(…) if … > 0 else {name}(1e-6)`",
        Edit(call.span, f"({name}({text}) if {bracket(text)} > 0 else {name}(1e-6))"),
    )


def exponentiate(body: FormulaScope, argument: tree.Expr, value: TypedExpr) -> TypedExpr:
    """Return `e^x` of an `argument` whose type is `value`.

    Raises:
        NoValue: E0302 if it has a unit, E0307 if the power may be no number.
    """
    if value.unit:
        refuse_unit(body, "`e^` wants a plain number", value, argument.span, operand=True)
    if value.high > 700:
        edit = Edit(argument.span, f"min({body.ctx.text_at(argument.span)}, 700)")
        fail(body, "E0307", "e to this may be past every number", argument, "bound it: `min(…, 700)`", [edit])
    return TypedExpr(
        FunctionCall(fn="exp", args=(value.data,)), PLAIN, *FUNCTIONS["exp"].range(value.interval)
    )
