"""Type operators and functions of rewards: from typed operands to the result, with the range of its values.

A function raises `NoValue` if there is no result.
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
    """Return the typed expression `-value`."""
    if value.is_constant:
        return make_constant(-value.low, value.unit)
    return TypedExpr(Negation(fn="neg", value=value.data), value.unit, -value.high, -value.low)


def invert(test: TypedExpr) -> TypedExpr:
    """Return the typed condition `not test`."""
    return TypedExpr(Negation(fn="not", value=test.data), PLAIN, 1 - test.high, 1 - test.low, True)


def connect(body: FormulaScope, op: tree.LogicOp, left: TypedExpr, right: TypedExpr) -> TypedExpr:
    """Return the typed condition `left and right`, or `left or right`.

    The range of the result is (0, 0) if the condition is known never to hold, (1, 1) if it is known always to hold,
    and (0, 1) otherwise. `and` never holds if both sides contradict each other, as in `len(y) < 5 and len(y) > 9`;
    `or` always holds if the negations of both sides contradict each other.

    Args:
        body: The formula, which has the facts of its `let`s.
        op: `and` or `or`.
        left: The typed left condition.
        right: The typed right condition.
    """
    end = min if op == "and" else max
    ends = end(left.low, right.low), end(left.high, right.high)
    if op == "and" and _contradict(list_facts(body, left.data), list_facts(body, right.data)):
        ends = 0.0, 0.0
    if op == "or" and _contradict(list_facts(body, left.data, False), list_facts(body, right.data, False)):
        ends = 1.0, 1.0
    return TypedExpr(Infix(fn=op, left=left.data, right=right.data), PLAIN, *ends, True)


def list_facts(body: FormulaScope, test: Expression, holds: bool = True) -> dict[Expression, ValueRange]:
    """Return what a condition implies: the possible values of the expressions that it compares.

    For `a < b`, these are the condition itself (1 or 0), the differences `a - b` and `b - a`, and the operand on the
    other side of a constant. Two conditions joined by `and` imply the facts of both. If joined by `or`, they imply
    only the union of the ranges of expressions that both sides compare. If `holds` is False, `and` and `or` swap.

    Args:
        body: The formula, which has the facts of each `let` that is a condition.
        test: The condition.
        holds: True for the values if the condition holds, False for the values if it does not hold.
    """
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
        fn = test.fn if holds else _NEGATED[test.fn]
        for op, a, b in ((fn, test.left, test.right), (_MIRRORED[fn], test.right, test.left)):
            ranges[Infix(fn="-", left=a, right=b)] = _make_range(op, 0.0)
            if isinstance(b, Constant):
                ranges[a] = _make_range(op, b.value)
    return ranges


def combine_facts(a: Facts, b: Facts) -> dict[Expression, ValueRange]:
    """Return the facts of two conditions that both hold."""
    return {**a, **{expr: fact.intersect(a.get(expr, ValueRange())) for expr, fact in b.items()}}


def _contradict(a: Facts, b: Facts) -> bool:
    """Return whether the facts of two conditions leave no possible value for some expression."""
    return any(fact.is_empty for fact in combine_facts(a, b).values())


def _make_range(op: str, limit: float) -> ValueRange:
    """Return a range that contains all values x for which `x op limit` holds.

    For `!=` the range excludes only 0, if 0 is the limit.
    """
    match op:
        case "!=":
            return ValueRange(may_be_zero=limit != 0)
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
_NEGATED: Mapping[str, Comparison] = {"<": ">=", "<=": ">", ">": "<=", ">=": "<", "==": "!=", "!=": "=="}


def name_value(body: FormulaScope, name: str, value: TypedExpr) -> TypedExpr:
    """Return the variable that reads the value of a `let`, with its unit and range.

    Two things are recorded in `body` for later lines: whether the value is an integer (`body.integers`), and for a
    condition, what it implies if it holds and if it does not hold (`body.tests`).

    Args:
        body: The formula.
        name: The name of the `let` in the representation, such as `let1`.
        value: The typed value of the `let`.
    """
    variable = Variable(name=name)
    if _is_integer(body, value.data):
        body.integers.add(name)
    if value.is_condition:
        body.tests[variable] = list_facts(body, value.data), list_facts(body, value.data, False)
    return TypedExpr(variable, value.unit, value.low, value.high, value.is_condition)


def narrow(body: FormulaScope, value: TypedExpr) -> TypedExpr:
    """Return a value with the range that remains if the conditions around it hold."""
    fact = body.facts.get(value.data) if body.facts and not value.is_constant else None
    if fact is None:
        return value
    low, high = fact.clip(value.low, value.high)
    return replace(value, low=low, high=high)


def calculate(body: FormulaScope, expr: tree.Binary, left: TypedExpr, right: TypedExpr) -> TypedExpr:
    """Return the typed result of `left op right` for the operators + - * / ^.

    The range of the result follows from the ranges of the operands by interval arithmetic. Three cases are known
    more exactly: `x - x` is 0, `x / x` is 1, and a count divided by a count of more responses is from 0 to 1.

    Args:
        body: The formula that is typed.
        expr: The operation in the syntax tree, which has the operator.
        left: The typed left operand.
        right: The typed right operand.

    Raises:
        NoValue: E0302 if the units do not fit, E0307 if the result may not be a finite number.
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
            if contains_zero(right.interval) and body.facts.get(right.data, ValueRange()).may_be_zero:
                _refuse_zero(body, expr, left, right)
        low, high = divide(left.interval, right.interval)
        if left.data == right.data:
            low, high = 1.0, 1.0
        elif _is_share(left.data, right.data):
            low, high = 0.0, 1.0
        return _fold(TypedExpr(data, multiply_units(left.unit, right.unit, -1), low, high), left, right)
    return _calculate_power(body, expr, left, right)


def _calculate_power(body: FormulaScope, expr: tree.Binary, left: TypedExpr, right: TypedExpr) -> TypedExpr:
    """Return the typed result of `left ^ right`.

    The range is computed from the base and the exponent if the base is a known positive number, or if both are known
    numbers. Otherwise the range only says whether the result may be negative.

    Args:
        body: The formula that is typed.
        expr: The power in the syntax tree.
        left: The typed base.
        right: The typed exponent.

    Raises:
        NoValue: E0302 if an operand has a unit, E0307 if the power may not be a finite real number.
    """
    if left.unit or right.unit:
        side, span = (left, expr.left.span) if left.unit else (right, expr.right.span)
        refuse_unit(body, "a power is of plain numbers", side, span, operand=True)
    base, remedies = body.ctx.text_at(expr.left.span), ("abs({})", "max({}, 0)")[: 1 + (left.high > 0)]
    if left.low < 0 and not (right.low == right.high and float(right.low).is_integer()):
        fail(
            body,
            "E0307",
            "a power of a base that may be negative may not be a number",
            expr,
            "take " + " or ".join(f"`{remedy.format('…')}`" for remedy in remedies),
            [Edit(expr.left.span, remedy.format(base)) for remedy in remedies],
        )
    if contains_zero(left.interval) and right.low < 0:
        nonzero = narrow(body, left)
        if contains_zero(nonzero.interval) and body.facts.get(left.data, ValueRange()).may_be_zero:
            hint, edits = _guard_zero(body, expr, left, left, expr.left)
            fail(body, "E0307", "a negative power of a base that may be 0 divides by zero", expr, hint, edits)
    data = Infix(fn=expr.op, left=left.data, right=right.data)
    if left.low == left.high and right.low == right.high:
        value = _raise_power(left.low, right.low)
        if math.isinf(value):
            _refuse_infinite(body, expr)
        return TypedExpr(data, PLAIN, value, value)
    if _may_overflow(left, right):
        hint, edits = _bound_power(body, expr, left, right)
        fail(body, "E0307", "this power may be too large for a number", expr, hint, edits)
    if left.low == left.high > 0:
        ends = _raise_power(left.low, right.low), _raise_power(left.low, right.high)
        return TypedExpr(data, PLAIN, min(ends), max(ends))
    low = 0.0 if left.low >= 0 else -INF
    return TypedExpr(data, PLAIN, low, INF)


def _may_overflow(base: TypedExpr, exponent: TypedExpr) -> bool:
    """Return whether a power may be too large for a float.

    The result is False if a bound of the base or of the exponent is infinite: nothing is known then.
    """
    if not all(map(math.isfinite, (*base.interval, *exponent.interval))):
        return False
    largest = max(abs(base.low), abs(base.high))
    return math.isinf(_raise_power(largest, exponent.high)) or (
        base.low > SMALLEST and math.isinf(_raise_power(base.low, exponent.low))
    )


SMALLEST = 1e-300
"""A base whose bound is smaller is only known to differ from 0; its negative powers are not called too large."""


def _bound_power(
    body: FormulaScope, expr: tree.Binary, left: TypedExpr, right: TypedExpr
) -> tuple[str, tuple[Edit, ...]]:
    """Suggest a bound on the base or the exponent of a power that may be too large for a float.

    The exponent gets the bound if the base is a constant, else the base.

    Args:
        body: The formula that is typed.
        expr: The power in the syntax tree.
        left: The typed base.
        right: The typed exponent.

    Returns:
        The help of the error, and the edit that adds the bound, if any.
    """
    span, text = expr.left.span, body.ctx.text_at(expr.left.span)
    if left.is_constant:
        span, text = expr.right.span, body.ctx.text_at(expr.right.span)
        exponent = math.floor(MOST_DIGITS / abs(math.log10(abs(left.low))))
        form = f"min({{}}, {exponent})" if abs(left.low) > 1 else f"max({{}}, -{exponent})"
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
"""The decimal exponent of the largest powers of 10 that floats have, less 1."""


def _raise_power(base: float, exponent: float) -> float:
    """Return a power of two constants, or infinity if it is too large for a float."""
    try:
        return math.pow(base, exponent)
    except OverflowError:
        return INF


def _refuse_infinite(body: FormulaScope, expr: tree.Binary) -> NoReturn:
    """Report E0307 for an operation of constants whose result is infinite, and raise `NoValue`."""
    fail(body, "E0307", "this is too large for a number", expr, "take smaller numbers")


def _fold(result: TypedExpr, left: TypedExpr, right: TypedExpr) -> TypedExpr:
    """Return a result as a single constant if both operands are constants, else unchanged.

    Rewards that are equal thus have equal expressions, even if one writes `1 / 2` and the other `0.5`.

    Args:
        result: The typed result of an operation.
        left: The typed left operand.
        right: The typed right operand.
    """
    if left.is_constant and right.is_constant and result.low == result.high and math.isfinite(result.low):
        return make_constant(result.low, result.unit)
    return result


def _is_share(count: Expression, total: Expression) -> bool:
    """Return whether the quotient `count / total` is known to be at most 1.

    This is so if both are counts over the same responses or splits, and `count` has all conditions of `total` and
    perhaps more. `total` may also be a maximum of several numbers that include such a count.
    """
    totals = total.args if isinstance(total, FunctionCall) and total.fn == "max" else (total,)
    return (
        isinstance(count, Aggregate)
        and count.fn == "count"
        and count.empty is None
        and any(
            isinstance(item, Aggregate)
            and replace(item, where=None, empty=None) == replace(count, where=None)
            and _split_conjuncts(item.where) <= _split_conjuncts(count.where)
            for item in totals
        )
    )


def _split_conjuncts(test: Expression | None) -> set[Expression]:
    """Return the set of the conditions that `and` joins in `test`.

    A condition without `and` is the only item of the set. The set is empty for None.
    """
    if isinstance(test, Infix) and test.fn == "and":
        return _split_conjuncts(test.left) | _split_conjuncts(test.right)
    return set() if test is None else {test}


def _refuse_zero(body: FormulaScope, expr: tree.Binary, left: TypedExpr, right: TypedExpr) -> NoReturn:
    """Report E0307 for a division by a number that is, or may be, 0.

    Args:
        body: The formula that is typed.
        expr: The division in the syntax tree.
        left: The typed dividend.
        right: The typed divisor.

    Raises:
        NoValue: Always.
    """
    is_zero = right.low == right.high == 0
    hint, edits = ("divide by something else", ()) if is_zero else _suggest_nonzero(body, expr, left, right)
    body.ctx.fail(
        "E0307",
        "this divides by zero" if is_zero else "this may divide by zero",
        expr.right.span,
        "0" if is_zero else "may be 0",
        help=hint,
        edits=edits,
    )


def _suggest_nonzero(
    body: FormulaScope, expr: tree.Binary, left: TypedExpr, right: TypedExpr
) -> tuple[str, tuple[Edit, ...]]:
    """Suggest how to keep a divisor from being 0, by a range of its parameter or by a condition.

    Args:
        body: The formula that is typed.
        expr: The division in the syntax tree.
        left: The typed dividend.
        right: The typed divisor.

    Returns:
        The help of the error, and alternative edits. No edit changes the quotient for a divisor that is not 0.
    """
    name = expr.right.name if isinstance(expr.right, tree.Name) and right.is_unbound else ""
    param = body.env.params.get(name)
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
    """Suggest how to keep a divisor, or the base of a negative power, from being 0.

    The suggestion is a condition, such as `… if x != 0 else 0`. For an integer that has only one sign, it is also a
    bound at 1 or -1.

    Args:
        body: The formula that is typed.
        expr: The division or power.
        value: The typed operand that may be 0.
        result: A typed expression with the unit of the result.
        operand: The operand in the syntax tree.

    Returns:
        The help of the error, and alternative edits.
    """
    hint = "divide only if it is not 0" if expr.op == "/" else "give a value for a base of 0"
    source, text = body.ctx.text_at(expr.span), body.ctx.text_at(operand.span)
    zero = write_amount(0.0, result.unit)
    test = text if isinstance(operand, (tree.Name, tree.Call, tree.Binary)) else f"({text})"
    test = test if value.is_condition else f"{test} != {write_amount(0.0, value.unit)}"
    condition = Edit(expr.span, f"({source} if {test} else {zero})")
    example = f"`… if {test if len(test) < 60 else '… != 0'} else {zero}`"
    can_bound = max(abs(value.low), abs(value.high)) > 1 and _is_integer(body, value.data)
    if value.is_condition or value.low < 0 < value.high or not can_bound:
        return f"{hint}: {example}", (condition,)
    function, side = ("max", "above") if value.high > 0 else ("min", "below")
    bound = write_amount(1.0 if value.high > 0 else -1.0, value.unit)
    return (
        f"keep it {side} 0: `{function}(…, {bound})`, or {hint}: {example}",
        (Edit(operand.span, f"{function}({text}, {bound})"), condition),
    )


def _is_integer(body: FormulaScope, data: Expression) -> bool:
    """Return whether all values of an expression are known to be integers.

    The caller then suggests a bound at 1, as in `max(x, 1)`: of the values of a nonnegative integer, it changes
    only 0.
    """

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
    """Return the typed condition `left op right` for the operators == != < <= > >=.

    Args:
        body: The formula that is typed.
        expr: The comparison in the syntax tree.
        op: The operator.
        left: The typed left operand.
        right: The typed right operand.

    Raises:
        NoValue: E0302 if the units differ.
    """
    check_unit(body, left, right, expr.left.span, expr.right.span, f"`{op}`")
    low, high = compare_ranges(op, left.interval, right.interval)
    return TypedExpr(Infix(fn=op, left=left.data, right=right.data), PLAIN, low, high, True)


def choose(
    body: FormulaScope, expr: tree.IfElse, test: TypedExpr, then: TypedExpr, other: TypedExpr
) -> TypedExpr:
    """Return the typed expression `then if test else other`.

    The range contains the values of both branches, or of one branch if the condition always or never holds.

    Args:
        body: The formula that is typed.
        expr: The expression in the syntax tree.
        test: The typed condition.
        then: The typed value if the condition holds.
        other: The typed value if the condition does not hold.

    Raises:
        NoValue: E0302 if the units differ.
    """
    check_unit(body, then, other, expr.then.span, expr.otherwise.span, "`if … else`")
    data = If(test=test.data, then=then.data, other=other.data)
    branches = [then] if test.low == 1 else [other] if test.high == 0 else [then, other]
    low, high = min(branch.low for branch in branches), max(branch.high for branch in branches)
    return TypedExpr(data, then.unit, low, high, then.is_condition and other.is_condition)


def _report_idle_bound(
    body: FormulaScope, name: Function, values: list[tuple[tree.Expr, TypedExpr]], low: float, high: float
) -> None:
    """Report W0303 if `min`, `max` or `clip` always returns a bound that the user wrote as a number.

    The bound then lies outside the range of the other arguments, as in `max(correct(y), 2)`. Nothing is reported if
    a bound is a parameter, which may have another value elsewhere.

    Args:
        body: The formula that is typed.
        name: The function; another function is not reported.
        values: Its arguments in the syntax tree, and typed.
        low: The smallest result.
        high: The largest result.
    """
    varying = [value for _, value in values if value.low < value.high]
    # Only literals: a parameter may have another value in another use of the reward.
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
    """Return the typed call of a function of numbers, such as `max` or `log`.

    Args:
        body: The formula that is typed.
        call: The call in the syntax tree.
        name: The name of the function.
        values: The arguments in the syntax tree, and typed.

    Raises:
        NoValue: E0302 if units differ, E0307 if an argument may be outside the function's domain.
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
    """Suggest how to keep an argument in a function's domain, such as the positive numbers for `log`.

    An argument that is never above 0 is transformed, for example by `abs`. A domain that includes 0 needs a bound at
    0. A domain without 0 (`domain.open`) needs a bound at 1 for an integer, or else a condition.

    Args:
        body: The formula that is typed.
        call: The call of the function.
        domain: The numbers for which the function has a value.
        argument: The argument in the syntax tree.
        value: The typed argument, which may be outside the domain.

    Returns:
        The help of the error, and an edit that changes no result inside the domain.
    """
    text = body.ctx.text_at(argument.span)
    if value.high <= 0:
        return (
            f"write `{domain.otherwise.format('…')}`",
            Edit(argument.span, domain.otherwise.format(text)),
        )
    if not domain.open:
        return "keep it at 0 or above: `max(…, 0)`", Edit(argument.span, f"max({text}, 0)")
    if value.high > 1 and _is_integer(body, value.data):
        return "keep it above 0: `max(…, 1)`", Edit(argument.span, f"max({text}, 1)")
    name = body.ctx.text_at(call.function.span)
    return (
        f"give a value for 0: `{name}(…) if … > 0 else {name}(1e-6)`",
        Edit(call.span, f"({name}({text}) if {bracket(text)} > 0 else {name}(1e-6))"),
    )


def exponentiate(body: FormulaScope, argument: tree.Expr, value: TypedExpr) -> TypedExpr:
    """Return the typed expression `e^argument`.

    Args:
        body: The formula that is typed.
        argument: The exponent in the syntax tree.
        value: The typed exponent.

    Raises:
        NoValue: E0302 if the exponent has a unit, E0307 if it may exceed 700, near which floats overflow.
    """
    if value.unit:
        refuse_unit(body, "`e^` wants a plain number", value, argument.span, operand=True)
    if value.high > 700:
        edit = Edit(argument.span, f"min({body.ctx.text_at(argument.span)}, 700)")
        message = "e to this power may be too large for a number"
        fail(body, "E0307", message, argument, "bound it: `min(…, 700)`", [edit])
    return TypedExpr(
        FunctionCall(fn="exp", args=(value.data,)), PLAIN, *FUNCTIONS["exp"].range(value.interval)
    )
