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
    """Return the value of `-x` or `+x` for a number x.

    Args:
        ctx: The state of the evaluation, to which errors are reported.
        expr: The expression in the syntax tree.
        operand: The value of x.

    Raises:
        NoValue: The operand is not a number; E0301 was reported.
    """
    data = operand.data
    if not isinstance(data, Quantity):
        ctx.fail(
            "E0301",
            f"`{expr.op}` needs a number, not {describe(operand)}",
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
    """Return the value of `left op right` for two numbers, or the joined list for two lists and `+`.

    A sum or difference needs equal units; products and quotients combine units.

    Args:
        ctx: The state of the evaluation, to which errors are reported.
        expr: The expression in the syntax tree, with the operator.
        left: The value of the left operand.
        right: The value of the right operand.

    Raises:
        NoValue: The operands do not fit the operator, or the result is too large; the error was reported.
    """
    if isinstance(left.data, Items) and isinstance(right.data, Items) and expr.op == "+":
        joined = left.data.values + right.data.values
        return Value(Items(joined), expr.span, left.defined_at + right.defined_at)
    if isinstance(left.data, Quantity) and isinstance(right.data, Quantity):
        result = _calculate(ctx, expr, left, left.data, right, right.data)
        if not abs(result.number) <= LARGEST:
            ctx.fail("E0303", "this number is too large", expr.span, "too large", help="write a smaller one")
        if isinstance(result.number, float) and result.number.is_integer() and result.unit:
            result = Quantity(int(result.number), result.unit)
        return Value(result, expr.span, (left.defined_at + right.defined_at)[:4])
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
    """Return the result of an operator on two numbers; it is an int if both are ints and the result is whole.

    Args:
        ctx: The state of the evaluation, to which errors are reported.
        expr: The expression in the syntax tree, with the operator.
        left: The left operand, for error messages.
        a: The number and unit of the left operand.
        right: The right operand, for error messages.
        b: The number and unit of the right operand.

    Raises:
        NoValue: The units do not fit, or the right number of a division is 0; the error was reported.
    """
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
            "a power needs plain numbers",
            expr.span,
            describe_unit(a.unit or b.unit),
            help="divide by a unit first",
        )
    return Quantity(_power(a.number, b.number), PLAIN)


def _power(base: float, exponent: float) -> float:
    """Return `base^exponent`; infinity if the power is not a real number, overflows, or would take too long.

    Exponents beyond 64 and bases beyond `LARGEST` count as too long.
    """
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
    """Report E0302 for two numbers whose units differ, with a help line.

    Args:
        ctx: The state of the evaluation, to which errors are reported.
        expr: The expression in the syntax tree, with the operator.
        left: The left operand, for its span.
        first: The number and unit of the left operand.
        right: The right operand, for its span.
        second: The number and unit of the right operand.

    Raises:
        NoValue: Always.
    """
    if first.unit and second.unit:
        advice = "divide by a unit, or use values in the same unit"
    else:
        number, unit = (second.number, first.unit) if first.unit else (first.number, second.unit)
        advice = f"give the number its unit: `{format_quantity(Quantity(number, unit))}`"
    ctx.fail(
        "E0302",
        f"`{expr.op}` needs equal units",
        left.span,
        describe_unit(first.unit),
        labels=[
            Label(right.span, describe_unit(second.unit)),
            *(Label(s, t) for s, t in left.defined_at + right.defined_at),
        ],
        help=advice,
    )


def compare(ctx: Context, expr: tree.Compare, left: Value, right: Value) -> Value:
    """Return the value, true or false, of a comparison.

    Numbers can be compared by all operators if their units are equal; other values only by `==` and `!=`.

    Args:
        ctx: The state of the evaluation, to which errors are reported.
        expr: The comparison in the syntax tree, with the operator.
        left: The value of the left operand.
        right: The value of the right operand.

    Raises:
        NoValue: The operands cannot be compared; the error was reported.
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
    """Return whether `==` may compare two values: both are records, or their data have the same Python type."""
    records = isinstance(left.data, Record) and isinstance(right.data, Record)
    return records or type(left.data) is type(right.data)


def logic(ctx: Context, expr: tree.Logic, left: Value, right: Value) -> Value:
    """Return `and` or `or` of two conditions, or the end of a stage for `plateau(…) or steps(…)`.

    Args:
        ctx: The state of the evaluation, to which errors are reported.
        expr: The expression in the syntax tree, with the operator.
        left: The value of the left operand.
        right: The value of the right operand.

    Raises:
        NoValue: The operands are neither two conditions nor a plateau and a number of steps; E0301 was
            reported.
    """
    if isinstance(left.data, bool) and isinstance(right.data, bool):
        return Value(left.data and right.data if expr.op == "and" else left.data or right.data, expr.span)
    end_conditions = {side.data.kind: side.data for side in (left, right) if isinstance(side.data, Record)}
    steps = end_conditions.get("until")
    if expr.op == "or" and set(end_conditions) == {"plateau", "until"} and isinstance(steps, Until):
        return Value(replace(steps, span=expr.span, plateau=end_conditions["plateau"]), expr.span)
    ctx.fail(
        "E0301",
        f"`{expr.op}` joins conditions, and these are {describe(left)} and {describe(right)}",
        expr.span,
        help="a stage ends by `plateau(…) or steps(…)`" if end_conditions else "compare something first",
    )


def negation(ctx: Context, expr: tree.Not, operand: Value) -> Value:
    """Return the value of `not x` for a condition x.

    Args:
        ctx: The state of the evaluation, to which errors are reported.
        expr: The expression in the syntax tree.
        operand: The value of x.

    Raises:
        NoValue: The operand is not true or false; E0301 was reported.
    """
    if isinstance(operand.data, bool):
        return Value(not operand.data, expr.span)
    ctx.fail(
        "E0301",
        f"`not` needs a condition, not {describe(operand)}",
        expr.span,
        help=f"compare it: `not {ctx.text_at(expr.operand.span)} > 0`",
    )
