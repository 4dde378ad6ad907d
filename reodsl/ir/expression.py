"""Reward expressions as data: numbers, what is measured of a response, and statistics over its group."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from reodsl.ir.base import IR


class Number(IR):
    """A constant."""

    op: Literal["number"] = "number"
    value: float


class Name(IR):
    """A `let` of the reward, or the variable of its `dense` line (a budget in tokens)."""

    op: Literal["name"] = "name"
    name: str


class Length(IR):
    """Tokens of a response: `y`, or the variable of the aggregate around it."""

    op: Literal["length"] = "length"
    of: str


class Correct(IR):
    """1 where a whole response is right, else 0."""

    op: Literal["correct"] = "correct"
    of: str


class Forced(IR):
    """1 where the answer forced after the first `cut` tokens is right, else 0; a shorter response is graded as it is."""

    op: Literal["forced"] = "forced"
    of: str
    cut: Expression


class Bare(IR):
    """1 where the first `cut` tokens, with nothing forced, hold the right answer, else 0."""

    op: Literal["bare"] = "bare"
    of: str
    cut: Expression


class Given(IR):
    """A number that belongs to the response's question or to the way it was sampled, such as an instructed budget."""

    op: Literal["given"] = "given"
    of: str
    field: str


class Weight(IR):
    """The coefficient of the split at hand: `trapezoid`, `uniform`, or `half_first` (as Q-Spec's is printed)."""

    op: Literal["weight"] = "weight"
    rule: Literal["trapezoid", "uniform", "half_first"]


class Previous(IR):
    """The place in tokens of the split before the one at hand; 0 for the first."""

    op: Literal["previous"] = "previous"


class Unary(IR):
    """A negation: of a number (`neg`) or of a condition (`not`)."""

    op: Literal["unary"] = "unary"
    fn: Literal["neg", "not"]
    value: Expression


class Binary(IR):
    """Arithmetic, a comparison or a connective; conditions are 1 or 0."""

    op: Literal["binary"] = "binary"
    fn: Literal["+", "-", "*", "/", "^", "==", "!=", "<", "<=", ">", ">=", "and", "or"]
    left: Expression
    right: Expression


class Call(IR):
    """A function of numbers. `clip(x, low, high)`; `cos` of radians."""

    op: Literal["call"] = "call"
    fn: Literal["sigmoid", "log", "exp", "sqrt", "cos", "abs", "min", "max", "clip"]
    args: tuple[Expression, ...]


class If(IR):
    """`then` where `test` holds, else `other`."""

    op: Literal["if"] = "if"
    test: Expression
    then: Expression
    other: Expression


class Aggregate(IR):
    """A statistic of `value` over the responses, or the splits, in `over` that meet `where`; `empty` when none does.

    `group` is the question's responses of this step, `ref` the starting model's frozen samples of it, `splits` the places of
    the response's splits in a `dense` line: there `var` is a name, a number of tokens.
    `std` is the population's; `count` counts.
    """

    op: Literal["aggregate"] = "aggregate"
    fn: Literal["mean", "std", "min", "max", "sum", "count", "median"]
    var: str
    over: Literal["group", "ref", "splits"]
    value: Expression
    where: Expression | None = None
    empty: Expression | None = None


Expression = Annotated[
    Number
    | Name
    | Length
    | Correct
    | Forced
    | Bare
    | Given
    | Weight
    | Previous
    | Unary
    | Binary
    | Call
    | If
    | Aggregate,
    Field(discriminator="op"),
]

for _node in (Forced, Bare, Unary, Binary, Call, If, Aggregate):
    _node.model_rebuild()
