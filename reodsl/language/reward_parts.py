"""Parts of a reward: from `z(a) + 0.5 * z(b, on: prefix)` to expressions, each with its weight and its tokens."""

from __future__ import annotations

from dataclasses import dataclass

from reodsl.diagnostics.model import Span
from reodsl.language.reward_names import Body, Data, Typed, fail
from reodsl.language.reward_types import typed
from reodsl.language.units import PLAIN
from reodsl.syntax import tree

WHERE = ("response", "prefix")


@dataclass(frozen=True, slots=True)
class Term:
    """One term of the sum: its weight as written (None is 1), whether it is taken away, and its call of `z`."""

    weight: tree.Expr | None
    negative: bool
    call: tree.Call


def part_terms(expr: tree.Expr) -> list[Term]:
    """The terms of a sum of `z(…)`, each perhaps multiplied by a number; none where it is another expression."""
    found: list[Term] = []
    return found if _collect(expr, False, found) else []


def _collect(expr: tree.Expr, negative: bool, found: list[Term]) -> bool:
    if isinstance(expr, tree.Binary) and expr.op in "+-":
        right = negative != (expr.op == "-")
        return _collect(expr.left, negative, found) and _collect(expr.right, right, found)
    if isinstance(expr, tree.Binary) and expr.op == "*" and _is_part(expr.right):
        assert isinstance(expr.right, tree.Call)
        found.append(Term(expr.left, negative, expr.right))
        return True
    if _is_part(expr):
        assert isinstance(expr, tree.Call)
        found.append(Term(None, negative, expr))
        return True
    return False


def _is_part(expr: tree.Expr) -> bool:
    return isinstance(expr, tree.Call) and isinstance(expr.function, tree.Name) and expr.function.name == "z"


def typed_parts(body: Body, terms: list[Term], values: list[tuple[Typed, Span]]) -> tuple[Data, ...] | None:
    """The parts in types; a weight is one number. None with what is wrong reported. What each measures goes to `values`."""
    parts = [_typed(body, term, values) for term in terms]
    found = tuple(part for part in parts if part is not None)
    return found if len(found) == len(parts) else None


def _typed(body: Body, term: Term, values: list[tuple[Typed, Span]]) -> Data | None:
    weight = 1.0
    if term.weight is not None:
        value = typed(body, term.weight)
        if value is None:
            return None
        if value.data["op"] != "number" or value.unit != PLAIN:
            fail(body, "E0301", "a part is multiplied by a number", term.weight, "move the rest into `z(…)`")
            return None
        weight = float(value.data["value"])
    first, *rest = term.call.args or (None,)
    if first is None or first.name is not None or isinstance(first.value, (tree.Binding, tree.Comprehension)):
        fail(body, "E0310", "`z` takes what it normalises", term.call, "write `z(correct(y))`")
        return None
    on = "response"
    for arg in rest:
        word = arg.value.name if isinstance(arg.value, tree.Name) else ""
        if arg.name is None or arg.name.name != "on" or word not in WHERE:
            fail(body, "E0310", "`z` takes one thing more: whose tokens earn it", arg, "write `on: prefix`")
            return None
        on = word
    measured = typed(body, first.value)
    if measured is None:
        return None
    if measured.unit != PLAIN:
        helps = "divide by a length, such as `mean(len(z) for z in group)`"
        fail(body, "E0302", "a part of a reward is a plain number", first, helps)
        return None
    values.append((measured, first.span))
    return {"value": measured.data, "weight": -weight if term.negative else weight, "on": on}
