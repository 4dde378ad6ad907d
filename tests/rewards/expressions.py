"""Short names for expression nodes, so that tests read like the rewards they hold."""

from __future__ import annotations

from reodsl.ir.expression import (
    Aggregate,
    Attribute,
    Constant,
    Correct,
    CutAnswer,
    Expression,
    ForcedAnswer,
    FunctionCall,
    If,
    Infix,
    Length,
    Negation,
    Variable,
    Weight,
)

Value = Expression | float | str


def e(value: Value) -> Expression:
    """A number as a constant, a text as a name."""
    if isinstance(value, str):
        return Variable(name=value)
    return Constant(value=value) if isinstance(value, (int, float)) else value


def op(left: Value, fn: str, right: Value) -> Infix:
    return Infix(fn=fn, left=e(left), right=e(right))


def call(fn: str, *args: Value) -> FunctionCall:
    return FunctionCall(fn=fn, args=tuple(e(arg) for arg in args))


def length(of: str = "y") -> Length:
    return Length(of=of)


def correct(of: str = "y") -> Correct:
    return Correct(of=of)


def forced(cut: Value, of: str = "y") -> ForcedAnswer:
    return ForcedAnswer(of=of, cut=e(cut))


def bare(cut: Value, of: str = "y") -> CutAnswer:
    return CutAnswer(of=of, cut=e(cut))


def given(field: str, of: str = "y") -> Attribute:
    return Attribute(of=of, field=field)


def weight(rule: str = "trapezoid") -> Weight:
    return Weight(rule=rule)


def minus(value: Value) -> Negation:
    return Negation(fn="neg", value=e(value))


def where(test: Value, then: Value, other: Value) -> If:
    return If(test=e(test), then=e(then), other=e(other))


def stat(
    fn: str,
    value: Value,
    *,
    over: str = "group",
    var: str = "z",
    where: Value | None = None,
    empty: Value | None = None,
) -> Aggregate:
    return Aggregate(
        fn=fn,
        var=var,
        over=over,
        value=e(value),
        where=None if where is None else e(where),
        empty=None if empty is None else e(empty),
    )
