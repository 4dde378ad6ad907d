"""Hold the state of typing a formula: typed expressions, the ranges of their values, and the names in scope."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple, NoReturn, TypeAlias, get_args

from reodsl.diagnostics.model import Edit, Label, Span
from reodsl.ir.expression import (
    READINGS,
    TRACK,
    Constant,
    Expression,
    Function,
    PythonTerm,
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
Facts: TypeAlias = "Mapping[Expression, ValueRange]"
"""The possible values of expressions, as the conditions around them imply."""


class ValueRange(NamedTuple):
    """The values that an expression may have if a condition holds."""

    low: float = -math.inf
    high: float = math.inf
    may_be_zero: bool = True
    """True if the value may be 0."""

    @property
    def is_empty(self) -> bool:
        """Return whether no value is in the range."""
        return self.low > self.high or (self.low == self.high == 0 and not self.may_be_zero)

    def intersect(self, other: ValueRange) -> ValueRange:
        """Return the range of the values that are in both ranges, for two conditions that both hold."""
        return ValueRange(
            max(self.low, other.low), min(self.high, other.high), self.may_be_zero and other.may_be_zero
        )

    def unite(self, other: ValueRange) -> ValueRange:
        """Return the smallest range that contains both ranges, for two conditions of which one holds."""
        return ValueRange(
            min(self.low, other.low), max(self.high, other.high), self.may_be_zero or other.may_be_zero
        )

    def clip(self, low: float, high: float) -> Interval:
        """Return the interval of the values from `low` to `high` that are also in this range.

        If this range excludes 0, an end of the interval at 0 moves to the nearest float inside the interval.

        Returns:
            (lower end, upper end); `low` and `high` unchanged if no value is in both ranges.
        """
        bounds = max(low, self.low), min(high, self.high)
        if not self.may_be_zero:
            bounds = (
                math.nextafter(0, math.inf) if bounds[0] == 0 else bounds[0],
                math.nextafter(0, -math.inf) if bounds[1] == 0 else bounds[1],
            )
        return bounds if bounds[0] <= bounds[1] else (low, high)


def contains_zero(interval: Interval) -> bool:
    """Return whether an interval (low, high) contains 0."""
    return interval[0] <= 0 <= interval[1]


def multiply(left: Interval, right: Interval) -> Interval:
    """Return the range of x y, for x in `left` and y in `right`."""
    # 0 times infinity is 0.
    ends = [0.0 if a == 0 or b == 0 else a * b for a in left for b in right]
    return min(ends), max(ends)


def divide(left: Interval, right: Interval) -> Interval:
    """Return the range of x / y, for x in `left` and y in `right`; unbounded if y may be 0."""
    if contains_zero(right):
        return -math.inf, math.inf
    inverse = (0.0 if math.isinf(right[1]) else 1 / right[1], 0.0 if math.isinf(right[0]) else 1 / right[0])
    return multiply(left, (min(inverse), max(inverse)))


def compare_ranges(op: str, left: Interval, right: Interval) -> Interval:
    """Return the possible results of a comparison of two numbers that are known by their intervals.

    Args:
        op: The operator: `<`, `<=`, `>`, `>=`, `==` or `!=`.
        left: The interval of the left number.
        right: The interval of the right number.

    Returns:
        (1, 1) if the comparison always holds, (0, 0) if it never holds, else (0, 1).
    """
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


INF = math.inf


@dataclass(frozen=True, slots=True)
class TypedExpr:
    """An expression with its unit and the range of its values."""

    data: Expression
    """The expression."""
    unit: Dimension
    """The unit of its values, as powers of base units."""
    low: float
    """The smallest value, in base units."""
    high: float
    """The largest value, in base units."""
    is_condition: bool = False
    """True if the expression is a condition, whose value is 1 or 0."""
    is_unbound: bool = False
    """True if it is a parameter without an argument, which may have any value in its range."""

    @property
    def interval(self) -> Interval:
        """The smallest and the largest value."""
        return self.low, self.high

    @property
    def is_constant(self) -> bool:
        """Return whether the expression is a known number."""
        return isinstance(self.data, Constant)


def make_constant(number: float, unit: Dimension) -> TypedExpr:
    """Return a number as a typed expression.

    Args:
        number: The number, in base units.
        unit: The unit of the number.
    """
    return TypedExpr(Constant(value=number, unit=dict(unit).get("tokens", 0)), unit, number, number)


@dataclass(frozen=True, slots=True)
class LocalFunction:
    """A function that a reward defines."""

    name: str
    params: tuple[tree.Ident, ...]
    value: tree.Expr
    env: Names
    """The names that its body may use besides its parameters: those defined above it."""


@dataclass(slots=True)
class Names:
    """The names that a formula may use at one line.

    A name that begins with `?` is a response of the caller, which the body of a local function cannot name.
    """

    values: dict[str, TypedExpr] = field(default_factory=dict)
    """Numbers: parameters, `let`s, tracks, variables over splits."""
    responses: dict[str, str] = field(default_factory=lambda: {"y": "y"})
    """`y` and variables over responses, by the name in the spec."""
    other_params: dict[str, Value | None] = field(default_factory=dict)
    """Parameters that are not numbers; None without an argument."""
    invalid: set[str] = field(default_factory=set)
    """Names that an erroneous line defines."""
    sampled: Mapping[str, str] = field(default_factory=dict)
    """Variables over responses of the reference model (`ref`) or of earlier steps (`history`)."""
    functions: dict[str, LocalFunction] = field(default_factory=dict)
    """Functions of the reward."""
    call_stack: tuple[str, ...] = ()
    """The functions whose bodies are being typed."""
    split_count: int = 0
    """The count of variables over splits."""
    token: str = ""
    """The variable over tokens; empty outside of a statistic over tokens."""
    params: dict[str, tree.ParamDecl] = field(default_factory=dict)
    """Declarations of the parameters that have no argument."""

    @property
    def size(self) -> int:
        """Return the number of names, to which the work of a copy is proportional."""
        return len(self.values) + len(self.responses) + len(self.other_params) + len(self.functions)

    def with_value(self, name: str, value: TypedExpr) -> Names:
        """Return a copy with one more numeric name, or a new value for it."""
        return replace(self, values={**self.values, name: value})

    def with_split_variable(self, name: str, value: TypedExpr) -> Names:
        """Return a copy with one more variable over splits: positions, in tokens, at which a response is divided."""
        return replace(self, values={**self.values, name: value}, split_count=self.split_count + 1)

    def with_response(self, name: str, canonical: str, over: str = "group") -> Names:
        """Return a copy with one more variable over responses, for use inside a statistic.

        A variable that runs over `ref` or `history` is added to `sampled`. Measures that exist only for responses of
        the current step are then refused for it.

        Args:
            name: The variable in the spec.
            canonical: The name of the variable in the typed expression.
            over: What the variable runs over: `group`, `ref` or `history`.
        """
        sampled = self.sampled
        if over in ("ref", "history"):
            sampled = {**sampled, canonical: over}
        elif canonical in sampled:
            sampled = {name: source for name, source in sampled.items() if name != canonical}
        # `replace` takes ten times as long, and a reward may have thousands of statistics.
        return Names(
            self.values,
            {**self.responses, name: canonical},
            self.other_params,
            self.invalid,
            sampled,
            self.functions,
            self.call_stack,
            self.split_count,
            params=self.params,
        )

    def before_responses(self) -> Names:
        """Return a copy with the names that are known before a step samples responses.

        The copy has constants, parameters, tracks, and functions; the functions may use only names of these kinds.
        """
        functions = {key: replace(f, env=f.env._keep_numbers()) for key, f in self.functions.items()}
        return replace(self._keep_numbers(), functions=functions)

    def _keep_numbers(self) -> Names:
        """Return a copy without responses, and with only the numbers that do not depend on responses.

        These numbers are constants, parameters without an argument, and tracks.
        """
        numbers = {
            key: value
            for key, value in self.values.items()
            if value.is_constant
            or value.is_unbound
            or (isinstance(value.data, Variable) and value.data.name.startswith(TRACK))
        }
        return replace(self, values=numbers, responses={})

    def names(self) -> list[str]:
        """Return all names that a formula may use here, for suggestions of a similar name."""
        all_names = (*self.values, *self.responses, *self.other_params, *self.functions)
        return [*(name for name in all_names if name[0] != "?"), "group", "batch", "ref", "x"]


@dataclass(frozen=True, slots=True)
class ResponseLimits:
    """The limits of responses where a reward or a selection is used."""

    longest: float = INF
    """The longest response, in tokens."""
    wordings: float = INF
    """The count of wordings."""
    group: float = INF
    """Responses to a question."""


@dataclass(slots=True)
class Splits:
    """The splits of a reward: of its `dense` line, else of its first statistic over splits."""

    over: tree.Expr | None = None
    """The expression that names the splits; None if the reward has no splits."""
    variable: str | None = None
    """The name in the `dense` line."""
    record: Record | None = None
    """The budgets or other splits; None if they depend on a missing argument."""
    high: float = INF
    """The largest split, in tokens."""
    invalid: bool = False
    """True if the splits are wrong, which was reported."""


@dataclass(slots=True)
class FormulaScope:
    """The state of typing a formula: the names it may use, and what it needs."""

    ctx: Context
    """The evaluation."""
    scope: Scope
    """The names of the file and the arguments."""
    env: Names
    """The names of the reward."""
    split_name: str | None = None
    """The name of the current split in a `dense` line."""
    uses: set[str] = field(default_factory=set)
    """The needs of the formula in training, as in `TypedReward`."""
    cuts: list[tuple[TypedExpr, Span]] = field(default_factory=list)
    """The cuts of responses: the number of tokens, and the span."""
    fields: dict[str, Span] = field(default_factory=dict)
    """The numbers of a question that it reads, each with its first span."""
    facts: Facts = field(default_factory=dict)
    """The possible values of expressions, as the conditions around the current expression imply."""
    tests: dict[Expression, tuple[Facts, Facts]] = field(default_factory=dict)
    """The facts of each `let` that is a condition, if it holds and if it does not."""
    integers: set[str] = field(default_factory=set)
    """The `let`s that are whole numbers."""
    limits: ResponseLimits = ResponseLimits()
    """The limits of responses."""
    depth: int = 0
    """The depth of the current expression."""
    is_selection: bool = False
    """True if the body is a selection's."""
    is_measure: bool = False
    """True if the body is a measure's."""
    track: str | None = None
    """The track that is typed; empty in a measure, `BATCH` in a statistic over the batch, else None."""
    track_response: str | None = None
    """The response of the track's statistic."""
    splits: Splits = field(default_factory=Splits)
    """The splits of the reward."""
    code_terms: dict[str, tuple[PythonTerm, Span]] = field(default_factory=dict)
    """The first term of each of the user's functions, with its span."""
    metrics: dict[str, TypedExpr] = field(default_factory=dict)
    """The metrics above the line."""
    line_kinds: Mapping[str, tuple[str, Span]] = field(default_factory=dict)
    """The kind and the span of each line, by its name."""

    def within(self, env: Names, facts: Facts | None = None) -> FormulaScope:
        """Return a scope inside this one with other names, and other facts if `facts` is given.

        Both scopes share what they collect, such as uses and cuts.
        """
        return replace(self, env=env, facts=self.facts if facts is None else facts)


def fail(
    body: FormulaScope,
    code: str,
    message: str,
    node: tree.Expr | tree.Comprehension | tree.Binding | tree.Arg,
    help: str | None = None,
    edits: Sequence[Edit] = (),
) -> NoReturn:
    """Report an error of a formula and end its typing.

    Args:
        body: The formula that is typed.
        code: The code of the diagnostic.
        message: What is wrong.
        node: The syntax node at which to show the error.
        help: What to write instead.
        edits: Replacements that an editor can apply to mend the error.

    Raises:
        NoValue: Always.
    """
    body.ctx.fail(code, message, node.span, help=help, edits=edits)


def bracket(text: str) -> str:
    """Return the text of an operand, in parentheses if it needs them.

    A name, a number and a call need no parentheses: all their characters after the first word are inside one pair of
    parentheses.
    """
    head = re.match(r"[\w.]*", text)
    tail = text[head.end() :] if head is not None else text
    depth = 0
    for i, sign in enumerate(tail):
        depth += (sign == "(") - (sign == ")")
        if depth == 0:
            return text if i == len(tail) - 1 and sign == ")" else f"({text})"
    return f"({text})" if tail else text


def refuse_unit(
    body: FormulaScope, message: str, value: TypedExpr, span: Span, *, operand: bool = False
) -> NoReturn:
    """Report E0302 for a value with a unit where a plain number is needed, with an edit that divides by the unit.

    Args:
        body: The formula that is typed.
        message: What needs a plain number.
        value: The value with the unit.
        span: The span of the value.
        operand: Whether the value is an operand of `^`. The edit then adds parentheses around the quotient.

    Raises:
        NoValue: Always.
    """
    divisor = write_divisor(value.unit)
    hint = f"make it a plain number: `…{divisor}`"
    if value.unit == TOKENS:
        hint += ", or divide it by a length, such as `mean(len(z) for z in group)`"
    plain = bracket(body.ctx.text_at(span)) + divisor
    edits = (Edit(span, f"({plain})" if operand else plain),)
    body.ctx.fail("E0302", message, span, describe_unit(value.unit), help=hint, edits=edits)


def check_unit(
    body: FormulaScope, a: TypedExpr, b: TypedExpr, a_span: Span, b_span: Span, subject: str
) -> None:
    """Check that two expressions have the same unit, or report E0302.

    Args:
        body: The formula that is typed.
        a: The first expression.
        b: The second expression.
        a_span: The span of the first expression.
        b_span: The span of the second expression.
        subject: What needs equal units, for the message, such as "`+`".

    Raises:
        NoValue: The units differ, which was reported.
    """
    if a.unit != b.unit:
        hint, edits = _suggest_units(body, (a, a_span), (b, b_span))
        body.ctx.fail(
            "E0302",
            f"{subject} needs equal units",
            a_span,
            describe_unit(a.unit),
            labels=[Label(b_span, describe_unit(b.unit))],
            help=hint,
            edits=edits,
        )


def _suggest_units(
    body: FormulaScope, a: tuple[TypedExpr, Span], b: tuple[TypedExpr, Span]
) -> tuple[str, tuple[Edit, ...]]:
    """Suggest how to give two expressions with different units the same unit.

    There are three cases. A constant without a unit gets the unit of the other expression; but if it is a fraction
    and the other is a length, the length is divided by its unit instead. If one expression has no unit and is not a
    constant, the other is divided by its unit. If both have units, both are divided.

    Args:
        body: The formula that is typed.
        a: The first expression and its span.
        b: The second expression and its span.

    Returns:
        The help of the error, and edits that follow the help; none if the text cannot be edited automatically.
    """
    for (side, span), (other, other_span) in ((a, b), (b, a)):
        divisor = write_divisor(other.unit)
        divide_other = Edit(other_span, bracket(body.ctx.text_at(other_span)) + divisor)
        if side.unit == PLAIN and isinstance(side.data, Constant):
            if other.unit == TOKENS and not side.data.value.is_integer():
                # A fraction is not a length: the number is a share or a weight.
                hint = f"make the length a plain number: `…{divisor}`, or divide it by another length"
                return hint, (divide_other,)
            amount = write_amount(side.data.value, other.unit)
            if len(other.unit) == 1 and other.unit[0][1] == 1:
                amount = format_quantity(Quantity(side.data.value, other.unit))
            number = _NUMBER.fullmatch(body.ctx.text_at(span))
            return f"give the number its unit: `{amount}`", (Edit(span, amount),) if number else ()
    for (side, _), (other, other_span) in ((a, b), (b, a)):
        if side.unit == PLAIN:
            divisor = write_divisor(other.unit)
            hint = f"make it a plain number: `…{divisor}`"
            if other.unit == TOKENS:
                hint = (
                    "divide a length by another to get a plain number: `len(y) / max(len(z) for z in group)`, or "
                    f"by a number: `…{divisor}`"
                )
            return hint, (Edit(other_span, bracket(body.ctx.text_at(other_span)) + divisor),)
    divisors = " and ".join(f"`…{write_divisor(side.unit)}`" for side, _ in (a, b))
    a_span, b_span = a[1], b[1]
    # The span from the first expression to the end of the second, and the span between the expressions.
    both, between = (
        start._replace(end_line=end.line, end_column=end.column)
        for start, end in (
            (a_span, b_span._replace(line=b_span.end_line, column=b_span.end_column)),
            (a_span._replace(line=a_span.end_line, column=a_span.end_column), b_span),
        )
    )
    plain = [bracket(body.ctx.text_at(span)) + write_divisor(side.unit) for side, span in (a, b)]
    edits = (Edit(both, body.ctx.text_at(between).join(plain)),) if a_span[1:3] < b_span[1:3] else ()
    return f"bring both to one unit, or make each a plain number: {divisors}", edits


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

MEASURES = ("arm", "base", "grid", "reach")
"""Words that only a measure knows: responses of an arm or of the baseline, the suite's budgets, and a statistic."""

BATCH = "batch"
"""All responses of the step, which a reward's statistic may run over."""

TRACK_WORDS = ("quantile", "steps", "monitor", "step")
"""Words that only a track knows: a statistic, what tracks run over, and the number of finished steps."""

RESPONSE_NAMES = frozenset({"y", "x", "group", "ref", *RESPONSE, *WEIGHTS, "before"})
