"""Compute with values: operators with units, comparisons and connectives."""

from __future__ import annotations

import operator
from collections.abc import Callable
from dataclasses import replace
from typing import NoReturn

from reodsl.diagnostics.model import Label
from reodsl.language.context import Context
from reodsl.language.units import LARGEST, PLAIN, Quantity, describe_unit, format_quantity, multiply_units
from reodsl.language.values import Items, Record, Until, Value, describe
from reodsl.syntax import tree

ORDER: dict[str, Callable[[float, float], bool]] = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}


def unary(ctx: Context, expr: tree.Unary, operand: Value) -> Value:
    """Return `-x` or `+x` of a number.

    Raises:
        NoValue: The operand is no number, which was reported.
    """
    data = operand.data
    if not isinstance(data, Quantity):
        ctx.fail(
            "E0301",
            f"`{expr.op}` stands before a number, not before {describe(operand)}",
            expr.span,
            help="write a number",
        )
    literal = operand.literal
    if expr.op != "-":
        return Value(data, expr.span, operand.defined_at, literal)
    if literal is not None:
        literal = replace(literal, value=-literal.value)
    return Value(Quantity(-data.number, data.unit), expr.span, operand.defined_at, literal)


def binary(ctx: Context, expr: tree.Binary, left: Value, right: Value) -> Value:
    """Return `left op right`: sums need equal units, products and quotients combine units, and `+` joins lists.

    Raises:
        NoValue: The operands do not fit the operator, which was reported.
    """
    if isinstance(left.data, Items) and isinstance(right.data, Items) and expr.op == "+":
        joined = left.data.values + right.data.values
        return Value(Items(joined), expr.span, left.defined_at + right.defined_at)
    if isinstance(left.data, Quantity) and isinstance(right.data, Quantity):
        number = _calculate(ctx, expr, left, left.data, right, right.data)
        if not abs(number.number) <= LARGEST:
            ctx.fail(
                "E0303", "this number is past all sense", expr.span, "too large", help="write a smaller one"
            )
        if isinstance(number.number, float) and number.number.is_integer() and number.unit:
            number = Quantity(int(number.number), number.unit)
        return Value(number, expr.span, (left.defined_at + right.defined_at)[:4])
    side = right if isinstance(left.data, Quantity) else left
    ctx.fail(
        "E0301",
        f"`{expr.op}` works on numbers, and this is {describe(side)}",
        side.span,
        describe(side),
        help="a reward is one formula: declare `reward NAME { … }` with both in it"
        if isinstance(side.data, Record) and side.data.kind == "reward"
        else "write a number, or the name of one",
    )


def _calculate(
    ctx: Context, expr: tree.Binary, left: Value, a: Quantity, right: Value, b: Quantity
) -> Quantity:
    """Return the number of `a op b`: an int if both are ints and the result is whole."""
    match expr.op:
        case "+" | "-" if a.unit != b.unit:
            _refuse_units(ctx, expr, left, a, right, b)
        case "+":
            return Quantity(a.number + b.number, a.unit)
        case "-":
            return Quantity(a.number - b.number, a.unit)
        case "*":
            return Quantity(a.number * b.number, multiply_units(a.unit, b.unit))
        case "/" if b.number == 0:
            ctx.fail(
                "E0307",
                "this divides by zero",
                expr.right.span,
                "0",
                labels=[Label(span, text) for span, text in right.defined_at],
                help="divide by a number that cannot be 0",
            )
        case "/":
            unit = multiply_units(a.unit, b.unit, -1)
            if isinstance(a.number, int) and isinstance(b.number, int) and a.number % b.number == 0:
                return Quantity(a.number // b.number, unit)
            return Quantity(a.number / b.number, unit)
    if b.unit or a.unit:
        ctx.fail(
            "E0302",
            "a power is of plain numbers",
            expr.span,
            describe_unit(a.unit or b.unit),
            help="divide by a unit first",
        )
    return Quantity(_power(a.number, b.number), PLAIN)


def _power(base: float, exponent: float) -> float:
    """Return `base^exponent`, or infinity if that has no value or takes too long."""
    try:
        number = base**exponent if abs(exponent) <= 64 and abs(base) <= LARGEST else float("inf")
    except (ZeroDivisionError, OverflowError):
        return float("inf")
    return float("inf") if isinstance(number, complex) else number


def _refuse_units(
    ctx: Context,
    expr: tree.Binary | tree.Compare,
    left: Value,
    first: Quantity,
    right: Value,
    second: Quantity,
) -> NoReturn:
    """Report two numbers in different units. Raises `NoValue`."""
    if first.unit and second.unit:
        helps = "divide by a unit, or compare like with like"
    else:
        number, unit = (second.number, first.unit) if first.unit else (first.number, second.unit)
        helps = f"give the number its unit: `{format_quantity(Quantity(number, unit))}`"
    ctx.fail(
        "E0302",
        f"`{expr.op}` wants equal units",
        left.span,
        describe_unit(first.unit),
        labels=[
            Label(right.span, describe_unit(second.unit)),
            *(Label(s, t) for s, t in left.defined_at + right.defined_at),
        ],
        help=helps,
    )


def compare(ctx: Context, expr: tree.Compare, left: Value, right: Value) -> Value:
    """Compute a comparison: true or false.

    Raises:
        NoValue: The operands cannot be compared, which was reported.
    """
    if isinstance(left.data, Quantity) and isinstance(right.data, Quantity):
        if left.data.unit != right.data.unit:
            _refuse_units(ctx, expr, left, left.data, right, right.data)
        if expr.op in ORDER:
            return Value(ORDER[expr.op](left.data.number, right.data.number), expr.span)
        if expr.op in ("==", "!="):
            return Value((left.data.number == right.data.number) == (expr.op == "=="), expr.span)
    elif expr.op in ("==", "!=") and _comparable(left, right):
        return Value((left.data == right.data) == (expr.op == "=="), expr.span)
    ctx.fail(
        "E0301",
        f"`{expr.op}` cannot compare {describe(left)} with {describe(right)}",
        expr.span,
        help="compare numbers",
    )


def _comparable(left: Value, right: Value) -> bool:
    """Return whether two values may be equal at all."""
    records = isinstance(left.data, Record) and isinstance(right.data, Record)
    return records or type(left.data) is type(right.data)


def logic(ctx: Context, expr: tree.Logic, left: Value, right: Value) -> Value:
    """Return `and` or `or` of conditions, or `plateau(…) or steps(…)` of the ways in which a stage ends.

    Raises:
        NoValue: The operands are neither conditions nor ends of a stage, which was reported.
    """
    if isinstance(left.data, bool) and isinstance(right.data, bool):
        return Value(left.data and right.data if expr.op == "and" else left.data or right.data, expr.span)
    ends = {side.data.kind: side.data for side in (left, right) if isinstance(side.data, Record)}
    steps = ends.get("until")
    if expr.op == "or" and set(ends) == {"plateau", "until"} and isinstance(steps, Until):
        return Value(replace(steps, span=expr.span, plateau=ends["plateau"]), expr.span)
    ctx.fail(
        "E0301",
        f"`{expr.op}` joins conditions, and these are {describe(left)} and {describe(right)}",
        expr.span,
        help="a stage ends by `plateau(…) or steps(…)`" if ends else "compare something first",
    )


def negation(ctx: Context, expr: tree.Not, operand: Value) -> Value:
    """Return `not x` of a condition.

    Raises:
        NoValue: The operand is no condition, which was reported.
    """
    if isinstance(operand.data, bool):
        return Value(not operand.data, expr.span)
    ctx.fail(
        "E0301",
        f"`not` stands before a condition, not before {describe(operand)}",
        expr.span,
        help=f"compare it: `not {ctx.text_at(expr.operand.span)} > 0`",
    )
