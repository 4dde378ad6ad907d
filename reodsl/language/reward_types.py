"""Reward expressions: from syntax to typed canonical data, with units and the range that each value can have."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from typing import Any

from reodsl.diagnostics.model import error
from reodsl.language.intervals import compared, contains_zero, product, quotient
from reodsl.language.reward_names import INF, Body, Data, Typed, fail, same_unit
from reodsl.language.suggest import advice
from reodsl.language.units import PLAIN, TOKENS, Dimension, times
from reodsl.syntax import tree

WEIGHTS = ("trapezoid", "uniform", "half_first")


AGGREGATES = ("mean", "std", "min", "max", "sum", "count", "median")


NUMERIC = ("sigmoid", "log", "exp", "sqrt", "abs", "min", "max", "clip")


RESPONSE = ("len", "correct", "answer", "mode")


FUNCTIONS = (*RESPONSE, *WEIGHTS, "before", "z", *dict.fromkeys(AGGREGATES + NUMERIC))


DEEPEST = 120


def typed(body: Body, expr: tree.Expr) -> Typed | None:
    """An expression in types and units; None with what is wrong reported."""
    if body.depth > DEEPEST:
        body.ctx.report(
            error("E0209", "this is nested too deep", expr.span, help="give parts of it names with `let`")
        )
        return None
    inner = replace(body, depth=body.depth + 1)
    match expr:
        case tree.Number():
            return _number(inner, expr)
        case tree.Name():
            return _name(inner, expr)
        case tree.Unary():
            return _negated(inner, expr)
        case tree.Binary():
            return _binary(inner, expr)
        case tree.Compare():
            return _compare(inner, expr)
        case tree.Logic():
            left, right = condition(inner, expr.left), condition(inner, expr.right)
            if left is None or right is None:
                return None
            both = min if expr.op == "and" else max
            ends = both(left.low, right.low), both(left.high, right.high)
            return Typed(_node("binary", fn=expr.op, left=left.data, right=right.data), PLAIN, *ends, True)
        case tree.Not():
            operand = condition(inner, expr.operand)
            return (
                None
                if operand is None
                else Typed(
                    _node("unary", fn="not", value=operand.data),
                    PLAIN,
                    1 - operand.high,
                    1 - operand.low,
                    True,
                )
            )
        case tree.IfElse():
            return _if_else(inner, expr)
        case tree.Call():
            from reodsl.language.reward_calls import call

            return call(inner, expr)
        case tree.Attribute(value=tree.Name("x")):
            unit = TOKENS if expr.name.name.endswith("budget") else PLAIN
            inner.uses.add(expr.name.name if unit == TOKENS else "given")
            return Typed(_node("given", of="y", field=expr.name.name), unit, -INF, INF)
        case tree.Attribute(value=tree.Name(response)) if response in inner.env.responses:
            measure = {"correct": "correct", "reward": "correct", "accuracy": "correct", "mode": "mode"}
            hint = f"{measure.get(expr.name.name, 'len')}({response})"
            return fail(
                body, "E0301", "a response has no settings", expr, f"measure it by a function: `{hint}`"
            )
        case tree.Slice():
            return fail(
                body,
                "E0301",
                "a cut response has no value of its own",
                expr,
                "write `correct(answer(y[:L]))`",
            )
    return fail(
        body, "E0301", "a reward is made of numbers", expr, "use numbers, responses and statistics here"
    )


def _node(op: str, **parts: Any) -> Data:
    return {"op": op, **parts}


def _constant(number: float, unit: Dimension) -> Typed:
    return Typed(_node("number", value=float(number)), unit, number, number)


def _number(body: Body, expr: tree.Number) -> Typed | None:
    from reodsl.language.evaluate import number
    from reodsl.language.units import Quantity

    value = number(body.ctx, expr)
    if value is None or not isinstance(value.data, Quantity):
        return None
    return _constant(float(value.data.number), value.data.unit)


def _name(body: Body, expr: tree.Name) -> Typed | None:
    name = expr.name
    env = body.env
    if name in env.values:
        return env.values[name]
    if name in env.broken:
        return None
    if name in env.responses or name in ("group", "ref", "x"):
        hint = {"group": "mean(len(z) for z in group)", "ref": "mean(len(z) for z in ref)", "x": "x.budget"}
        return fail(
            body, "E0301", f"`{name}` is no number", expr, f"measure it: `{hint.get(name, f'len({name})')}`"
        )
    if name in env.others:
        return fail(body, "E0301", f"`{name}` is no number", expr, f"run over it: `dense L in {name}: …`")
    from reodsl.language.declare import declared
    from reodsl.language.names import lookup
    from reodsl.language.units import Quantity

    found = lookup(body.ctx, body.scope.module, name)
    if found is not None and isinstance(found[1], tree.Param):
        value = declared(body.ctx, *found)
        if value is None:
            return None
        if isinstance(value.data, Quantity):
            return _constant(float(value.data.number), value.data.unit)
    if found is None and name in FUNCTIONS and name not in body.scope.module.imports:
        near = f"call it: `{name}(y)`" if name in ("correct", "len", "mode") else f"call it: `{name}(…)`"
        body.ctx.report(
            error("E0201", f"`{name}` stands here without its arguments", expr.span, "not called", help=near)
        )
        return None
    if found is None and name not in body.scope.module.imports:
        near = advice(name, [*env.names(), *FUNCTIONS], "there is")
        body.ctx.report(
            error("E0201", f"there is no `{name}` in this reward", expr.span, "unknown", help=near)
        )
        return None
    if found is None:
        return None
    return fail(
        body,
        "E0301",
        f"`{name}` is no number",
        expr,
        "a reward uses numbers, its parameters and its responses",
    )


def condition(body: Body, expr: tree.Expr) -> Typed | None:
    """An expression that is true or false."""
    value = typed(body, expr)
    if value is None:
        return None
    if not value.condition:
        return fail(
            body, "E0301", "a condition is true or false, and this is a number", expr, "compare it: `… > 0`"
        )
    return value


def _negated(body: Body, expr: tree.Unary) -> Typed | None:
    value = typed(body, expr.operand)
    if value is None or expr.op == "+":
        return value
    if value.data["op"] == "number" and "open" not in value.data:
        return _constant(-value.low, value.unit)
    return Typed(_node("unary", fn="neg", value=value.data), value.unit, -value.high, -value.low)


def _binary(body: Body, expr: tree.Binary) -> Typed | None:
    if (
        expr.op == "^"
        and isinstance(expr.left, tree.Name)
        and expr.left.name == "e"
        and "e" not in body.env.values
    ):
        from reodsl.language.reward_calls import exponential

        return exponential(body, expr.right)
    left, right = typed(body, expr.left), typed(body, expr.right)
    if left is None or right is None:
        return None
    data = _node("binary", fn=expr.op, left=left.data, right=right.data)
    if expr.op in "+-":
        if not same_unit(body, left, right, expr.left.span, expr.right.span, f"`{expr.op}`"):
            return None
        low, high = (
            (left.low + right.low, left.high + right.high)
            if expr.op == "+"
            else (left.low - right.high, left.high - right.low)
        )
        return _folded(Typed(data, left.unit, low, high), left, right)
    if expr.op == "*":
        low, high = product(left.interval, right.interval)
        if low == high and math.isinf(low):
            return _endless(body, expr)
        return _folded(Typed(data, times(left.unit, right.unit), low, high), left, right)
    if expr.op == "/":
        if contains_zero(right.interval) and key(right.data) not in body.nonzero:
            return _by_zero(body, expr, right)
        low, high = quotient(left.interval, right.interval)
        return _folded(Typed(data, times(left.unit, right.unit, -1), low, high), left, right)
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
    if left.low == left.high and right.low == right.high:
        value = _power(left.low, right.low)
        return _endless(body, expr) if math.isinf(value) else Typed(data, PLAIN, value, value)
    low = 0.0 if left.low >= 0 else -INF
    return Typed(data, PLAIN, low, INF)


def _power(base: float, exponent: float) -> float:
    """A power of two constants; infinite where no number can hold it."""
    try:
        return math.pow(base, exponent)
    except OverflowError:
        return INF


def _endless(body: Body, expr: tree.Binary) -> Typed | None:
    return fail(body, "E0307", "this is larger than any number", expr, "take smaller numbers")


def _folded(result: Typed, left: Typed, right: Typed) -> Typed:
    """A constant where both sides are constants, so that the spelling of a number leaves no trace."""
    plain = all(side.data["op"] == "number" and "open" not in side.data for side in (left, right))
    if plain and result.low == result.high and math.isfinite(result.low):
        return _constant(result.low, result.unit)
    return result


def _by_zero(body: Body, expr: tree.Binary, right: Typed) -> Typed | None:
    unit = " tokens" if right.unit == TOKENS else ""
    never = right.low == right.high == 0
    body.ctx.report(
        error(
            "E0307",
            "this divides by zero" if never else "this may divide by zero",
            expr.right.span,
            "0" if never else "may be 0",
            help="divide by something else"
            if never
            else f"keep it above 0: `max(…, 1{unit})`, or test it with `if`",
        )
    )
    return None


def key(data: Data) -> str:
    """One text per expression, to recognise it again."""
    return json.dumps(data, sort_keys=True)


def _compare(body: Body, expr: tree.Compare) -> Typed | None:
    if expr.op == "in":
        return fail(body, "E0301", "`in` has no meaning in a reward", expr, "compare two numbers")
    left, right = typed(body, expr.left), typed(body, expr.right)
    if left is None or right is None:
        return None
    if not same_unit(body, left, right, expr.left.span, expr.right.span, f"`{expr.op}`"):
        return None
    low, high = compared(expr.op, left.interval, right.interval)
    return Typed(_node("binary", fn=expr.op, left=left.data, right=right.data), PLAIN, low, high, True)


def _if_else(body: Body, expr: tree.IfElse) -> Typed | None:
    test = condition(body, expr.condition)
    if test is None:
        return None
    facts, otherwise_facts = _facts(test.data)
    then = typed(replace(body, nonzero=body.nonzero | facts), expr.then)
    other = typed(replace(body, nonzero=body.nonzero | otherwise_facts), expr.otherwise)
    if then is None or other is None:
        return None
    if not same_unit(body, then, other, expr.then.span, expr.otherwise.span, "`if … else`"):
        return None
    data = _node("if", test=test.data, then=then.data, other=other.data)
    return Typed(
        data,
        then.unit,
        min(then.low, other.low),
        max(then.high, other.high),
        then.condition and other.condition,
    )


def _facts(test: Data) -> tuple[frozenset[str], frozenset[str]]:
    """What cannot be 0 where a condition holds, and where it does not."""
    none: frozenset[str] = frozenset()
    if test["op"] == "unary" and test["fn"] == "not":
        then, other = _facts(test["value"])
        return other, then
    if test["op"] != "binary" or test["fn"] not in ("==", "!=", "<", ">"):
        return none, none
    left, right = test["left"], test["right"]
    found = {key(_node("binary", fn="-", left=a, right=b)) for a, b in ((left, right), (right, left))}
    for one, two in ((left, right), (right, left)):
        if one["op"] == "number" and one["value"] == 0:
            found.add(key(two))
    facts = frozenset(found)
    return (none, facts) if test["fn"] == "==" else (facts, none)
