"""The reference interpreter: one response's reward at each split, one number at a time.

It says what a reward means; `vectorise` computes the same for a whole step and is tested against it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from reodsl.ir.expression import (
    TRACK,
    Aggregate,
    Bare,
    Constant,
    Correct,
    Expression,
    ForcedAnswer,
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
)
from reodsl.ir.reward import ResponseGroup, Reward, RewardedResponse
from reodsl.ir.reward_text import expression_text
from reodsl.numbers.budgets import coefficients
from runners.rewards.arithmetic import BINARY, FUNCTIONS, STATISTICS, quantile
from runners.rewards.inputs import given_missing


@dataclass(frozen=True, slots=True)
class _Scope:
    """Meanings of names at one place of an expression: responses, numbers, and the split at hand.

    `at` says which split a variable over `splits` is at.
    """

    asker: str
    group: ResponseGroup
    responses: Mapping[str, RewardedResponse]
    numbers: Mapping[str, float]
    places: Sequence[int]
    split: int
    at: Mapping[str, int] = field(default_factory=dict)


def interpret(reward: Reward, group: ResponseGroup, index: int, places: Sequence[int] = ()) -> list[float]:
    """Return the rewards of response `index`.

    There is one at each of `places` (its splits, in tokens), one in all for an outcome, or one for each of its parts, and
    then for each of their weights that is no number.
    """
    tracks = {f"{TRACK}{name}": value for name, value in group.tracks.items()}
    asker = f"the reward `{reward.name}`"
    scope = _Scope(asker, group, {"y": group.rollouts[index]}, tracks, places, 0)
    for let in reward.lets:
        value = _value(let.value, scope)
        scope = _Scope(asker, group, scope.responses, {**scope.numbers, let.name: value}, places, 0)
    if reward.dense is None:
        return [_value(value, scope) for value in reward.values]
    rewards = []
    for split, place in enumerate(places):
        numbers = {**scope.numbers, reward.dense.var: float(place)}
        at_split = _Scope(asker, group, scope.responses, numbers, places, split)
        rewards.append(_value(reward.dense.value, at_split))
    return rewards


def measure(
    asker: str,
    node: Expression,
    group: ResponseGroup,
    responses: Mapping[str, RewardedResponse],
    numbers: Mapping[str, float],
    places: Sequence[int] = (),
) -> float:
    """Return the value of an expression over a question's group, where names mean these responses and numbers.

    `places` are the splits of the response that is measured. `asker` is whose expression it is, for messages: "the reward
    `paid`".
    """
    return _value(node, _Scope(asker, group, responses, numbers, places, 0))


def _value(node: Expression, scope: _Scope) -> float:
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
        case Bare():
            cut = _cut(node.cut, scope)
            return math.nan if cut is None else float(scope.responses[node.of].bare_at(cut))
        case Given():
            given = scope.responses[node.of].given
            if node.field not in given:
                raise given_missing(scope.asker, node.field, sorted(given))
            return float(given[node.field])
        case Own():
            given = scope.responses[node.of].given
            if node.function not in given:
                raise given_missing(scope.asker, node.function, sorted(given))
            return float(given[node.function])
        case Weight():
            return coefficients(node.rule, scope.places[:-1], scope.places[-1])[scope.split]
        case WeightAt():
            return coefficients(node.rule, scope.places[:-1], scope.places[-1])[scope.at[node.of]]
        case Previous():
            return float(scope.places[scope.split - 1]) if scope.split else 0.0
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
            return _told_of_tokens(node, scope)
        case History(over="batch"):
            return _over_batch(node, scope)
        case History():
            raise ValueError("what happened before is measured before a reward is")


def _cut(node: Expression, scope: _Scope) -> int | None:
    """Return a place in tokens: a fraction rounds down, a negative one is 0, NaN is not a place."""
    place = _value(node, scope)
    if math.isnan(place):
        return None
    return max(0, math.floor(min(place, 2.0**62)) if place > 0 else 0)


def _told_of_tokens(node: TokenRun, scope: _Scope) -> float:
    """Return what was found of a response's tokens, up to a cut or its end."""
    response, key = scope.responses[node.of], node.of_any
    cut = response.length if node.cut is None else _cut(node.cut, scope)
    if key not in response.tokens:
        raise given_missing(scope.asker, expression_text(key), sorted(response.given))
    return math.nan if cut is None else response.tokens[key][min(cut, response.length)]


def _aggregate(node: Aggregate, scope: _Scope) -> float:
    """Return a statistic over the responses or splits that meet `where`; over none `empty`, or 0 for a sum or a count."""
    if node.over == "splits":
        inners = [
            replace(
                scope, numbers={**scope.numbers, node.var: float(each)}, at={**scope.at, node.var: number}
            )
            for number, each in enumerate(scope.places)
        ]
    else:
        group = scope.group
        members = {"group": group.rollouts, "ref": group.reference, "history": group.history}[node.over]
        inners = [replace(scope, responses={**scope.responses, node.var: each}) for each in members]
    return _summarise(node, inners, scope)


def _over_batch(node: History, scope: _Scope) -> float:
    """Return a statistic over all responses of the step, each with its own question's group around it."""
    groups = scope.group.batch or (scope.group,)
    inners = [
        replace(scope, group=group, responses={node.var: each}) for group in groups for each in group.rollouts
    ]
    return _summarise(node, inners, scope)


def _summarise(node: Aggregate | History, inners: Sequence[_Scope], scope: _Scope) -> float:
    """Return the statistic of what the scopes that meet `where` have; over none what `_aggregate` says."""
    values = []
    for inner in inners:
        if node.where is None or _value(node.where, inner) != 0:
            values.append(1.0 if node.fn == "count" else _value(node.value, inner))
    if values and isinstance(node, History) and node.at is not None:
        return quantile(values, _value(node.at, scope))
    if values:
        return float(len(values)) if node.fn == "count" else STATISTICS[node.fn](values)
    if node.empty is not None:
        return _value(node.empty, scope)
    return 0.0 if node.fn in ("sum", "count") else math.nan
