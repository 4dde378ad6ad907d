"""Reward expressions as data: numbers, functions of them, what is measured of a response, and statistics over its group.

These are plain frozen dataclasses, unlike the rest of the representation: the language types rewards straight into them,
and `reodsl check` should not wait for pydantic. Inside pydantic models they are validated like everything else.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, fields, replace
from functools import cache
from typing import Annotated, Any, ClassVar, Literal, TypeAlias

from pydantic import Field

from reodsl.ir.base import IR, Node
from reodsl.ir.base import walk as walk_all
from reodsl.ir.data import Python

Ends: TypeAlias = tuple[float, float]
Function: TypeAlias = Literal[
    "sigmoid", "log", "exp", "sqrt", "cos", "abs", "floor", "min", "max", "clip", "choose"
]


@dataclass(frozen=True, slots=True)
class Domain:
    """The numbers at which a function has a value: those above 0, and 0 itself unless the domain is `open`.

    `why` says for a message why other numbers have no value. `otherwise` is a template that makes a number of the
    domain from a number that is never above 0, such as `abs({})`.
    """

    open: bool
    why: str
    otherwise: str

    def contains(self, low: float) -> bool:
        """Return whether the domain contains all numbers that are at least `low`."""
        return low > 0 or (low == 0 and not self.open)


@dataclass(frozen=True, slots=True)
class Signature:
    """The types of a function. `range` returns the range of its values from the ranges of its arguments.

    A function takes `arity` numbers, or at least `arity` if `more`. A `plain` function takes and returns numbers
    without a unit; another function returns a number in the unit of its first argument. `written` is an example of a
    call for documents; empty for `NAME(x)`.
    """

    range: Callable[..., Ends]
    arity: int = 1
    more: bool = False
    plain: bool = False
    domain: Domain | None = None
    written: str = ""


def _cos(x: Ends) -> Ends:
    """Return the range of `cos(x)` from the range of x; the widest range if x may leave 0 to pi."""
    return (math.cos(x[1]), math.cos(x[0])) if x[0] >= 0 and x[1] <= math.pi else (-1.0, 1.0)


def _abs(x: Ends) -> Ends:
    """Return the range of `abs(x)` from the range of x."""
    ends = abs(x[0]), abs(x[1])
    return 0.0 if x[0] <= 0 <= x[1] else min(ends), max(ends)


def _clip(x: Ends, low: Ends, high: Ends) -> Ends:
    """Return the range of `clip(x, low, high)` from the ranges of its arguments."""
    return min(max(x[0], low[0]), high[0]), min(max(x[1], low[1]), high[1])


def _rising(fn: Callable[[float], float]) -> Callable[[Ends], Ends]:
    """Return the function that maps the range of x to the range of `fn(x)`, for an increasing function."""
    return lambda x: tuple(end if math.isinf(end) else float(fn(end)) for end in x)  # type: ignore[return-value]


FUNCTIONS: dict[Function, Signature] = {
    "sigmoid": Signature(lambda x: (0.0, 1.0), plain=True),
    "log": Signature(
        _rising(math.log),
        plain=True,
        domain=Domain(True, "the logarithm of 0 or less is not a number", "abs({}) + 1e-6"),
    ),
    "sqrt": Signature(
        _rising(math.sqrt),
        plain=True,
        domain=Domain(False, "the root of a negative number is not a number", "abs({})"),
    ),
    "cos": Signature(_cos, plain=True),
    "abs": Signature(_abs),
    "floor": Signature(_rising(math.floor)),
    "min": Signature(lambda *xs: (min(x[0] for x in xs), min(x[1] for x in xs)), 2, more=True),
    "max": Signature(lambda *xs: (max(x[0] for x in xs), max(x[1] for x in xs)), 2, more=True),
    "clip": Signature(_clip, 3, written="clip(x, low, high)"),
    "choose": Signature(
        lambda n, k: (float(k[0] >= 0 and k[1] <= n[0]), math.inf), 2, plain=True, written="choose(n, k)"
    ),
    "exp": Signature(lambda x: (0.0, math.exp(x[1])), plain=True, written="e^x"),
}


@dataclass(frozen=True, slots=True)
class Reading:
    """A function that reads a number of a response: its meaning, its range, and the kinds of formula that know it."""

    means: str  # its meaning, for documents
    high: float = math.inf  # its greatest value
    low: float = 0.0  # its least value
    call: str = ""  # an example of a call; empty is `NAME(y)`
    condition: bool = False  # whether its value is 1 or 0
    tokens: bool = False  # whether its unit is tokens
    votes: bool = False  # whether it takes a whole number besides the response
    sampled: bool = False  # whether it is stored for the reference model's responses too
    graded: bool = False  # whether it is unknown before the answer is graded
    text: bool = False  # whether it takes a regular expression besides the response, as a `TextNumber`
    bodies: frozenset[str] = frozenset({"a reward"})  # the kinds of formula that know it


READINGS: dict[str, Reading] = {
    "mode": Reading(
        "the position, from 0, of the wording that it was asked in",
        bodies=frozenset({"a reward", "a track", "a selection", "`batch`"}),
    ),
    "ended": Reading(
        "1 where it was not cut off, else 0",
        1.0,
        condition=True,
        bodies=frozenset({"a reward", "a measure", "`batch`"}),
    ),
    "answered": Reading(
        "1 where there is an answer in it, right or wrong, else 0",
        1.0,
        condition=True,
        graded=True,
        bodies=frozenset({"a reward", "a measure", "`batch`"}),
    ),
    "thinking": Reading(
        "how many of its tokens are thinking: those up to the mark that ends it, which counts too; all without one",
        tokens=True,
        sampled=True,
        bodies=frozenset({"a reward", "`batch`"}),
    ),
    "matches": Reading(
        "1 where a regular expression is found in its text, else 0; `matches(answer(y), …)` and `matches(thinking(y), …)`:"
        " in the text of its answer, or of its thinking",
        1.0,
        call='matches(y, "Wait|Alternatively")',
        condition=True,
        graded=True,
        text=True,
        bodies=frozenset({"a reward", "a selection", "a measure", "`batch`"}),
    ),
    "number": Reading(
        "the number in the first group of a regular expression where it is first found in the text; `empty` without one",
        1e9,
        -1e9,
        call='number(y, "<budget>([0-9]+)</budget>", empty: 0)',
        graded=True,
        text=True,
        bodies=frozenset({"a reward", "a selection", "a measure", "`batch`"}),
    ),
    "majority": Reading(
        "how often the most frequent answer of 4 responses to its question is right, over all draws of 4",
        1.0,
        call="majority(z, 4)",
        votes=True,
        bodies=frozenset({"a measure"}),
    ),
}
"""The words by which a body reads a number of a response, as an `Attribute`. No column of the data is read by one of them.

`runners.train.rollouts` has the number of each that a reward knows, and `runners.evaluate.measures` those of a measure.
"""

TOKENS: dict[str, tuple[str, Ends]] = {
    "prob": ("the probability that the model gave it", (0.0, 1.0)),
    "logprob": ("the logarithm of that, at most 0", (-math.inf, 0.0)),
    "entropy": ("the entropy in nats of what the model could have said there", (0.0, math.log(1 << 24))),
}
"""Numbers of a token that a statistic reads, with their ranges; no vocabulary has more than 2^24 tokens.

Inside the statistic each is a `Name`, which is its call: `prob(t)` or `prob(t, under: teacher)`.
"""
UNDER = ", under: teacher)"
WeightRule: TypeAlias = Literal["trapezoid", "uniform", "half_first"]
Statistic: TypeAlias = Literal["mean", "std", "min", "max", "sum", "count", "median"]

OWN_OPS = ("python", "limited_python")
"""The `op` of terms that call the user's functions."""
_LIMITS = Python.model_fields
MEMORY = 1024
"""The most earlier responses to a question that are remembered: the last ones."""
TRACK, METRIC, STEP = "track.", "metric.", "step"
"""The starts of the names of tracks and metrics inside expressions, and the name of the number of steps that are done."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Constant(Node):
    """A constant. `unit` is its power of tokens, for people; the value of a reward does not depend on the unit."""

    presentation = frozenset({"unit"})
    op: Literal["number"] = "number"
    value: float
    unit: int = field(default=0, compare=False)

    def __post_init__(self) -> None:
        """Keep the value as a float, so that `1` and `1.0` are equal."""
        object.__setattr__(self, "value", float(self.value))


@dataclass(frozen=True, slots=True, kw_only=True)
class Variable(Node):
    """A `let` of the reward, or the variable of its `dense` line (a budget in tokens)."""

    op: Literal["name"] = "name"
    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Length(Node):
    """Tokens of a response: `y`, or the variable of the aggregate around it."""

    op: Literal["length"] = "length"
    of: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Correct(Node):
    """1 if a response is right, else 0."""

    op: Literal["correct"] = "correct"
    of: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ForcedAnswer(Node):
    """1 if the answer forced after the first `cut` tokens is right, else 0; a shorter response is graded unchanged."""

    op: Literal["forced"] = "forced"
    of: str
    cut: Expression


@dataclass(frozen=True, slots=True, kw_only=True)
class CutAnswer(Node):
    """1 if the first `cut` tokens contain the right answer without forcing, else 0."""

    op: Literal["bare"] = "bare"
    of: str
    cut: Expression


@dataclass(frozen=True, slots=True, kw_only=True)
class Attribute(Node):
    """A number of the response's question, or of the way it was sampled, for example an instructed budget."""

    op: Literal["given"] = "given"
    of: str
    field: str

    @property
    def key(self) -> str:
        """Return the name of the number among the numbers of a response."""
        return self.field


@dataclass(frozen=True, slots=True, kw_only=True)
class TextNumber(Attribute):
    """A finding of a regular expression in a text of a response: whether it matches (`matches`), or a number (`number`).

    `empty` is the value of a `number` if the expression does not match, or its first group is no number from -1e9 to 1e9.
    """

    op: Literal["text"] = "text"  # type: ignore[assignment]
    field: Literal["matches", "number"]
    source: Literal["response", "thinking", "answer"] = "response"
    pattern: str
    empty: float = 0.0

    @property
    def key(self) -> str:
        """Return the call as a spec writes it of a response `y`, which is the name of the number."""
        return self.written("y")

    def written(self, response: str) -> str:
        """Return the call as a spec writes it; `response` is the name of the response."""
        text = response if self.source == "response" else f"{self.source}({response})"
        empty = f", empty: {self.empty!r}".removesuffix(".0") if self.field == "number" else ""
        return f"{self.field}({text}, {json.dumps(self.pattern, ensure_ascii=False)}{empty})"


@dataclass(frozen=True, slots=True, kw_only=True)
class PythonTerm(Node):
    """A number that a user's function computes from a response: `FILE.py:FUNCTION`, or a package's `MODULE:FUNCTION`."""

    op: Literal["python"] = "python"
    function: str
    of: str

    @property
    def key(self) -> str:
        """Return the name of the number among the numbers of a response."""
        return self.function

    @property
    def limits(self) -> dict[str, Any]:
        """Return the limits of the function that the reward sets, by name: `batch`, `seconds` and `memory`."""
        return {}


@dataclass(frozen=True, slots=True, kw_only=True)
class LimitedPythonTerm(PythonTerm):
    """A call of a user's function with limits: responses a call, seconds of processor time a call, and GiB of memory.

    This is a separate class, because rewards of stored results have no limits.
    """

    op: Literal["limited_python"] = "limited_python"  # type: ignore[assignment]
    batch: int = _LIMITS["batch"].default
    seconds: float = _LIMITS["seconds"].default
    memory: float = _LIMITS["memory"].default

    @property
    def limits(self) -> dict[str, Any]:
        """Return the limits of a call: rows a call, seconds of processor time, and GiB of memory."""
        return {"batch": self.batch, "seconds": self.seconds, "memory": self.memory}


@dataclass(frozen=True, slots=True, kw_only=True)
class Weight(Node):
    """The coefficient of the current split: `trapezoid`, `uniform`, or `half_first` (as printed for Q-Spec)."""

    op: Literal["weight"] = "weight"
    rule: WeightRule


@dataclass(frozen=True, slots=True, kw_only=True)
class WeightAt(Node):
    """The coefficient of the split that is the value of `of`, the variable of a statistic over `splits`."""

    op: Literal["weight_at"] = "weight_at"
    rule: WeightRule
    of: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PriorSplit(Node):
    """The end in tokens of the split before the current split; 0 for the first."""

    op: Literal["previous"] = "previous"


@dataclass(frozen=True, slots=True, kw_only=True)
class Negation(Node):
    """A negation: of a number (`neg`) or of a condition (`not`)."""

    op: Literal["unary"] = "unary"
    fn: Literal["neg", "not"]
    value: Expression


@dataclass(frozen=True, slots=True, kw_only=True)
class Infix(Node):
    """Arithmetic, a comparison or a connective; conditions are 1 or 0."""

    op: Literal["binary"] = "binary"
    fn: Literal["+", "-", "*", "/", "^", "==", "!=", "<", "<=", ">", ">=", "and", "or"]
    left: Expression
    right: Expression


@dataclass(frozen=True, slots=True, kw_only=True)
class FunctionCall(Node):
    """A function of numbers. `clip(x, low, high)`; `cos` of radians."""

    op: Literal["call"] = "call"
    fn: Function
    args: tuple[Expression, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class If(Node):
    """`then` if `test` holds, else `other`."""

    op: Literal["if"] = "if"
    test: Expression
    then: Expression
    other: Expression


@dataclass(frozen=True, slots=True, kw_only=True)
class Aggregate(Node):
    """A statistic of `value` over the responses, or the splits, in `over` that meet `where`; `empty` if none does.

    `group` is the question's responses in this step, `ref` the reference model's responses to the question, and `history`
    the last responses to it in earlier steps of the stage: `last`, or else `MEMORY`. With `splits`, `var` is the name of a
    split in tokens. `std` is the population's standard deviation; `count` counts.
    """

    later: ClassVar[frozenset[str]] = frozenset({"last"})
    op: Literal["aggregate"] = "aggregate"  # the tag of the class
    fn: Statistic  # the statistic
    var: str  # name of a response or a split in `value`
    over: Literal["group", "ref", "history", "splits"]  # what it runs over
    last: int | None = None  # the most responses, for `history`
    value: Expression  # its value for each
    where: Expression | None = None  # condition on each
    empty: Expression | None = None  # its value over nothing


@dataclass(frozen=True, slots=True, kw_only=True)
class StepStatistic(Node):
    """A statistic of `value` over responses to many questions, equal for all responses of a step; `empty` if it has none.

    A track reads `steps`, the responses of the last `window` steps, or `monitor`, the latest responses to the monitor set. A
    measure reads `arm`, an arm's responses, or `base`, the baseline's. A reward reads `batch`, all responses of the step.
    Inside, `group` is the responses to the same question as `var`. `quantile` is the smallest value that the share `at` of
    all values does not exceed. `reach` is the number of tokens at which the mean first reaches `at`, when all responses are
    cut to it and their answers are forced.
    """

    op: Literal["history"] = "history"  # the tag of the class
    fn: Statistic | Literal["quantile", "reach"]  # the statistic
    var: str  # name of a response in `value`
    over: Literal["steps", "monitor", "arm", "base", "batch"]  # what it runs over
    window: int = 1  # steps, for `steps`
    value: Expression  # its value for each
    at: Expression | None = None  # share of a quantile, or accuracy that is reached, 0 to 1
    where: Expression | None = None  # condition on each
    empty: Expression | None = None  # its value over nothing


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenRun(Node):
    """A statistic of `value` over tokens, which reads a model's numbers of each token by the names in `TOKENS`.

    The tokens are the first `cut` tokens of a response, or all. With `truth` they are the reference answer's, forced after
    the cut; without a cut, or at a response's end, they replace the response's answer. `empty` is the value over no tokens.
    """

    op: Literal["tokens"] = "tokens"  # the tag of the class
    fn: Statistic  # the statistic
    of: str  # name of the response
    truth: bool = False  # whether the tokens are the reference answer's
    cut: Expression | None = None  # tokens of the response that count
    value: Expression  # its value for each token
    where: Expression | None = None  # condition on each token
    empty: Expression | None = None  # its value over nothing

    @property
    def names(self) -> frozenset[str]:
        """Return the numbers of each token that the statistic reads, as calls: `prob(t)` or `entropy(t)`."""
        expressions = (expression for expression in (self.value, self.where) if expression is not None)
        return frozenset(
            node.name
            for expression in expressions
            for node in walk(expression)
            if isinstance(node, Variable) and "(" in node.name
        )

    @property
    def scorers(self) -> frozenset[str]:
        """Return the models that must compute numbers of tokens by an additional forward pass for the statistic.

        The result has "teacher" for a number that the teacher gives (`under: teacher`). It has "policy" for an entropy
        and for tokens of the reference answer. The policy's probabilities of sampled tokens need no pass, since
        engines report them with the rollouts.
        """
        return frozenset(
            "teacher" if name.endswith(UNDER) else "policy"
            for name in self.names
            if self.truth or name.endswith(UNDER) or name.startswith("entropy")
        )

    @property
    def of_any(self) -> TokenRun:
        """Return this statistic with the variable of its response renamed to `y`.

        Statistics that differ only in this variable thus become equal, and are computed once.
        """

        def rename(node: Node) -> Node | None:
            """Return a node of this response as a node of `y`; None for another node."""
            return replace(node, of="y") if getattr(node, "of", None) == self.of else None  # type: ignore[call-arg]

        return replace(self, of="y", cut=rewrite(self.cut, rename))


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswerRun(TokenRun):
    """A statistic over the tokens of the answer that is found in a response: all tokens with a part of its text.

    This is a separate class, because rewards of stored results have no such statistics.
    """

    op: Literal["answer_tokens"] = "answer_tokens"  # type: ignore[assignment]


Expression: TypeAlias = Annotated[
    Constant
    | Variable
    | Length
    | Correct
    | ForcedAnswer
    | CutAnswer
    | Attribute
    | TextNumber
    | PythonTerm
    | LimitedPythonTerm
    | Weight
    | WeightAt
    | PriorSplit
    | Negation
    | Infix
    | FunctionCall
    | If
    | Aggregate
    | StepStatistic
    | TokenRun
    | AnswerRun,
    Field(discriminator="op"),
]


def rewrite(value: Any, replace_node: Callable[[Node], Node | None]) -> Any:
    """Return an expression with nodes replaced, the outermost first; a replacement is not searched again.

    Args:
        value: The expression, or a tuple of expressions. Any other value is returned unchanged.
        replace_node: The function that returns the replacement of a node, or None to keep the node.
    """
    if isinstance(value, tuple):
        return tuple(rewrite(item, replace_node) for item in value)
    if not isinstance(value, Node):
        return value
    replacement = replace_node(value)
    if replacement is not None:
        return replacement
    return replace(value, **{f.name: rewrite(getattr(value, f.name), replace_node) for f in fields(value)})


@cache
def _expression_fields(kind: type[Node]) -> tuple[str, ...]:
    """Return the names of a class's fields whose values are expressions or tuples of expressions."""
    return tuple(f.name for f in fields(kind) if "Expression" in str(f.type))


def walk(value: Node) -> Iterator[Node]:
    """Yield an expression and all its descendants, parents before children."""
    waiting: list[Any] = [value]
    while waiting:
        value = waiting.pop()
        yield value
        # Append the children in reverse, since the last item is taken first.
        for name in reversed(_expression_fields(type(value))):  # type: ignore[arg-type]
            content = getattr(value, name)
            if type(content) is tuple:
                waiting.extend(reversed(content))
            elif content is not None:
                waiting.append(content)


def list_sampled(value: IR | Node) -> list[Attribute]:
    """Return the attributes that an expression reads of the reference model's responses, such as `thinking(z)`.

    They are read inside statistics over `ref`. The name says "sampled" since the responses are sampled before training.

    Args:
        value: A reward, or another value with expressions.
    """
    statistics = [
        aggregate
        for aggregate in walk_all(value)
        if isinstance(aggregate, Aggregate) and aggregate.over == "ref"
    ]
    inside = [(aggregate.var, node) for aggregate in statistics for node in walk(aggregate)]
    return [node for var, node in inside if isinstance(node, Attribute) and node.of == var]
