"""Calls in rewards, to what each is: measures of a response, weights of a split; statistics and functions of numbers."""

from __future__ import annotations

from reodsl.diagnostics.model import error
from reodsl.language.names import is_reward
from reodsl.language.reward_functions import number_function
from reodsl.language.reward_names import INF, Body, Typed, fail
from reodsl.language.reward_statistics import statistic
from reodsl.language.reward_types import typed
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
        return statistic(body, expr, name)
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
    if is_reward(body.ctx, body.scope.module, name):
        helps = f"`{name}` is a reward, and no function: write its formula here as a `let`"
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
