"""Compute the rewards of a whole step at once, [questions, rollouts, splits].

Every value is an array whose axes are question, rollout, split, and one more for each aggregate around it;
an axis that a value does not vary along has size 1. Equal to `interpret` on every response: functions are those that
`arithmetic` has, on arrays, and the caller silences their warnings.
"""

from __future__ import annotations

import operator
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import reduce
from typing import Any

import numpy as np
from numpy.typing import NDArray

from reodsl.ir.base import IR, Node, parts_of
from reodsl.ir.expression import (
    TRACK,
    Aggregate,
    Bare,
    Constant,
    Correct,
    Expression,
    ForcedAnswer,
    Function,
    FunctionCall,
    Given,
    History,
    If,
    Infix,
    Length,
    Negation,
    Own,
    Previous,
    TokenRun,
    Variable,
    Weight,
    WeightAt,
    WeightRule,
)
from reodsl.ir.reward import Reward
from reodsl.ir.reward_text import expression_text
from reodsl.numbers.budgets import coefficients
from runners.rewards.arithmetic import ROUNDING, choose, quantile
from runners.rewards.inputs import (
    Bools,
    Earlier,
    Floats,
    Ints,
    RewardInputs,
    given_missing,
    not_finite,
    reference_missing,
    reference_not_cut,
)


def statistic(fn: str, value: Floats, keep: Bools, counted: Ints, axis: int) -> Floats:
    """Return a statistic along an axis, which stays with size 1, over what is kept.

    `counted` says how many those are.

    Over none of them it means nothing: the caller puts something else there.
    """
    if fn == "count":
        return counted.astype(float)
    if fn == "sum":
        return _sum(value, keep, axis)
    if fn == "min":
        return np.where(keep, value, np.inf).min(axis=axis, keepdims=True)
    if fn == "max":
        return np.where(keep, value, -np.inf).max(axis=axis, keepdims=True)
    if fn == "median":
        # NaN marks what does not count, and a NaN that is kept has to show: it is put back afterwards.
        middle = np.nanmedian(np.where(keep, value, np.nan), axis=axis, keepdims=True)
        return np.where((keep & np.isnan(value)).any(axis=axis, keepdims=True), np.nan, middle)
    ends = (statistic(end, value, keep, counted, axis) for end in ("min", "max"))
    mean = FUNCTIONS["clip"](_sum(value, keep, axis) / counted, *ends)
    if fn == "mean":
        return mean
    gaps = np.where(keep, value - mean, 0.0)
    variance = _sum(gaps * gaps, keep, axis) / counted
    return np.where(are_equal(gaps, np.where(keep, value, 0.0), axis), 0.0, np.sqrt(variance))


def are_equal(gaps: Floats, values: Floats, axis: int | None) -> Bools:
    """Return whether values along an axis (None: all) differ by rounding alone. `gaps` are their distances from the mean.

    What does not count is 0 in both. The axis stays with size 1.
    """
    largest = np.abs(values).max(axis=axis, keepdims=True)
    return np.asarray(np.abs(gaps).max(axis=axis, keepdims=True) <= ROUNDING * largest)


def summarise(fn: str, values: Floats, at: float) -> float:
    """Return a statistic over some values, one at least; `at` is the share of a quantile."""
    if fn == "quantile":
        return quantile(values.tolist(), at)
    kept, counted = np.ones(values.shape, dtype=np.bool_), np.array([len(values)])
    return float(statistic(fn, values, kept, counted, 0)[0])


BINARY: dict[str, Callable[[Floats, Floats], Any]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "/": operator.truediv,
    "^": np.power,
    "==": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
    "and": np.logical_and,
    "or": np.logical_or,
}
FUNCTIONS: dict[Function, Callable[..., Floats]] = {
    "sigmoid": lambda x: 1.0 / (1.0 + np.exp(-x)),
    "log": np.log,
    "exp": np.exp,
    "sqrt": np.sqrt,
    "cos": np.cos,
    "abs": np.abs,
    "floor": np.floor,
    "min": lambda *values: reduce(np.minimum, values),
    "max": lambda *values: reduce(np.maximum, values),
    "choose": lambda n, k: np.asarray(np.frompyfunc(choose, 2, 1)(n, k), dtype=float),
    "clip": lambda x, low, high: np.minimum(np.maximum(x, low), high),
}


def _sum(value: Floats, keep: Bools, axis: int) -> Floats:
    """Return the sum along an axis in order, so that it rounds as a loop does."""
    kept = np.where(keep, value, 0.0)
    return np.take(np.add.accumulate(kept, axis=axis), [-1], axis=axis)


Verdicts = Callable[[Ints, Ints], Bools]
"""Verdicts for responses (numbered row by row) and cuts below their length, arrays of one shape."""


@dataclass(frozen=True, slots=True)
class _Response:
    """A response variable: one of the step's own responses or of the reference's, along `axis`."""

    over: str
    axis: int


@dataclass(frozen=True, slots=True)
class _StepScope:
    responses: Mapping[str, _Response]
    numbers: Mapping[str, Floats]
    depth: int = 0
    at: Mapping[str, int] = field(default_factory=dict)
    """The axis of each variable over `splits`."""


def vectorise(reward: Reward, inputs: RewardInputs, forced: Verdicts, bare: Verdicts) -> Floats:
    """Return rewards [questions, rollouts, splits]; an outcome has one split, and parts with their weights are as many.

    They are meaningless where `inputs.present` is false for a split.

    Raises a Problem where a reward is NaN or infinite (E0920, with the values of that response), or a given number,
    a reference or its cuts are missing (E0922, E0505).
    """
    values, lets = evaluate(reward, inputs, forced, bare)
    _require_finite(reward, inputs, values, lets)
    return values


def evaluate(
    reward: Reward, inputs: RewardInputs, forced: Verdicts, bare: Verdicts
) -> tuple[Floats, dict[str, Floats]]:
    """Return rewards as `vectorise` gives them, NaN and infinity included, and the values of the reward's lets."""
    with np.errstate(all="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        return _Evaluator(reward, inputs, forced, bare).rewards()


def vectorise_metrics(
    reward: Reward, inputs: RewardInputs, forced: Verdicts, bare: Verdicts
) -> dict[str, Floats]:
    """Return each of a reward's metrics for each response, [questions, rollouts], NaN where it has no value."""
    if not reward.metrics:
        return {}
    with np.errstate(all="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        return _Evaluator(reward, inputs, forced, bare).metrics()


def aggregate_depth(value: IR | Node) -> int:
    """Return the deepest nesting of aggregates in an expression, or in a reward."""
    inside = max(map(aggregate_depth, parts_of(value)), default=0)
    return inside + isinstance(value, Aggregate)


def _never(at: Ints, cut: Ints) -> Bools:
    raise ValueError("nothing is cut here")


def measure_each(
    value: Expression,
    response: str,
    inputs: RewardInputs,
    numbers: Mapping[str, float],
    forced: Verdicts = _never,
) -> Floats:
    """Return a value for every response, [questions, rollouts], which is called `response`; names are `numbers`."""
    with np.errstate(all="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        evaluator = _Evaluator(Reward(name="", outcome=value), inputs, forced, _never)
        measured = evaluator.value(value, evaluator.scope(response, numbers))
    return np.broadcast_to(measured.reshape(measured.shape[:2]), inputs.length.shape)


def measure_tokens(node: TokenRun, tokens: Mapping[str, Floats], inputs: RewardInputs) -> float:
    """Return a statistic over tokens from their numbers by name, each as long."""
    evaluator = _Evaluator(Reward(name="", outcome=node.value), inputs, _never, _never)
    scope = evaluator.scope("", {f"{TRACK}{name}": value for name, value in inputs.tracks.items()})
    size = len(next(iter(tokens.values())))
    inner = replace(
        scope, numbers={**scope.numbers, **{name: each[:, None, None] for name, each in tokens.items()}}
    )

    def flat(part: Expression) -> Floats:
        return np.broadcast_to(evaluator.value(part, inner), (size, 1, 1)).ravel()

    with np.errstate(all="ignore"):
        value = np.ones(size) if node.fn == "count" else flat(node.value)
        kept = value if node.where is None else value[flat(node.where) != 0]
        if len(kept):
            return float(summarise(node.fn, kept, np.nan))
        nothing = 0.0 if node.fn in ("sum", "count") else np.nan
        return nothing if node.empty is None else float(evaluator.value(node.empty, scope).item())


class _Evaluator:
    def __init__(self, reward: Reward, inputs: RewardInputs, forced: Verdicts, bare: Verdicts) -> None:
        self.reward, self.inputs, self.forced, self.bare = reward, inputs, forced, bare
        self.axes = 3 + aggregate_depth(reward)
        self.earlier = inputs.earlier or Earlier.of([()] * len(inputs.questions))

    def lets(self) -> tuple[_StepScope, dict[str, Floats]]:
        scope = self.scope("y", {f"{TRACK}{name}": value for name, value in self.inputs.tracks.items()})
        lets: dict[str, Floats] = {}
        for let in self.reward.lets:
            lets[let.name] = self.value(let.value, scope)
            scope = replace(scope, numbers={**scope.numbers, let.name: lets[let.name]})
        return scope, lets

    def metrics(self) -> dict[str, Floats]:
        scope, _ = self.lets()
        values = {metric.name: self.value(metric.value, scope) for metric in self.reward.metrics}
        shape = self.inputs.length.shape
        return {
            name: np.broadcast_to(value.reshape(value.shape[:2]), shape) for name, value in values.items()
        }

    def rewards(self) -> tuple[Floats, dict[str, Floats]]:
        scope, lets = self.lets()
        if self.reward.dense is not None:
            places = self.inputs.places.reshape(*self.inputs.places.shape, *([1] * (self.axes - 3)))
            scope = replace(scope, numbers={**scope.numbers, self.reward.dense.var: places})
            values, splits = self.value(self.reward.dense.value, scope), self.inputs.places.shape[2]
            flat = values.reshape(values.shape[:3])
            return np.broadcast_to(flat, (*self.inputs.length.shape, splits)), lets
        each = [self.value(value, scope) for value in self.reward.values]
        shape = (*self.inputs.length.shape, 1)
        parts = [np.broadcast_to(value.reshape(value.shape[:3]), shape) for value in each]
        return np.concatenate(parts, axis=2), lets

    def scope(self, response: str, numbers: Mapping[str, float]) -> _StepScope:
        """Return the name of one response of each rollout, and those of numbers that all share."""
        arrays = {name: np.full((1,) * self.axes, value) for name, value in numbers.items()}
        return _StepScope({response: _Response("group", 1)}, arrays)

    def value(self, node: Expression, scope: _StepScope) -> Floats:
        match node:
            case Constant():
                return np.full((1,) * self.axes, node.value)
            case Variable():
                return scope.numbers[node.name]
            case Length():
                return self.measured(node.of, scope, "length")
            case Correct():
                return self.measured(node.of, scope, "correct")
            case ForcedAnswer():
                return self.at_cut(node.of, node.cut, scope, self.forced)
            case Bare():
                return self.at_cut(node.of, node.cut, scope, self.bare)
            case Given():
                return self.given(node.of, node.field, scope)
            case Own():
                return self.given(node.of, node.function, scope)
            case Weight():
                return self.splits(self.weights(node.rule), 2)
            case WeightAt():
                return self.splits(self.weights(node.rule), scope.at[node.of])
            case Previous():
                return self.previous()
            case Negation():
                value = self.value(node.value, scope)
                return -value if node.fn == "neg" else (value == 0).astype(float)
            case Infix():
                left, right = self.value(node.left, scope), self.value(node.right, scope)
                return BINARY[node.fn](left, right).astype(float, copy=False)
            case FunctionCall():
                return FUNCTIONS[node.fn](*(self.value(arg, scope) for arg in node.args))
            case If():
                test = self.value(node.test, scope)
                return np.where(test != 0, self.value(node.then, scope), self.value(node.other, scope))
            case Aggregate():
                return self.aggregate(node, scope)
            case TokenRun():
                return self.of_tokens(node, scope)
            case History(over="batch"):
                return self.over_batch(node, scope)
            case History():
                raise ValueError("what happened before is measured before a reward is")

    def over_batch(self, node: History, scope: _StepScope) -> Floats:
        """Return a statistic over all responses of the step, the same for each."""
        inner = replace(scope, responses={node.var: _Response("group", 1)}, depth=0)
        where = np.ones((1,) * self.axes) if node.where is None else self.value(node.where, inner)
        value = np.ones((1,) * self.axes) if node.fn == "count" else self.value(node.value, inner)
        shape = self.inputs.length.shape
        kept, values = (
            np.broadcast_to(each.reshape(each.shape[:2]), shape).ravel() for each in (where != 0, value)
        )
        if kept.any():
            at = self.value(node.at, scope).item() if node.at is not None else np.nan
            return np.full((1,) * self.axes, summarise(node.fn, values[kept], at))
        if node.empty is not None:
            return self.value(node.empty, scope)
        return np.full((1,) * self.axes, 0.0 if node.fn in ("sum", "count") else np.nan)

    def along(self, table: NDArray[Any], axis: int) -> NDArray[Any]:
        """Return [questions, responses] with the responses along `axis`."""
        shape = [1] * self.axes
        shape[0], shape[axis] = table.shape
        return table.reshape(shape)

    def measured(self, name: str, scope: _StepScope, what: str) -> Floats:
        response = scope.responses[name]
        if response.over == "group":
            return self.along(self.inputs.length if what == "length" else self.inputs.correct, response.axis)
        if response.over == "history":
            return self.along(getattr(self.earlier, what), response.axis)
        table = self.inputs.reference_length if what == "length" else self.inputs.reference_correct
        if table is None or table.shape[1] == 0:
            raise reference_missing(self.reward.name)
        return self.along(table, response.axis)

    def given(self, name: str, field: str, scope: _StepScope) -> Floats:
        response = scope.responses[name]
        mine, theirs = self.inputs.given, self.inputs.reference_given
        tables = {"group": mine, "ref": theirs}.get(response.over, {})
        if field not in tables:
            raise given_missing(f"the reward `{self.reward.name}`", field, sorted(tables))
        return self.along(tables[field], response.axis)

    def weights(self, rule: WeightRule) -> Floats:
        """Return the coefficient of each split, [questions, rollouts, splits]; 0 for those that a response does not have."""
        places, present = self.inputs.places, self.inputs.present
        out = np.zeros(np.broadcast_shapes(places.shape, present.shape))
        places, present = np.broadcast_to(places, out.shape), np.broadcast_to(present, out.shape)
        for at in np.ndindex(*out.shape[:2]):
            budgets = [int(p) for p in places[at][present[at]]]
            out[at][: len(budgets)] = coefficients(rule, budgets[:-1], budgets[-1])
        return out

    def previous(self) -> Floats:
        places = self.inputs.places
        before = np.concatenate((np.zeros_like(places[:, :, :1]), places[:, :, :-1]), axis=2)
        return before.reshape(*before.shape, *([1] * (self.axes - 3)))

    def splits(self, table: NDArray[Any], axis: int) -> NDArray[Any]:
        """Return [questions, rollouts, splits] with the splits along `axis`."""
        shape = [1] * self.axes
        shape[0], shape[1], shape[axis] = table.shape
        return table.reshape(shape)

    def at_cut(self, name: str, cut: Expression, scope: _StepScope, verdicts: Verdicts) -> Floats:
        response = scope.responses[name]
        if response.over != "group":
            raise reference_not_cut(self.reward.name)
        whole = np.maximum(np.floor(self.value(cut, scope)), 0)
        length, correct = self.measured(name, scope, "length"), self.measured(name, scope, "correct")
        number = self.along(
            np.arange(self.inputs.length.size, dtype=float).reshape(self.inputs.length.shape), response.axis
        )
        whole, length, number, out = (
            np.array(a) for a in np.broadcast_arrays(whole, length, number, correct)
        )
        inside = whole < length
        out[inside] = verdicts(number[inside].astype(np.int64), whole[inside].astype(np.int64))
        out[np.isnan(whole)] = np.nan
        return out

    def of_tokens(self, node: TokenRun, scope: _StepScope) -> Floats:
        """Return what was found of the tokens of responses, up to a cut or their ends."""
        response, key = scope.responses[node.of], node.of_any
        if response.over != "group" or key not in self.inputs.tokens:
            raise given_missing(
                f"the reward `{self.reward.name}`", expression_text(key), sorted(self.inputs.given)
            )
        length = self.measured(node.of, scope, "length")
        cut = length if node.cut is None else np.maximum(np.floor(self.value(node.cut, scope)), 0)
        every = np.arange(self.inputs.length.size, dtype=float).reshape(self.inputs.length.shape)
        cut, number = np.broadcast_arrays(np.fmin(cut, length), self.along(every, response.axis))
        found = self.inputs.tokens[key](number.astype(np.int64), cut.astype(np.int64)).astype(float)
        return found if node.cut is None else np.where(np.isnan(self.value(node.cut, scope)), np.nan, found)

    def aggregate(self, node: Aggregate, scope: _StepScope) -> Floats:
        axis = 3 + scope.depth
        if node.over == "splits":
            members, there = self.splits(self.inputs.places, axis), self.splits(self.inputs.present, axis)
            inner = replace(
                scope,
                numbers={**scope.numbers, node.var: members},
                depth=scope.depth + 1,
                at={**scope.at, node.var: axis},
            )
        else:
            responses = {**scope.responses, node.var: _Response(node.over, axis)}
            inner = replace(scope, responses=responses, depth=scope.depth + 1)
            members, there = self.measured(node.var, inner, "length"), np.full((1,) * self.axes, True)
            if node.over == "history":
                there = self.along(self.earlier.present, axis)
        value = np.ones_like(members) if node.fn == "count" else self.value(node.value, inner)
        keep = there if node.where is None else there & (self.value(node.where, inner) != 0)
        value, keep, _ = np.broadcast_arrays(value, keep, members)
        counted = keep.sum(axis=axis, keepdims=True)
        result = statistic(node.fn, value, keep, counted, axis)
        if node.empty is not None:
            nothing = self.value(node.empty, scope)
        else:
            nothing = np.full((1,) * self.axes, 0.0 if node.fn in ("sum", "count") else np.nan)
        return np.where(counted > 0, result, nothing)


def _require_finite(reward: Reward, inputs: RewardInputs, values: Floats, lets: Mapping[str, Floats]) -> None:
    """Raise E0920 for the first reward that is NaN or infinite, with the response's length, verdict and lets."""
    present = np.broadcast_to(inputs.present, values.shape) if reward.dense is not None else np.True_
    bad = np.argwhere(~np.isfinite(values) & present)
    if len(bad) == 0:
        return
    question, rollout, split = (int(i) for i in bad[0])
    seen = {
        "len(y)": float(inputs.length[question, rollout]),
        "correct(y)": float(inputs.correct[question, rollout]),
    }
    seen.update(inputs.tracks)
    for name, value in lets.items():
        values_of_let = np.broadcast_to(
            value.reshape(value.shape[:3]), (*inputs.length.shape, value.shape[2])
        )
        seen[name] = float(values_of_let[question, rollout, 0])
    if reward.dense is not None:
        seen[reward.dense.var] = float(np.broadcast_to(inputs.places, values.shape)[question, rollout, split])
    at = split if reward.dense is not None else None
    raise not_finite(
        reward.name, inputs.questions[question], rollout, at, float(values[question, rollout, split]), seen
    )


@dataclass(frozen=True, slots=True)
class Cuts:
    """Cuts by response, numbered row by row: those below its length at which it is forced, and graded bare, rising.

    `tokens` are those of each statistic over tokens, a response's end included.
    """

    forced: tuple[tuple[int, ...], ...]
    bare: tuple[tuple[int, ...], ...]
    tokens: Mapping[TokenRun, tuple[tuple[int, ...], ...]] = field(default_factory=dict)

    @property
    def any(self) -> bool:
        """Return whether anything has to be cut at all."""
        return any(self.forced) or any(self.bare)


class _Recorder:
    """Stands in for verdicts: remembers what was asked, answers no."""

    def __init__(self, responses: int) -> None:
        self.asked: list[set[int]] = [set() for _ in range(responses)]

    def __call__(self, response: Ints, cut: Ints) -> Bools:
        for pair in np.unique(np.stack((response.ravel(), cut.ravel()), axis=1), axis=0).tolist():
            self.asked[pair[0]].add(pair[1])
        return np.zeros(response.shape, dtype=np.bool_)

    def cuts(self) -> tuple[tuple[int, ...], ...]:
        return tuple(tuple(sorted(of_one)) for of_one in self.asked)


def needed_cuts(reward: Reward, inputs: RewardInputs) -> Cuts:
    """Return the cuts that `vectorise` and `interpret` may ask for, whichever way their conditions go.

    They are what `Reward.forced` says of the reward alone, for these responses.

    A cut at or past a response's end is not a cut: the response is graded as it is. Raises E0922 and E0505 as `vectorise`
    does.
    """
    forced, bare = _Recorder(inputs.length.size), _Recorder(inputs.length.size)
    tokens = {node: _Recorder(inputs.length.size) for node in reward.tokens}
    inputs = replace(inputs, tokens=tokens)
    evaluate(reward, inputs, forced, bare)
    vectorise_metrics(reward, inputs, forced, bare)
    return Cuts(forced.cuts(), bare.cuts(), {node: each.cuts() for node, each in tokens.items()})
