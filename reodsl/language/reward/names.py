"""Hold the words of a reward and the state of typing one: typed expressions, their ranges, and the names in scope."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple, NoReturn, get_args

from reodsl.diagnostics.model import Edit, Label, Span
from reodsl.ir.expression import (
    READINGS,
    TRACK,
    Constant,
    Expression,
    Function,
    Own,
    Statistic,
    Variable,
    WeightRule,
)
from reodsl.ir.expression import TOKENS as TOKEN_NUMBERS
from reodsl.language.context import Context
from reodsl.language.units import (
    PLAIN,
    TOKENS,
    Dimension,
    Quantity,
    describe_unit,
    format_quantity,
    write_amount,
    write_divisor,
)
from reodsl.language.values import Record, Scope, Value
from reodsl.syntax import tree

Interval = tuple[float, float]


class Room(NamedTuple):
    """The range that a condition leaves to a value, and whether the value may be 0."""

    low: float = -math.inf
    high: float = math.inf
    zero: bool = True

    @property
    def empty(self) -> bool:
        """Return whether no value fits."""
        return self.low > self.high or (self.low == self.high == 0 and not self.zero)

    def meet(self, other: Room) -> Room:
        """Return the room that two conditions leave together."""
        return Room(max(self.low, other.low), min(self.high, other.high), self.zero and other.zero)

    def join(self, other: Room) -> Room:
        """Return the room that either of two conditions leaves."""
        return Room(min(self.low, other.low), max(self.high, other.high), self.zero or other.zero)

    def within(self, low: float, high: float) -> Interval:
        """Return the part of a range that fits; the range itself where none does."""
        bounds = max(low, self.low), min(high, self.high)
        if not self.zero:
            bounds = (
                math.nextafter(0, math.inf) if bounds[0] == 0 else bounds[0],
                math.nextafter(0, -math.inf) if bounds[1] == 0 else bounds[1],
            )
        return bounds if bounds[0] <= bounds[1] else (low, high)


def contains_zero(interval: Interval) -> bool:
    """Return whether 0 is possible."""
    return interval[0] <= 0 <= interval[1]


def multiply(left: Interval, right: Interval) -> Interval:
    """Return the range of x y."""
    ends = [_times(a, b) for a in left for b in right]
    return min(ends), max(ends)


def divide(left: Interval, right: Interval) -> Interval:
    """Return the range of x / y for y of one sign; everything if y may be 0."""
    if contains_zero(right):
        return -math.inf, math.inf
    inverse = (0.0 if math.isinf(right[1]) else 1 / right[1], 0.0 if math.isinf(right[0]) else 1 / right[0])
    return multiply(left, (min(inverse), max(inverse)))


def compare_ranges(op: str, left: Interval, right: Interval) -> Interval:
    """Return the range of a comparison: (1, 1) if it always holds, (0, 0) if it never does, else (0, 1)."""
    if op in (">", ">="):
        return compare_ranges("<" + op[1:], right, left)
    if op == "!=":
        low, high = compare_ranges("==", left, right)
        return 1 - high, 1 - low
    if op == "==":
        always = left == right and left[0] == left[1]
        never = left[1] < right[0] or right[1] < left[0]
    elif op == "<":
        always, never = left[1] < right[0], left[0] >= right[1]
    else:
        always, never = left[1] <= right[0], left[0] > right[1]
    return (1.0, 1.0) if always else (0.0, 0.0) if never else (0.0, 1.0)


def _times(a: float, b: float) -> float:
    return 0.0 if a == 0 or b == 0 else a * b


INF = math.inf


@dataclass(frozen=True, slots=True)
class Typed:
    """An expression, its unit, and the range of its values.

    Conditions are 1 or 0. `open` marks a parameter without an argument, which may have any value in its range.
    """

    data: Expression
    unit: Dimension
    low: float
    high: float
    condition: bool = False
    open: bool = False

    @property
    def interval(self) -> Interval:
        """The range as a pair."""
        return self.low, self.high

    @property
    def constant(self) -> bool:
        """Return whether this is a known number."""
        return isinstance(self.data, Constant)


def make_constant(number: float, unit: Dimension) -> Typed:
    """Return a number that is known."""
    return Typed(Constant(value=number, unit=dict(unit).get("tokens", 0)), unit, number, number)


@dataclass(frozen=True, slots=True)
class LocalFunction:
    """A function of a reward, and the names that its body may use besides its parameters: those before it."""

    name: str
    params: tuple[tree.Ident, ...]
    value: tree.Expr
    env: RewardNames


@dataclass(slots=True)
class RewardNames:
    """Names in a reward: numbers, responses (`y` and variables over a group), other parameters, broken lets.

    `sampled` are the variables that run over the reference model's responses, or over earlier ones, with `ref` or `history`.
    `inside` are the functions whose bodies are being written out. Names that begin with `?` stand for responses of the place
    that calls one. `places` says how many variables over `splits` there are, and `token` is the variable over tokens.
    `params` are the parameters that have no argument.
    """

    values: dict[str, Typed] = field(default_factory=dict)
    responses: dict[str, str] = field(default_factory=lambda: {"y": "y"})
    others: dict[str, Value | None] = field(default_factory=dict)
    invalid: set[str] = field(default_factory=set)
    sampled: Mapping[str, str] = field(default_factory=dict)
    functions: dict[str, LocalFunction] = field(default_factory=dict)
    inside: tuple[str, ...] = ()
    places: int = 0
    token: str = ""
    params: dict[str, tree.ParamDecl] = field(default_factory=dict)

    @property
    def size(self) -> int:
        """Return the number of names; a copy copies all of them."""
        return len(self.values) + len(self.responses) + len(self.others) + len(self.functions)

    def with_value(self, name: str, value: Typed) -> RewardNames:
        """Return this environment with one more number in it."""
        return replace(self, values={**self.values, name: value})

    def with_place(self, name: str, value: Typed) -> RewardNames:
        """Return this environment with one more variable over `splits` in it."""
        return replace(self, values={**self.values, name: value}, places=self.places + 1)

    def with_response(self, name: str, canonical: str, over: str = "group") -> RewardNames:
        """Return this environment with one more response in it, of `group` or of `ref`."""
        sampled = self.sampled
        if over in ("ref", "history"):
            sampled = {**sampled, canonical: over}
        elif canonical in sampled:
            sampled = {name: each for name, each in sampled.items() if name != canonical}
        # `replace` takes ten times as long, and rewards have statistics by the thousand.
        return RewardNames(
            self.values,
            {**self.responses, name: canonical},
            self.others,
            self.invalid,
            sampled,
            self.functions,
            self.inside,
            self.places,
            params=self.params,
        )

    def before_responses(self) -> RewardNames:
        """Return the names of numbers that do not depend on a response, and the functions, which know no others."""
        functions = {key: replace(each, env=each.env._numbers()) for key, each in self.functions.items()}
        return replace(self._numbers(), functions=functions)

    def _numbers(self) -> RewardNames:
        numbers = {
            key: value
            for key, value in self.values.items()
            if value.constant
            or value.open
            or (isinstance(value.data, Variable) and value.data.name.startswith(TRACK))
        }
        return replace(self, values=numbers, responses={})

    def names(self) -> list[str]:
        """Everything that has a name."""
        known = (*self.values, *self.responses, *self.others, *self.functions)
        return [*(name for name in known if name[0] != "?"), "group", "batch", "ref", "x"]


@dataclass(frozen=True, slots=True)
class ResponseLimits:
    """The bounds of responses at the use of a reward or a selection: tokens, wordings, and the size of the group."""

    longest: float = INF
    wordings: float = INF
    group: float = INF


@dataclass(slots=True)
class Splits:
    """The splits of a reward: those of its `dense` line, else those of its first statistic over splits.

    `over` is None while nothing names them. `variable` is the name in the `dense` line; `record` is what they are, or None
    where that depends on an argument. `high` is their last place at most, and `broken` marks those that are wrong.
    """

    over: tree.Expr | None = None
    variable: str | None = None
    record: Record | None = None
    high: float = INF
    invalid: bool = False


@dataclass(slots=True)
class Body:
    """The state of typing one reward.

    `variable` is the name of the split at hand in a `dense` line. `facts` holds the range that conditions around an
    expression leave a value, and `tests` the facts of each let if it holds, and if it does not. `wholes` are the lets that
    are whole numbers. `selects` is true for the
    body of a selection, and `measures` for that of a measure. `track` is the name of the track at hand, empty in a measure
    and `BATCH` in a statistic over the batch, and `tracked` the response of its statistic. `cuts` are
    the places at which responses are cut. `terms` are the first of the user's functions, `logged` the metrics above, and
    `written` says of all lines' names what they are of, and where.
    """

    ctx: Context
    scope: Scope
    env: RewardNames
    variable: str | None = None
    uses: set[str] = field(default_factory=set)
    cuts: list[tuple[Typed, Span]] = field(default_factory=list)
    fields: dict[str, Span] = field(default_factory=dict)
    facts: Mapping[Expression, Room] = field(default_factory=dict)
    tests: dict[Expression, tuple[Mapping[Expression, Room], Mapping[Expression, Room]]] = field(
        default_factory=dict
    )
    wholes: set[str] = field(default_factory=set)
    limits: ResponseLimits = ResponseLimits()
    depth: int = 0
    selects: bool = False
    measures: bool = False
    track: str | None = None
    tracked: str | None = None
    splits: Splits = field(default_factory=Splits)
    terms: dict[str, tuple[Own, Span]] = field(default_factory=dict)
    logged: dict[str, Typed] = field(default_factory=dict)
    written: Mapping[str, tuple[str, Span]] = field(default_factory=dict)

    def within(self, env: RewardNames, facts: Mapping[Expression, Room] | None = None) -> Body:
        """Return the same reward with other names, and perhaps other facts; its uses and cuts are shared."""
        return Body(
            self.ctx,
            self.scope,
            env,
            self.variable,
            self.uses,
            self.cuts,
            self.fields,
            self.facts if facts is None else facts,
            self.tests,
            self.wholes,
            self.limits,
            self.depth,
            selects=self.selects,
            measures=self.measures,
            track=self.track,
            tracked=self.tracked,
            splits=self.splits,
            terms=self.terms,
            logged=self.logged,
            written=self.written,
        )


def fail(
    body: Body,
    code: str,
    message: str,
    at: tree.Expr | tree.Comprehension | tree.Arg,
    help: str | None = None,
    edits: Sequence[Edit] = (),
) -> NoReturn:
    """Report an error of a reward. Raises `NoValue`."""
    body.ctx.fail(code, message, at.span, help=help, edits=edits)


def bracket(text: str) -> str:
    """Return a part of a formula as it is written inside another one: in brackets, if it is no name, number or call."""
    head = re.match(r"[\w.]*", text)
    rest = text[head.end() :] if head is not None else text
    depth = 0
    for at, sign in enumerate(rest):
        depth += (sign == "(") - (sign == ")")
        if depth == 0:
            return text if at == len(rest) - 1 and sign == ")" else f"({text})"
    return f"({text})" if rest else text


def refuse_unit(body: Body, message: str, value: Typed, at: Span, *, operand: bool = False) -> NoReturn:
    """Report E0302: a value with a unit where a plain number is wanted, perhaps an operand of `^`. Raises `NoValue`."""
    divisor = write_divisor(value.unit)
    helps = f"make it a plain number: `…{divisor}`"
    if value.unit == TOKENS:
        helps += ", or divide it by a length, such as `mean(len(z) for z in group)`"
    plain = bracket(body.ctx.text_at(at)) + divisor
    edits = (Edit(at, f"({plain})" if operand else plain),)
    body.ctx.fail("E0302", message, at, describe_unit(value.unit), help=helps, edits=edits)


def check_unit(body: Body, one: Typed, two: Typed, left: Span, right: Span, what: str) -> None:
    """Check that two expressions have one unit. Raises `NoValue`."""
    if one.unit != two.unit:
        helps, edits = _suggest_units(body, (one, left), (two, right))
        body.ctx.fail(
            "E0302",
            f"{what} wants equal units",
            left,
            describe_unit(one.unit),
            others=[Label(right, describe_unit(two.unit))],
            help=helps,
            edits=edits,
        )


def _suggest_units(
    body: Body, one: tuple[Typed, Span], two: tuple[Typed, Span]
) -> tuple[str, tuple[Edit, ...]]:
    """Return how to give two expressions one unit: a written number gets it, or what has a unit is divided by it."""
    for (side, at), (other, there) in ((one, two), (two, one)):
        divisor = write_divisor(other.unit)
        bare = Edit(there, bracket(body.ctx.text_at(there)) + divisor)
        if side.unit == PLAIN and isinstance(side.data, Constant):
            if other.unit == TOKENS and not side.data.value.is_integer():
                # No response has a part of a token: the number is a share, or a weight.
                return f"make the length a plain number: `…{divisor}`, or divide it by another length", (
                    bare,
                )
            amount = write_amount(side.data.value, other.unit)
            if len(other.unit) == 1 and other.unit[0][1] == 1:
                amount = format_quantity(Quantity(side.data.value, other.unit))
            number = _NUMBER.fullmatch(body.ctx.text_at(at))
            return f"give the number its unit: `{amount}`", (Edit(at, amount),) if number else ()
    for (side, _), (other, there) in ((one, two), (two, one)):
        if side.unit == PLAIN:
            divisor = write_divisor(other.unit)
            helps = f"make it a plain number: `…{divisor}`"
            if other.unit == TOKENS:
                helps = (
                    "divide a length by another to get a plain number: `len(y) / max(len(z) for z in group)`, or "
                    f"by a number: `…{divisor}`"
                )
            return helps, (Edit(there, bracket(body.ctx.text_at(there)) + divisor),)
    divisors = " and ".join(f"`…{write_divisor(side.unit)}`" for side, _ in (one, two))
    left, right = one[1], two[1]
    whole, between = (
        start._replace(end_line=end.line, end_column=end.column)
        for start, end in (
            (left, right._replace(line=right.end_line, column=right.end_column)),
            (left._replace(line=left.end_line, column=left.end_column), right),
        )
    )
    plain = [bracket(body.ctx.text_at(at)) + write_divisor(side.unit) for side, at in (one, two)]
    edit = Edit(whole, body.ctx.text_at(between).join(plain))
    return f"bring both to one unit, or make each a plain number: {divisors}", (edit,) if left[1:3] < right[
        1:3
    ] else ()


_NUMBER = re.compile(r"-?[0-9.]+([eE][+-]?[0-9]+)?")


WEIGHTS: tuple[WeightRule, ...] = get_args(WeightRule)
STATISTICS: tuple[Statistic, ...] = get_args(Statistic)
NUMERIC: tuple[Function, ...] = get_args(Function)
RESPONSE = ("len", "correct", "answer", "python", *READINGS)
FUNCTIONS = (
    *RESPONSE,
    *TOKEN_NUMBERS,
    "truth",
    *WEIGHTS,
    "before",
    "z",
    *dict.fromkeys((*STATISTICS, *NUMERIC)),
)

MEASURES = ("arm", "base", "grid")
"""Words of a measure alone: the responses of an arm, those of the baseline, and the budgets of the suite."""

BATCH = "batch"
"""All responses of the step, which a reward's statistic may run over."""

HISTORIES = ("quantile", "steps", "monitor", "step")
"""Words of a track alone: its own statistic, what it runs over, and the number of steps that are done."""

RESPONSE_NAMES = frozenset({"y", "x", "group", "ref", *RESPONSE, *WEIGHTS, "before"})
