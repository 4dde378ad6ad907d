"""Compute the rewards of all responses of a step at once, [questions, rollouts, splits].

The value of an expression is an array. Its axes are question, rollout, split, and one for each aggregate around the
expression, and an axis has size 1 if the value does not depend on it. The results equal those of `interpret`. Functions
are those of `arithmetic` on arrays, and callers silence the warnings of numpy.
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
    MEMORY,
    TRACK,
    Aggregate,
    Attribute,
    Constant,
    Correct,
    CutAnswer,
    Expression,
    ForcedAnswer,
    Function,
    FunctionCall,
    If,
    Infix,
    Length,
    Negation,
    PriorSplit,
    PythonTerm,
    StepStatistic,
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
    Floats,
    Ints,
    PastResponses,
    RewardInputs,
    given_missing,
    not_finite,
    reference_missing,
    reference_not_cut,
)


def statistic(fn: str, value: Floats, keep: Bools, counts: Ints, axis: int) -> Floats:
    """Return a statistic of the selected numbers along an axis; the axis keeps size 1.

    Where no number is selected, `count` and `sum` are 0, and the value of another statistic has no meaning.

    Args:
        fn: The statistic: `count`, `sum`, `min`, `max`, `median`, `mean` or `std` (population).
        value: The numbers.
        keep: Whether a number is selected, of the shape of `value`.
        counts: The number of selected numbers along the axis, with size 1 along the axis.
        axis: The axis.
    """
    if fn == "count":
        return counts.astype(float)
    if fn == "sum":
        return _sum(value, keep, axis)
    if fn == "min":
        return np.where(keep, value, np.inf).min(axis=axis, keepdims=True)
    if fn == "max":
        return np.where(keep, value, -np.inf).max(axis=axis, keepdims=True)
    if fn == "median":
        # NaN marks values that do not count. A NaN that counts makes the result NaN afterwards.
        middle = np.nanmedian(np.where(keep, value, np.nan), axis=axis, keepdims=True)
        return np.where((keep & np.isnan(value)).any(axis=axis, keepdims=True), np.nan, middle)
    ends = (statistic(end, value, keep, counts, axis) for end in ("min", "max"))
    mean = FUNCTIONS["clip"](_sum(value, keep, axis) / counts, *ends)
    if fn == "mean":
        return mean
    gaps = np.where(keep, value - mean, 0.0)
    variance = _sum(gaps * gaps, keep, axis) / counts
    return np.where(are_equal(gaps, np.where(keep, value, 0.0), axis), 0.0, np.sqrt(variance))


def are_equal(gaps: Floats, values: Floats, axis: int | None) -> Bools:
    """Return whether the values along an axis are equal except for rounding; the axis keeps size 1.

    They are if each distance from the mean is at most `ROUNDING` times the largest absolute value.

    Args:
        gaps: Signed distances of the values from their mean; 0 for values that are not selected.
        values: The values; 0 for values that are not selected.
        axis: The axis; None to compare all values of the array.
    """
    largest = np.abs(values).max(axis=axis, keepdims=True)
    return np.asarray(np.abs(gaps).max(axis=axis, keepdims=True) <= ROUNDING * largest)


def summarise(fn: str, values: Floats, share: float) -> float:
    """Return a statistic over at least one value.

    Args:
        fn: The statistic, as in `statistic`, or `quantile`.
        values: The numbers, [values].
        share: The share of a quantile, 0 to 1; ignored for other statistics.
    """
    if fn == "quantile":
        return quantile(values.tolist(), share)
    keep, counts = np.ones(values.shape, dtype=np.bool_), np.array([len(values)])
    return float(statistic(fn, values, keep, counts, 0)[0])


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
    """Return the sum of the selected numbers along an axis; the axis keeps size 1.

    The numbers are added one after another. The sum therefore rounds exactly as the loop in `interpret` does.

    Args:
        value: The numbers.
        keep: Whether a number is selected, of the shape of `value`.
        axis: The axis.
    """
    terms = np.where(keep, value, 0.0)
    return np.take(np.add.accumulate(terms, axis=axis), [-1], axis=axis)


Verdicts = Callable[[Ints, Ints], Bools]
"""A function from arrays of response indices, numbered question by question, and of cuts below the responses' lengths to
verdicts, all of the same shape."""


@dataclass(frozen=True, slots=True)
class _Response:
    """A response variable along `axis`; `over` is `group`, `ref` (samples of the reference model) or `history`."""

    over: str
    axis: int


@dataclass(frozen=True, slots=True)
class _StepScope:
    """The values of names in an expression, for all responses of a step.

    `depth` is the number of aggregates around the expression.
    """

    responses: Mapping[str, _Response]
    numbers: Mapping[str, Floats]
    depth: int = 0
    split_axes: Mapping[str, int] = field(default_factory=dict)
    """The axis of each variable over `splits`."""


def vectorise(reward: Reward, inputs: RewardInputs, forced: Verdicts, bare: Verdicts) -> Floats:
    """Return the rewards of all responses of a step.

    A dense reward has a value at each split, a position at which a response is divided. An outcome has one value. A
    reward with parts has the value of each part, followed by each weight that is not constant.

    Args:
        reward: The reward.
        inputs: The arrays of the step's responses.
        forced: Returns verdicts on forced answers.
        bare: Returns verdicts on the answers of prefixes, without forcing.

    Returns:
        Rewards, [questions, rollouts, values]. A dense reward's value has no meaning if `inputs.present` is false.

    Raises:
        Problem: E0920, if a reward is NaN or infinite; E0922, if the data lack a number; E0505, if reference samples
            are missing or cut.
    """
    values, lets = evaluate(reward, inputs, forced, bare)
    _require_finite(reward, inputs, values, lets)
    return values


def evaluate(
    reward: Reward, inputs: RewardInputs, forced: Verdicts, bare: Verdicts
) -> tuple[Floats, dict[str, Floats]]:
    """Return rewards as `vectorise` does, but without the check that they are finite.

    Args:
        reward: The reward.
        inputs: The arrays of the step's responses.
        forced: Returns verdicts on forced answers.
        bare: Returns verdicts on the answers of prefixes, without forcing.

    Returns:
        Rewards, [questions, rollouts, values], and the values of `let` definitions by name, with all axes of the module.
    """
    with np.errstate(all="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        return _Evaluator(reward, inputs, forced, bare).rewards()


def vectorise_metrics(
    reward: Reward, inputs: RewardInputs, forced: Verdicts, bare: Verdicts
) -> dict[str, Floats]:
    """Return a reward's metrics by name, each [questions, rollouts], NaN for responses without a value.

    Args:
        reward: The reward.
        inputs: The arrays of the step's responses.
        forced: Returns verdicts on forced answers.
        bare: Returns verdicts on the answers of prefixes, without forcing.
    """
    if not reward.metrics:
        return {}
    with np.errstate(all="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        return _Evaluator(reward, inputs, forced, bare).metrics()


def aggregate_depth(value: IR | Node) -> int:
    """Return how deeply aggregates are nested in an expression or in a reward; 0 without aggregates."""
    inside = max(map(aggregate_depth, parts_of(value)), default=0)
    return inside + isinstance(value, Aggregate)


def _never(responses: Ints, cut: Ints) -> Bools:
    """Raise ValueError: a stand-in for a function of verdicts, for expressions that must not cut responses."""
    raise ValueError("this expression cannot cut responses")


def measure_each(
    value: Expression,
    response: str,
    inputs: RewardInputs,
    numbers: Mapping[str, float],
    forced: Verdicts = _never,
) -> Floats:
    """Return the value of an expression for every response.

    Args:
        value: The expression.
        response: The name of the response in the expression.
        inputs: The arrays of the responses.
        numbers: The numbers that the expression names, by name.
        forced: Returns verdicts on forced answers.

    Returns:
        Values, [questions, rollouts].
    """
    with np.errstate(all="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        evaluator = _Evaluator(Reward(name="", outcome=value), inputs, forced, _never)
        measured = evaluator.value(value, evaluator.scope(response, numbers))
    return np.broadcast_to(measured.reshape(measured.shape[:2]), inputs.length.shape)


def measure_tokens(node: TokenRun, tokens: Mapping[str, Floats], inputs: RewardInputs) -> float:
    """Return a statistic over the tokens of a single response that meet the statistic's condition.

    If no token meets the condition, the result is the value of `empty` if given, else 0 for a sum or count, and NaN for
    another statistic.

    Args:
        node: The statistic.
        tokens: The values of the tokens by name, each [tokens].
        inputs: The arrays of the step, from which only the values of tracks are read.
    """
    evaluator = _Evaluator(Reward(name="", outcome=node.value), inputs, _never, _never)
    scope = evaluator.scope("", {f"{TRACK}{name}": value for name, value in inputs.tracks.items()})
    size = len(next(iter(tokens.values())))
    inner = replace(
        scope, numbers={**scope.numbers, **{name: numbers[:, None, None] for name, numbers in tokens.items()}}
    )

    def flat(expression: Expression) -> Floats:
        """Return the value of an expression for each token, [tokens]."""
        return np.broadcast_to(evaluator.value(expression, inner), (size, 1, 1)).ravel()

    with np.errstate(all="ignore"):
        value = np.ones(size) if node.fn == "count" else flat(node.value)
        selected = value if node.where is None else value[flat(node.where) != 0]
        if len(selected):
            return float(summarise(node.fn, selected, np.nan))
        nothing = 0.0 if node.fn in ("sum", "count") else np.nan
        return nothing if node.empty is None else float(evaluator.value(node.empty, scope).item())


class _Evaluator:
    """The evaluation of a reward's expressions for all responses of a step."""

    def __init__(self, reward: Reward, inputs: RewardInputs, forced: Verdicts, bare: Verdicts) -> None:
        """Set the reward and its inputs; the arguments are those of `vectorise`.

        Values have three axes and one for each level of nested aggregates.
        """
        self.reward, self.inputs, self.forced, self.bare = reward, inputs, forced, bare
        self.axes = 3 + aggregate_depth(reward)
        self.earlier = inputs.earlier or PastResponses.of([()] * len(inputs.questions))

    def lets(self) -> tuple[_StepScope, dict[str, Floats]]:
        """Evaluate the reward's `let` definitions in order.

        Returns:
            The scope of expressions that may name the definitions, and the values of the definitions by name.
        """
        scope = self.scope("y", {f"{TRACK}{name}": value for name, value in self.inputs.tracks.items()})
        lets: dict[str, Floats] = {}
        for let in self.reward.lets:
            lets[let.name] = self.value(let.value, scope)
            scope = replace(scope, numbers={**scope.numbers, let.name: lets[let.name]})
        return scope, lets

    def metrics(self) -> dict[str, Floats]:
        """Return the reward's metrics by name, each [questions, rollouts]."""
        scope, _ = self.lets()
        values = {metric.name: self.value(metric.value, scope) for metric in self.reward.metrics}
        shape = self.inputs.length.shape
        return {
            name: np.broadcast_to(value.reshape(value.shape[:2]), shape) for name, value in values.items()
        }

    def rewards(self) -> tuple[Floats, dict[str, Floats]]:
        """Return the rewards, and the values of `let` definitions by name.

        Returns:
            Rewards, [questions, rollouts, values], as `vectorise` describes; and the definitions' values with all axes.
        """
        scope, lets = self.lets()
        if self.reward.dense is not None:
            ends = self.inputs.split_tokens
            ends = ends.reshape(*ends.shape, *([1] * (self.axes - 3)))
            scope = replace(scope, numbers={**scope.numbers, self.reward.dense.var: ends})
            values, splits = self.value(self.reward.dense.value, scope), ends.shape[2]
            flat = values.reshape(values.shape[:3])
            return np.broadcast_to(flat, (*self.inputs.length.shape, splits)), lets
        terms = [self.value(value, scope) for value in self.reward.values]
        shape = (*self.inputs.length.shape, 1)
        parts = [np.broadcast_to(value.reshape(value.shape[:3]), shape) for value in terms]
        return np.concatenate(parts, axis=2), lets

    def scope(self, response: str, numbers: Mapping[str, float]) -> _StepScope:
        """Return a scope with the rollouts under the name `response`, and with numbers that all responses share.

        Args:
            response: The name of a rollout in the expression.
            numbers: The values of names, by name.
        """
        arrays = {name: np.full((1,) * self.axes, value) for name, value in numbers.items()}
        return _StepScope({response: _Response("group", 1)}, arrays)

    def value(self, node: Expression, scope: _StepScope) -> Floats:
        """Return the value of an expression for all responses, with the axes that the module describes.

        Args:
            node: The expression.
            scope: The values of names in the expression.

        Raises:
            Problem: E0922, if a feature is missing; E0505, if reference samples are missing or cut.
            ValueError: The expression has a statistic over earlier steps, which callers replace by its value.
        """
        match node:
            case Constant():
                return np.full((1,) * self.axes, node.value)
            case Variable():
                return scope.numbers[node.name]
            case Length():
                return self.column(node.of, scope, "length")
            case Correct():
                return self.column(node.of, scope, "correct")
            case ForcedAnswer():
                return self.at_cut(node.of, node.cut, scope, self.forced)
            case CutAnswer():
                return self.at_cut(node.of, node.cut, scope, self.bare)
            case Attribute() | PythonTerm():
                return self.feature(node.of, node.key, scope)
            case Weight():
                return self.splits(self.weights(node.rule), 2)
            case WeightAt():
                return self.splits(self.weights(node.rule), scope.split_axes[node.of])
            case PriorSplit():
                return self.previous_split()
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
                return self.token_statistic(node, scope)
            case StepStatistic(over="batch"):
                return self.over_batch(node, scope)
            case StepStatistic():
                raise ValueError("statistics over earlier steps must be replaced by their values first")

    def over_batch(self, node: StepStatistic, scope: _StepScope) -> Floats:
        """Return a statistic over the step's responses that meet its condition, the same value for each response.

        If no response meets the condition, return the value of `empty` if given, else 0 for a sum or count, and NaN for
        another statistic.
        """
        inner = replace(scope, responses={node.var: _Response("group", 1)}, depth=0)
        where = np.ones((1,) * self.axes) if node.where is None else self.value(node.where, inner)
        value = np.ones((1,) * self.axes) if node.fn == "count" else self.value(node.value, inner)
        shape = self.inputs.length.shape
        selected, values = (
            np.broadcast_to(array.reshape(array.shape[:2]), shape).ravel() for array in (where != 0, value)
        )
        if selected.any():
            share = self.value(node.at, scope).item() if node.at is not None else np.nan
            return np.full((1,) * self.axes, summarise(node.fn, values[selected], share))
        if node.empty is not None:
            return self.value(node.empty, scope)
        return np.full((1,) * self.axes, 0.0 if node.fn in ("sum", "count") else np.nan)

    def along(self, table: NDArray[Any], axis: int) -> NDArray[Any]:
        """Reshape an array [questions, responses] to `axes` axes, with its responses along `axis`.

        Axes other than question and `axis` have size 1.
        """
        shape = [1] * self.axes
        shape[0], shape[axis] = table.shape
        return table.reshape(shape)

    def column(self, name: str, scope: _StepScope, field: str) -> Floats:
        """Return `length` or `correct` of the responses of this name, along the axis of the name.

        Args:
            name: The name of the responses: rollouts, reference samples, or earlier responses.
            scope: The values of names.
            field: `length` or `correct`.

        Raises:
            Problem: E0505, if the name means reference samples and there are none.
        """
        response = scope.responses[name]
        if response.over == "group":
            return self.along(getattr(self.inputs, field), response.axis)
        if response.over == "history":
            return self.along(getattr(self.earlier, field), response.axis)
        table = self.inputs.reference_length if field == "length" else self.inputs.reference_correct
        if table is None or table.shape[1] == 0:
            raise reference_missing(self.reward.name)
        return self.along(table, response.axis)

    def feature(self, name: str, field: str, scope: _StepScope) -> Floats:
        """Return a feature of the responses of this name, along the axis of the name.

        Earlier responses have no features.

        Args:
            name: The name of the responses: rollouts, reference samples, or earlier responses.
            scope: The values of names.
            field: The feature.

        Raises:
            Problem: E0922, if the responses lack the feature.
        """
        response = scope.responses[name]
        features, reference_features = self.inputs.features, self.inputs.reference_features
        tables = {"group": features, "ref": reference_features}.get(response.over, {})
        if field not in tables:
            raise given_missing(f"the reward `{self.reward.name}`", field, sorted(tables))
        return self.along(tables[field], response.axis)

    def weights(self, rule: WeightRule) -> Floats:
        """Return the weight c_j of each split, [questions, rollouts, splits]; 0 for absent splits.

        Args:
            rule: How the weights are computed from a response's splits, in tokens.
        """
        ends, present = self.inputs.split_tokens, self.inputs.present
        out = np.zeros(np.broadcast_shapes(ends.shape, present.shape))
        ends, present = np.broadcast_to(ends, out.shape), np.broadcast_to(present, out.shape)
        for index in np.ndindex(*out.shape[:2]):
            budgets = [int(p) for p in ends[index][present[index]]]
            out[index][: len(budgets)] = coefficients(rule, budgets[:-1], budgets[-1])
        return out

    def previous_split(self) -> Floats:
        """Return the previous split's position, in tokens, for each split; 0 for the first split."""
        ends = self.inputs.split_tokens
        previous = np.concatenate((np.zeros_like(ends[:, :, :1]), ends[:, :, :-1]), axis=2)
        return previous.reshape(*previous.shape, *([1] * (self.axes - 3)))

    def splits(self, table: NDArray[Any], axis: int) -> NDArray[Any]:
        """Reshape an array [questions, rollouts, splits] to `axes` axes, with its splits along `axis`.

        Axes other than question, rollout and `axis` have size 1.
        """
        shape = [1] * self.axes
        shape[0], shape[1], shape[axis] = table.shape
        return table.reshape(shape)

    def at_cut(self, name: str, cut: Expression, scope: _StepScope, verdicts: Verdicts) -> Floats:
        """Return verdicts on responses of this name after a cut.

        A cut is rounded down and at least 0. At a cut at or beyond a response's end, the verdict is that on the full
        response. At a NaN cut the result is NaN.

        Args:
            name: The name of the responses, which must be rollouts.
            cut: The cut in tokens.
            scope: The values of names.
            verdicts: Returns verdicts at cuts below the responses' lengths.

        Raises:
            Problem: E0505, if the responses are not rollouts, because only rollouts are graded at cuts.
        """
        response = scope.responses[name]
        if response.over != "group":
            raise reference_not_cut(self.reward.name)
        cuts = np.maximum(np.floor(self.value(cut, scope)), 0)
        length, correct = self.column(name, scope, "length"), self.column(name, scope, "correct")
        index = self.along(
            np.arange(self.inputs.length.size, dtype=float).reshape(self.inputs.length.shape), response.axis
        )
        cuts, length, index, out = (np.array(a) for a in np.broadcast_arrays(cuts, length, index, correct))
        inside = cuts < length
        out[inside] = verdicts(index[inside].astype(np.int64), cuts[inside].astype(np.int64))
        out[np.isnan(cuts)] = np.nan
        return out

    def token_statistic(self, node: TokenRun, scope: _StepScope) -> Floats:
        """Return the statistic of each response's tokens, up to the node's cut or the response's end; NaN for a NaN cut.

        Raises:
            Problem: E0922, if the responses are not rollouts, or the statistic was not computed.
        """
        response, key = scope.responses[node.of], node.of_any
        if response.over != "group" or key not in self.inputs.tokens:
            raise given_missing(
                f"the reward `{self.reward.name}`", expression_text(key), sorted(self.inputs.features)
            )
        length = self.column(node.of, scope, "length")
        cut = length if node.cut is None else np.maximum(np.floor(self.value(node.cut, scope)), 0)
        numbers = np.arange(self.inputs.length.size, dtype=float).reshape(self.inputs.length.shape)
        cut, indices = np.broadcast_arrays(np.fmin(cut, length), self.along(numbers, response.axis))
        values = self.inputs.tokens[key](indices.astype(np.int64), cut.astype(np.int64)).astype(float)
        return values if node.cut is None else np.where(np.isnan(self.value(node.cut, scope)), np.nan, values)

    def aggregate(self, node: Aggregate, scope: _StepScope) -> Floats:
        """Return a statistic over the responses or splits that meet its condition, computed along a new axis.

        Where no response or split meets the condition, the result is the value of `empty` if given, else 0 for a sum or
        count, and NaN for another statistic.
        """
        axis = 3 + scope.depth
        if node.over == "splits":
            members = self.splits(self.inputs.split_tokens, axis)
            present = self.splits(self.inputs.present, axis)
            inner = replace(
                scope,
                numbers={**scope.numbers, node.var: members},
                depth=scope.depth + 1,
                split_axes={**scope.split_axes, node.var: axis},
            )
        else:
            responses = {**scope.responses, node.var: _Response(node.over, axis)}
            inner = replace(scope, responses=responses, depth=scope.depth + 1)
            members, present = self.column(node.var, inner, "length"), np.full((1,) * self.axes, True)
            if node.over == "history":
                past = self.earlier.present
                later = np.cumsum(past[:, ::-1], axis=1)[:, ::-1]  # responses from each one on
                present = self.along(past & (later <= (node.last or MEMORY)), axis)
        value = np.ones_like(members) if node.fn == "count" else self.value(node.value, inner)
        keep = present if node.where is None else present & (self.value(node.where, inner) != 0)
        value, keep, _ = np.broadcast_arrays(value, keep, members)
        counts = keep.sum(axis=axis, keepdims=True)
        result = statistic(node.fn, value, keep, counts, axis)
        if node.empty is not None:
            nothing = self.value(node.empty, scope)
        else:
            nothing = np.full((1,) * self.axes, 0.0 if node.fn in ("sum", "count") else np.nan)
        return np.where(counts > 0, result, nothing)


def _require_finite(reward: Reward, inputs: RewardInputs, values: Floats, lets: Mapping[str, Floats]) -> None:
    """Raise E0920 for the first reward that is NaN or infinite, with the numbers of its response for the message.

    A dense reward is checked only at splits that the response has.

    Args:
        reward: The reward.
        inputs: The arrays of the step.
        values: The rewards, [questions, rollouts, values].
        lets: The values of `let` definitions by name.
    """
    present = np.broadcast_to(inputs.present, values.shape) if reward.dense is not None else np.True_
    bad = np.argwhere(~np.isfinite(values) & present)
    if len(bad) == 0:
        return
    question, rollout, split = (int(i) for i in bad[0])
    numbers = {
        "len(y)": float(inputs.length[question, rollout]),
        "correct(y)": float(inputs.correct[question, rollout]),
    }
    numbers.update(inputs.tracks)
    for name, value in lets.items():
        values_of_let = np.broadcast_to(
            value.reshape(value.shape[:3]), (*inputs.length.shape, value.shape[2])
        )
        numbers[name] = float(values_of_let[question, rollout, 0])
    if reward.dense is not None:
        ends = np.broadcast_to(inputs.split_tokens, values.shape)
        numbers[reward.dense.var] = float(ends[question, rollout, split])
    index = split if reward.dense is not None else None
    raise not_finite(
        reward.name,
        inputs.questions[question],
        rollout,
        index,
        float(values[question, rollout, split]),
        numbers,
    )


@dataclass(frozen=True, slots=True)
class Cuts:
    """The cuts in tokens at which a reward needs verdicts, by response; responses are numbered question by question.

    `forced` are cuts at which an answer is forced. `bare` are cuts at which the prefix itself is graded, without
    forcing. All are below the response's length. `tokens` are the cuts of each statistic over tokens, which may be the
    response's end.
    """

    forced: tuple[tuple[int, ...], ...]
    bare: tuple[tuple[int, ...], ...]
    tokens: Mapping[TokenRun, tuple[tuple[int, ...], ...]] = field(default_factory=dict)

    @property
    def any(self) -> bool:
        """Return whether any response needs a verdict at a cut."""
        return any(self.forced) or any(self.bare)


class _Recorder:
    """A stand-in for a function of verdicts: it records the requested cuts, and returns false verdicts."""

    def __init__(self, responses: int) -> None:
        self.queries: list[set[int]] = [set() for _ in range(responses)]

    def __call__(self, response: Ints, cut: Ints) -> Bools:
        """Record pairs of response and cut, and return False for each."""
        for pair in np.unique(np.stack((response.ravel(), cut.ravel()), axis=1), axis=0).tolist():
            self.queries[pair[0]].add(pair[1])
        return np.zeros(response.shape, dtype=np.bool_)

    def cuts(self) -> tuple[tuple[int, ...], ...]:
        """Return the recorded cuts of each response, increasing."""
        return tuple(tuple(sorted(cuts)) for cuts in self.queries)


def needed_cuts(reward: Reward, inputs: RewardInputs) -> Cuts:
    """Return the cuts at which `vectorise` may need verdicts, found by evaluating the reward with recorders.

    Both branches of an `if` are evaluated, so cuts in either branch are found. A cut at or beyond a response's end needs
    no verdict, because the verdict on the full response is used.

    Args:
        reward: The reward.
        inputs: The arrays of the step's responses; verdicts are not read.

    Raises:
        Problem: E0922 or E0505, as `vectorise`.
    """
    forced, bare = _Recorder(inputs.length.size), _Recorder(inputs.length.size)
    tokens = {node: _Recorder(inputs.length.size) for node in reward.tokens}
    inputs = replace(inputs, tokens=tokens)
    evaluate(reward, inputs, forced, bare)
    vectorise_metrics(reward, inputs, forced, bare)
    return Cuts(forced.cuts(), bare.cuts(), {node: recorder.cuts() for node, recorder in tokens.items()})
