"""Functions of rewards: measures of a response, weights of a split, statistics over a group, functions of numbers."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from reodsl.diagnostics.model import Span, error
from reodsl.language.reward_functions import number_function
from reodsl.language.reward_names import INF, Body, Data, Typed, fail, same_unit
from reodsl.language.reward_types import condition, typed
from reodsl.language.reward_words import AGGREGATES, FUNCTIONS, NUMERIC, RESPONSE, WEIGHTS
from reodsl.language.suggest import advice
from reodsl.language.units import PLAIN, TOKENS
from reodsl.syntax import tree


def call(body: Body, expr: tree.Call) -> Typed | None:
    """A call inside a reward."""
    if not isinstance(expr.function, tree.Name):
        return fail(body, "E0301", "only a name can be called", expr.function, "write `NAME(…)`")
    name = expr.function.name
    if name in AGGREGATES and expr.args and isinstance(expr.args[0].value, tree.Comprehension):
        return _aggregate(body, expr, name)
    if name in RESPONSE:
        return _measure(body, expr, name)
    if name in (*WEIGHTS, "before"):
        return _weight(body, expr, name)
    if name in NUMERIC:
        return _numeric(body, expr, name)
    if name == "z":
        return fail(
            body,
            "E0301",
            "`z(…)` normalises a whole part of a reward",
            expr,
            "let the value be a sum of parts: `z(correct(y)) + 0.5 * z(mode(y) == 0, on: prefix)`",
        )
    if name in AGGREGATES:
        return fail(
            body, "E0310", f"`{name}` runs over responses", expr, f"write `{name}(len(z) for z in group)`"
        )
    helps = advice(name, FUNCTIONS, "functions are")
    body.ctx.report(
        error(
            "E0213", f"there is no function `{name}` in a reward", expr.function.span, "unknown", help=helps
        )
    )
    return None


def _only(body: Body, expr: tree.Call, name: str, example: str) -> tree.Expr | None:
    """The one argument of a function."""
    if len(expr.args) == 1 and expr.args[0].name is None:
        value = expr.args[0].value
        if not isinstance(value, (tree.Binding, tree.Comprehension)):
            return value
    fail(body, "E0310", f"`{name}` takes one argument", expr, f"write `{example}`")
    return None


def _response(body: Body, expr: tree.Expr) -> str | None:
    if isinstance(expr, tree.Name) and expr.name in body.env.responses:
        return body.env.responses[expr.name]
    fail(body, "E0301", "this is no response", expr, "name one: `y`, or the variable of `… for z in group`")
    return None


def _measure(body: Body, expr: tree.Call, name: str) -> Typed | None:
    argument = _only(body, expr, name, f"{name}(y)" if name in ("len", "mode") else "correct(answer(y[:L]))")
    if argument is None:
        return None
    if name == "answer":
        return fail(body, "E0301", "an answer is no number", expr, "grade it: `correct(answer(y[:L]))`")
    if name == "mode":
        of = _response(body, argument)
        body.uses.add("mode")
        return (
            None
            if of is None
            else Typed({"op": "given", "of": of, "field": "mode"}, PLAIN, 0.0, body.limits.wordings - 1)
        )
    if name == "len":
        of = _response(body, argument)
        return None if of is None else Typed({"op": "length", "of": of}, TOKENS, 1.0, body.limits.longest)
    if (
        isinstance(argument, tree.Call)
        and isinstance(argument.function, tree.Name)
        and argument.function.name == "answer"
    ):
        inner = _only(body, argument, "answer", "answer(y[:L])")
        if inner is None:
            return None
        if isinstance(inner, tree.Slice):
            return _cut(body, inner, "forced")
        of = _response(body, inner)
        return None if of is None else Typed({"op": "correct", "of": of}, PLAIN, 0.0, 1.0, True)
    if isinstance(argument, tree.Slice):
        return _cut(body, argument, "bare")
    of = _response(body, argument)
    return None if of is None else Typed({"op": "correct", "of": of}, PLAIN, 0.0, 1.0, True)


def _cut(body: Body, expr: tree.Slice, op: str) -> Typed | None:
    if expr.lower is not None or expr.upper is None:
        return fail(body, "E0301", "a response is cut at its end only", expr, "write `y[:L]`")
    of = _response(body, expr.value)
    at = typed(body, expr.upper)
    if of is None or at is None:
        return None
    if at.unit != TOKENS:
        return fail(
            body,
            "E0302",
            "a response is cut at a number of tokens",
            expr.upper,
            f"give the number its unit: `{at.low:g} tokens`"
            if not at.unit and at.low == at.high
            else "write `y[:1K tokens]`, or `y[:L]`",
        )
    if of in body.env.sampled:
        return fail(
            body,
            "E0301",
            "the starting model's responses are graded whole, and not cut",
            expr,
            "cut those of `group`: `mean(correct(answer(z[:L])) for z in group)`",
        )
    body.uses.add(op)
    body.cuts.append((at.low, expr.upper.span))
    return Typed({"op": op, "of": of, "cut": at.data}, PLAIN, 0.0, 1.0, True)


def _weight(body: Body, expr: tree.Call, name: str) -> Typed | None:
    argument = _only(body, expr, name, f"{name}(L)")
    if argument is None:
        return None
    if body.variable is None:
        return fail(
            body,
            "E0301",
            f"`{name}` belongs to a split, and there is none here",
            expr,
            f"use it in `dense L in at: {name}(L) * …`",
        )
    if not isinstance(argument, tree.Name) or argument.name != body.variable:
        return fail(
            body, "E0301", f"`{name}` is of the split at hand", argument, f"write `{name}({body.variable})`"
        )
    if name == "before":
        return Typed({"op": "previous"}, TOKENS, 0.0, INF)
    body.uses.add("weight")
    return Typed({"op": "weight", "rule": name}, PLAIN, 0.0, INF)


def _nowhere(body: Body, name: str, at: tree.Expr) -> None:
    """E0301: a statistic over something that is neither responses nor splits."""
    helps = "`group` is the question's responses, `ref` the starting model's"
    if body.variable is not None:
        helps += f", `splits` the places of this line: `sum(correct(y[:M]) for M in splits if M < {body.variable})`"
    elif isinstance(at, tree.Name) and at.name == "splits":
        helps = "splits belong to a line `dense L in at: …`"
    fail(body, "E0301", f"`{name}` runs over `group` or `ref`", at, helps)


def _over(body: Body, name: str, source: str) -> tuple[Body, str]:
    """The inside of a statistic, where `name` is a response or a split's place, and what that is called in the result."""
    if source != "splits":
        body.uses.add(source)
        variable = f"z{sum(1 for each in body.env.responses.values() if each != 'y') or ''}"
        return replace(body, env=body.env.with_response(name, variable, source)), variable
    inside = sum(1 for each in body.env.values.values() if str(each.data.get("name")).startswith("M"))
    variable = f"M{inside or ''}"
    at_hand = body.env.values[body.variable or ""]
    place = Typed({"op": "name", "name": variable}, TOKENS, at_hand.low, at_hand.high)
    return replace(body, env=body.env.with_value(name, place)), variable


def _aggregate(body: Body, expr: tree.Call, name: str) -> Typed | None:
    over = expr.args[0].value
    assert isinstance(over, tree.Comprehension)
    known = ("group", "ref") if body.variable is None else ("group", "ref", "splits")
    if not isinstance(over.over, tree.Name) or over.over.name not in known:
        _nowhere(body, name, over.over)
        return None
    source = over.over.name
    if source == "ref" and "y" not in body.env.responses:
        return fail(
            body,
            "E0301",
            "a selection knows no starting model",
            over.over,
            "run over `group`, the pool's responses",
        )
    if source == "splits" and over.var.name == body.variable:
        return fail(
            body,
            "E0208",
            f"`{over.var.name}` is the split at hand",
            over,
            "run over others by another name: `for M in splits`",
        )
    inner, variable = _over(body, over.var.name, source)
    # What is counted does not matter: `count(z for z in group if correct(z))`.
    counted = name == "count" and isinstance(over.expr, tree.Name) and over.expr.name == over.var.name
    one: Data = {"op": "number", "value": 1.0}
    value = Typed(one, PLAIN, 1.0, 1.0) if counted else typed(inner, over.expr)
    where = condition(inner, over.condition) if over.condition is not None else None
    given = _empty(body, expr.args[1:], name)
    if given is None:
        return None
    if value is None or (over.condition is not None and where is None):
        return None
    if over.condition is not None and not given and name not in ("sum", "count"):
        unit = " tokens" if value.unit == TOKENS else ""
        body.ctx.report(
            error(
                "E0306",
                f"`{name}` may have nothing to run over: perhaps no response meets the condition",
                over.condition.span,
                "may leave nothing",
                help=f"say what it is then: `{name}(… if …, empty: 1{unit})`",
            )
        )
        return None
    span, empty = given[-1] if given else (over.span, None)
    compared = empty if name != "count" else None
    if compared is not None and not same_unit(body, compared, value, span, over.expr.span, "`empty`"):
        return None
    data: Data = {
        "op": "aggregate",
        "fn": name,
        "var": variable,
        "over": source,
        "value": value.data,
        "where": where.data if where is not None else None,
        "empty": empty.data if empty is not None else None,
    }
    low, high = _range_of(name, value, where is not None, body.limits.group if source == "group" else INF)
    if empty is not None:
        low, high = min(low, empty.low), max(high, empty.high)
    return Typed(data, PLAIN if name == "count" else value.unit, low, high)


def _empty(body: Body, args: Sequence[tree.Arg], name: str) -> list[tuple[Span, Typed]] | None:
    """What statistics over nothing are, and where it says so; None with what is wrong reported."""
    found = []
    for arg in args:
        if (
            arg.name is None
            or arg.name.name != "empty"
            or isinstance(arg.value, (tree.Binding, tree.Comprehension))
        ):
            fail(
                body,
                "E0310",
                f"`{name}` takes one thing more: what it is when nothing is left",
                arg,
                "write `empty: …`",
            )
            return None
        value = typed(body, arg.value)
        if value is None:
            return None
        found.append((arg.value.span, value))
    return found


def _range_of(name: str, value: Typed, filtered: bool, members: float) -> tuple[float, float]:
    if name == "count":
        return (0.0 if filtered else 1.0), members
    if name == "std":
        spread = (value.high - value.low) / 2 if math.isfinite(value.high - value.low) else INF
        return 0.0, spread
    if name == "sum":
        low = (0.0 if filtered else value.low) if value.low >= 0 else -INF
        return low, (0.0 if value.high <= 0 else INF)
    return value.low, value.high


def _numeric(body: Body, expr: tree.Call, name: str) -> Typed | None:
    values: list[tuple[tree.Expr, Typed]] = []
    good = True
    for arg in expr.args:
        if arg.name is not None or isinstance(arg.value, (tree.Binding, tree.Comprehension)):
            return fail(body, "E0310", f"`{name}` takes numbers", arg, f"write `{name}(…)` with values alone")
        value = typed(body, arg.value)
        if value is None:
            good = False
        else:
            values.append((arg.value, value))
    wanted = {"clip": 3, "min": 2, "max": 2}.get(name, 1)
    if len(expr.args) != wanted and not (name in ("min", "max") and len(expr.args) > 2):
        counts = {1: "one number", 2: "two numbers or more", 3: "three numbers: what, from, to"}
        return fail(body, "E0310", f"`{name}` takes {counts[wanted]}", expr, f"give it {counts[wanted]}")
    if not good:
        return None
    return number_function(body, name, values)
