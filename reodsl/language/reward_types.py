"""Reward expressions: from syntax to typed canonical data, with units and the range that each value can have."""

from __future__ import annotations

import math
from dataclasses import replace

from reodsl.diagnostics.model import error
from reodsl.language.declare import declared
from reodsl.language.evaluate import number
from reodsl.language.names import lookup
from reodsl.language.reward_functions import exponential
from reodsl.language.reward_names import INF, Body, Typed, constant, fail, node
from reodsl.language.reward_operators import (
    both_or_either,
    calculated,
    choice,
    comparison,
    negative,
    nonzero,
    opposite,
)
from reodsl.language.reward_words import FUNCTIONS
from reodsl.language.suggest import advice
from reodsl.language.units import PLAIN, TOKENS, Quantity
from reodsl.syntax import tree

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
            value = typed(inner, expr.operand)
            return value if value is None or expr.op == "+" else negative(value)
        case tree.Binary(op="^", left=tree.Name("e")) if "e" not in inner.env.values:
            power = typed(inner, expr.right)
            return None if power is None else exponential(inner, expr.right, power)
        case tree.Binary():
            left, right = typed(inner, expr.left), typed(inner, expr.right)
            return None if left is None or right is None else calculated(inner, expr, left, right)
        case tree.Compare(op="in"):
            return fail(inner, "E0301", "`in` has no meaning in a reward", expr, "compare two numbers")
        case tree.Compare():
            left, right = typed(inner, expr.left), typed(inner, expr.right)
            return None if left is None or right is None else comparison(inner, expr, left, right)
        case tree.Logic():
            left, right = condition(inner, expr.left), condition(inner, expr.right)
            return None if left is None or right is None else both_or_either(expr.op, left, right)
        case tree.Not():
            test = condition(inner, expr.operand)
            return None if test is None else opposite(test)
        case tree.IfElse():
            return _if_else(inner, expr)
        case tree.Call():
            from reodsl.language.reward_calls import call

            return call(inner, expr)
        case tree.Attribute(value=tree.Name("x")):
            unit = TOKENS if expr.name.name.endswith("budget") else PLAIN
            inner.uses.add(expr.name.name if unit == TOKENS else "given")
            return Typed(node("given", of="y", field=expr.name.name), unit, -INF, INF)
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


def _number(body: Body, expr: tree.Number) -> Typed | None:
    value = number(body.ctx, expr)
    if value is None or not isinstance(value.data, Quantity):
        return None
    return constant(float(value.data.number), value.data.unit)


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
    found = lookup(body.ctx, body.scope.module, name)
    if found is not None and isinstance(found[1], tree.Param):
        value = declared(body.ctx, *found)
        if value is None:
            return None
        if isinstance(value.data, Quantity):
            return constant(float(value.data.number), value.data.unit)
    if found is None and name == "pi" and name not in body.scope.module.imports:
        return constant(math.pi, PLAIN)
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


def _if_else(body: Body, expr: tree.IfElse) -> Typed | None:
    test = condition(body, expr.condition)
    if test is None:
        return None
    held, failed = nonzero(test.data)
    then = typed(replace(body, nonzero=body.nonzero | held), expr.then)
    other = typed(replace(body, nonzero=body.nonzero | failed), expr.otherwise)
    return None if then is None or other is None else choice(body, expr, test, then, other)
