"""Operators of rewards: typed operands in, the typed result out, with the range of its values; or why there is none."""

from __future__ import annotations

import json
import math

from reodsl.diagnostics.model import error
from reodsl.language.intervals import compared, contains_zero, product, quotient
from reodsl.language.reward_names import INF, Body, Data, Typed, constant, fail, node, same_unit
from reodsl.language.units import PLAIN, TOKENS, times
from reodsl.syntax import tree


def negative(value: Typed) -> Typed:
    """`-x`."""
    if value.data["op"] == "number" and "open" not in value.data:
        return constant(-value.low, value.unit)
    return Typed(node("unary", fn="neg", value=value.data), value.unit, -value.high, -value.low)


def opposite(test: Typed) -> Typed:
    """`not x`."""
    return Typed(node("unary", fn="not", value=test.data), PLAIN, 1 - test.high, 1 - test.low, True)


def both_or_either(op: tree.LogicOp, left: Typed, right: Typed) -> Typed:
    """`left and right`, `left or right`."""
    end = min if op == "and" else max
    ends = end(left.low, right.low), end(left.high, right.high)
    if op == "and" and _excluded(left.data, right.data):
        ends = 0.0, 0.0
    if op == "or" and _excluded(opposite(left).data, opposite(right).data):
        ends = 1.0, 1.0
    return Typed(node("binary", fn=op, left=left.data, right=right.data), PLAIN, *ends, True)


def _excluded(one: Data, two: Data) -> bool:
    """Whether two conditions never hold at once: one is the other's opposite, or they leave a value no room."""
    held = [*_parts(one), *_parts(two)]
    keys = {_key(each) for each in held}
    if any(_key(_opposed(each)) in keys for each in held):
        return True
    rooms: dict[str, tuple[float, float]] = {}
    for each in held:
        bounds = _bounds(each)
        if bounds is not None:
            key, low, high = bounds
            known = rooms.get(key, (-INF, INF))
            rooms[key] = max(low, known[0]), min(high, known[1])
    return any(low > high for low, high in rooms.values())


def _parts(test: Data) -> list[Data]:
    """The conditions that all hold where this one does."""
    if test["op"] == "binary" and test["fn"] == "and":
        return [*_parts(test["left"]), *_parts(test["right"])]
    return [test]


def _opposed(test: Data) -> Data:
    if test["op"] == "unary" and test["fn"] == "not":
        inner: Data = test["value"]
        return inner
    return node("unary", fn="not", value=test)


def _bounds(test: Data) -> tuple[str, float, float] | None:
    """What a comparison with a constant says of the other side: its key, and the range that is left for it."""
    if test["op"] != "binary" or test["fn"] not in _TURNED:
        return None
    fn, side, constant_side = test["fn"], test["left"], test["right"]
    if side["op"] == "number":
        fn, side, constant_side = _TURNED[fn], constant_side, side
    if constant_side["op"] != "number" or "open" in constant_side:
        return None
    value = constant_side["value"]
    low = {">": math.nextafter(value, INF), ">=": value, "==": value}.get(fn, -INF)
    high = {"<": math.nextafter(value, -INF), "<=": value, "==": value}.get(fn, INF)
    return _key(side), low, high


_TURNED = {"<": ">", "<=": ">=", ">": "<", ">=": "<=", "==": "=="}


def calculated(body: Body, expr: tree.Binary, left: Typed, right: Typed) -> Typed | None:
    """`left op right` for + - * / ^. Reports E0302 where the units do not go together, E0307 where it may be no number."""
    data = node("binary", fn=expr.op, left=left.data, right=right.data)
    if expr.op in "+-":
        if not same_unit(body, left, right, expr.left.span, expr.right.span, f"`{expr.op}`"):
            return None
        low, high = (
            (left.low + right.low, left.high + right.high)
            if expr.op == "+"
            else (left.low - right.high, left.high - right.low)
        )
        if expr.op == "-" and _key(left.data) == _key(right.data):
            low, high = 0.0, 0.0
        return _folded(Typed(data, left.unit, low, high), left, right)
    if expr.op == "*":
        low, high = product(left.interval, right.interval)
        if low == high and math.isinf(low):
            return _endless(body, expr)
        return _folded(Typed(data, times(left.unit, right.unit), low, high), left, right)
    if expr.op == "/":
        if contains_zero(right.interval) and _key(right.data) not in body.nonzero:
            return _by_zero(body, expr, right)
        low, high = quotient(left.interval, right.interval)
        if _key(left.data) == _key(right.data):
            low, high = 1.0, 1.0
        return _folded(Typed(data, times(left.unit, right.unit, -1), low, high), left, right)
    return _power(body, expr, left, right)


def _power(body: Body, expr: tree.Binary, left: Typed, right: Typed) -> Typed | None:
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
    data = node("binary", fn=expr.op, left=left.data, right=right.data)
    if left.low == left.high and right.low == right.high:
        value = _raised(left.low, right.low)
        return _endless(body, expr) if math.isinf(value) else Typed(data, PLAIN, value, value)
    if _may_be_endless(left, right):
        return fail(
            body,
            "E0307",
            "this power may be past every number",
            expr,
            "bound it: `min(…, 10)`, or divide first",
        )
    if left.low == left.high > 0:
        ends = _raised(left.low, right.low), _raised(left.low, right.high)
        return Typed(data, PLAIN, min(ends), max(ends))
    low = 0.0 if left.low >= 0 else -INF
    return Typed(data, PLAIN, low, INF)


def _may_be_endless(base: Typed, exponent: Typed) -> bool:
    """Whether bounds that are known make a power that no number can hold. Of what has no bounds nothing is said."""
    if not all(map(math.isfinite, (*base.interval, *exponent.interval))):
        return False
    largest = max(abs(base.low), abs(base.high))
    return math.isinf(_raised(largest, exponent.high)) or (
        base.low > 0 and math.isinf(_raised(base.low, exponent.low))
    )


def _raised(base: float, exponent: float) -> float:
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
        return constant(result.low, result.unit)
    return result


def _by_zero(body: Body, expr: tree.Binary, right: Typed) -> Typed | None:
    unit = " tokens" if right.unit == TOKENS else ""
    never = right.low == right.high == 0
    above = f"keep it above 0: `max(…, 1{unit})`, or test it with `if`"
    if isinstance(expr.right, tree.Name) and "open" in right.data:
        bounds = "tokens in 1 tokens..1M tokens" if unit else "number in 1e-6..1M"
        above = f"give the parameter a range above 0: `{expr.right.name}: {bounds}`"
    body.ctx.report(
        error(
            "E0307",
            "this divides by zero" if never else "this may divide by zero",
            expr.right.span,
            "0" if never else "may be 0",
            help="divide by something else" if never else above,
        )
    )
    return None


def comparison(body: Body, expr: tree.Compare, left: Typed, right: Typed) -> Typed | None:
    """`left op right` for == != < <= > >=: a condition. Reports E0302 where the units differ."""
    if not same_unit(body, left, right, expr.left.span, expr.right.span, f"`{expr.op}`"):
        return None
    low, high = compared(expr.op, left.interval, right.interval)
    return Typed(node("binary", fn=expr.op, left=left.data, right=right.data), PLAIN, low, high, True)


def choice(body: Body, expr: tree.IfElse, test: Typed, then: Typed, other: Typed) -> Typed | None:
    """`then if test else other`. Reports E0302 where the units differ."""
    if not same_unit(body, then, other, expr.then.span, expr.otherwise.span, "`if … else`"):
        return None
    data = node("if", test=test.data, then=then.data, other=other.data)
    taken = [then] if test.low == 1 else [other] if test.high == 0 else [then, other]
    low, high = min(each.low for each in taken), max(each.high for each in taken)
    return Typed(data, then.unit, low, high, then.condition and other.condition)


def nonzero(test: Data) -> tuple[frozenset[str], frozenset[str]]:
    """What cannot be 0 where a condition holds, and where it does not; as `Body.nonzero` has it."""
    none: frozenset[str] = frozenset()
    if test["op"] == "unary" and test["fn"] == "not":
        then, other = nonzero(test["value"])
        return other, then
    if test["op"] != "binary" or test["fn"] not in ("==", "!=", "<", ">"):
        return none, none
    left, right = test["left"], test["right"]
    found = {_key(node("binary", fn="-", left=a, right=b)) for a, b in ((left, right), (right, left))}
    for one, two in ((left, right), (right, left)):
        if one["op"] == "number" and one["value"] == 0:
            found.add(_key(two))
    facts = frozenset(found)
    return (none, facts) if test["fn"] == "==" else (facts, none)


def _key(data: Data) -> str:
    """One text per expression, to recognise it again."""
    return json.dumps(data, sort_keys=True)
