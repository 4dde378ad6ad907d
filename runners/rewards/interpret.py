"""The slow interpreter of rewards: it computes the rewards of one response, one number at a time.

It defines what a reward means; `vectorise` computes the same for all responses of a step, and is tested against it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

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
)
from reodsl.ir.reward import ResponseGroup, Reward, RewardedResponse
from reodsl.ir.reward_text import expression_text
from reodsl.numbers.budgets import coefficients
from runners.rewards.arithmetic import BINARY, FUNCTIONS, STATISTICS, quantile
from runners.rewards.inputs import given_missing


@dataclass(frozen=True, slots=True)
class _Scope:
    """The values of names in an expression."""

    reader: str  # owner of the expression, for messages
    group: ResponseGroup  # responses to the question
    responses: Mapping[str, RewardedResponse]  # by name
    numbers: Mapping[str, float]  # by name
    split_tokens: Sequence[int]  # ends of the response's splits, in tokens
    split: int  # index of the current split
    # Index of the split of each variable over `splits`.
    split_indices: Mapping[str, int] = field(default_factory=dict)


def interpret(
    reward: Reward, group: ResponseGroup, index: int, split_tokens: Sequence[int] = ()
) -> list[float]:
    """Return the rewards of a response.

    Args:
        reward: The reward.
        group: The responses to the question.
        index: The response's index in the group.
        split_tokens: The response's splits: the increasing positions, in tokens, at which it is divided.

    Returns:
        The reward at each split for a dense reward; a single reward for an outcome; for a reward with parts, the value
        of each part, then each weight that is not constant.
    """
    tracks = {f"{TRACK}{name}": value for name, value in group.tracks.items()}
    reader = f"the reward `{reward.name}`"
    scope = _Scope(reader, group, {"y": group.rollouts[index]}, tracks, split_tokens, 0)
    for let in reward.lets:
        value = _value(let.value, scope)
        scope = _Scope(reader, group, scope.responses, {**scope.numbers, let.name: value}, split_tokens, 0)
    if reward.dense is None:
        return [_value(value, scope) for value in reward.values]
    rewards = []
    for split, tokens in enumerate(split_tokens):
        numbers = {**scope.numbers, reward.dense.var: float(tokens)}
        at_split = _Scope(reader, group, scope.responses, numbers, split_tokens, split)
        rewards.append(_value(reward.dense.value, at_split))
    return rewards


def measure(
    reader: str,
    node: Expression,
    group: ResponseGroup,
    responses: Mapping[str, RewardedResponse],
    numbers: Mapping[str, float],
    split_tokens: Sequence[int] = (),
) -> float:
    """Return the value of an expression for a question's group of responses.

    Args:
        reader: The setting with the expression, for messages, e.g. "the reward `paid`".
        node: The expression.
        group: The responses to the question.
        responses: The responses that the expression names, by name.
        numbers: The numbers that the expression names, by name.
        split_tokens: The response's splits: the increasing positions, in tokens, at which it is divided.
    """
    return _value(node, _Scope(reader, group, responses, numbers, split_tokens, 0))


def _value(node: Expression, scope: _Scope) -> float:
    """Return the value of an expression; verdicts are 1 or 0, and an undefined number is NaN.

    Args:
        node: The expression.
        scope: The values of names in the expression.

    Raises:
        Problem: E0922, if a response lacks a feature that the expression reads.
        ValueError: The expression has a statistic over earlier steps, which callers replace by its value.
    """
    match node:
        case Constant():
            return node.value
        case Variable():
            return scope.numbers[node.name]
        case Length():
            return float(scope.responses[node.of].length)
        case Correct():
            return float(scope.responses[node.of].correct)
        case ForcedAnswer():
            cut = _cut(node.cut, scope)
            return math.nan if cut is None else float(scope.responses[node.of].forced_at(cut))
        case CutAnswer():
            cut = _cut(node.cut, scope)
            return math.nan if cut is None else float(scope.responses[node.of].bare_at(cut))
        case Attribute() | PythonTerm():
            features = scope.responses[node.of].features
            if node.key not in features:
                raise given_missing(scope.reader, node.key, sorted(features))
            return float(features[node.key])
        case Weight():
            return coefficients(node.rule, scope.split_tokens[:-1], scope.split_tokens[-1])[scope.split]
        case WeightAt():
            return coefficients(node.rule, scope.split_tokens[:-1], scope.split_tokens[-1])[
                scope.split_indices[node.of]
            ]
        case PriorSplit():
            return float(scope.split_tokens[scope.split - 1]) if scope.split else 0.0
        case Negation():
            value = _value(node.value, scope)
            return -value if node.fn == "neg" else float(value == 0)
        case Infix():
            return BINARY[node.fn](_value(node.left, scope), _value(node.right, scope))
        case FunctionCall():
            return FUNCTIONS[node.fn](*(_value(arg, scope) for arg in node.args))
        case If():
            return _value(node.then if _value(node.test, scope) != 0 else node.other, scope)
        case Aggregate():
            return _aggregate(node, scope)
        case TokenRun():
            return _token_statistic(node, scope)
        case StepStatistic(over="batch"):
            return _over_batch(node, scope)
        case StepStatistic():
            raise ValueError("statistics over earlier steps must be replaced by their values first")


def _cut(node: Expression, scope: _Scope) -> int | None:
    """Return the value of an expression as a cut in tokens, rounded down and at least 0; None for NaN."""
    tokens = _value(node, scope)
    if math.isnan(tokens):
        return None
    return max(0, math.floor(min(tokens, 2.0**62)) if tokens > 0 else 0)


def _token_statistic(node: TokenRun, scope: _Scope) -> float:
    """Return a statistic over the tokens of a response, up to the node's cut or the response's end; NaN for a NaN cut."""
    response, key = scope.responses[node.of], node.of_any
    cut = response.length if node.cut is None else _cut(node.cut, scope)
    if key not in response.tokens:
        raise given_missing(scope.reader, expression_text(key), sorted(response.features))
    return math.nan if cut is None else response.tokens[key][min(cut, response.length)]


def _aggregate(node: Aggregate, scope: _Scope) -> float:
    """Return a statistic over the responses or splits that meet its condition.

    A scope is made for each response or split, with the statistic's variable bound to it. `_summarise` says what the
    result is if no response or split meets the condition.
    """
    if node.over == "splits":
        scopes = [
            replace(
                scope,
                numbers={**scope.numbers, node.var: float(member)},
                split_indices={**scope.split_indices, node.var: index},
            )
            for index, member in enumerate(scope.split_tokens)
        ]
    else:
        group = scope.group
        earlier = group.history[-(node.last or MEMORY) :]
        members = {"group": group.rollouts, "ref": group.reference, "history": earlier}[node.over]
        scopes = [replace(scope, responses={**scope.responses, node.var: member}) for member in members]
    return _summarise(node, scopes, scope)


def _over_batch(node: StepStatistic, scope: _Scope) -> float:
    """Return a statistic over all responses of the step, each evaluated within its own question's group."""
    groups = scope.group.batch or (scope.group,)
    scopes = [
        replace(scope, group=group, responses={node.var: rollout})
        for group in groups
        for rollout in group.rollouts
    ]
    return _summarise(node, scopes, scope)


def _summarise(node: Aggregate | StepStatistic, scopes: Sequence[_Scope], scope: _Scope) -> float:
    """Return the statistic of an expression's values in the scopes that meet the statistic's condition.

    Args:
        node: The statistic.
        scopes: A scope for each member, i.e. response or split.
        scope: The scope outside the statistic, for `empty`.

    Returns:
        The statistic. If no scope meets the condition: the value of `empty` if given, else 0 for a sum or count, and NaN
        for another statistic.
    """
    values = []
    for inner in scopes:
        if node.where is None or _value(node.where, inner) != 0:
            values.append(1.0 if node.fn == "count" else _value(node.value, inner))
    if values and isinstance(node, StepStatistic) and node.at is not None:
        return quantile(values, _value(node.at, scope))
    if values:
        return float(len(values)) if node.fn == "count" else STATISTICS[node.fn](values)
    if node.empty is not None:
        return _value(node.empty, scope)
    return 0.0 if node.fn in ("sum", "count") else math.nan
