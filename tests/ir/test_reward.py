"""What is inside a reward, found by walking it; and the rule of its weights."""

from __future__ import annotations

import pytest

from reodsl.ir.base import canonical, parts_of, walk
from reodsl.ir.expression import (
    Aggregate,
    Constant,
    Correct,
    Expression,
    ForcedAnswer,
    FunctionCall,
    Infix,
    Length,
    PriorSplit,
    Variable,
    Weight,
)
from reodsl.ir.reward import Budgets, DenseReward, NamedValue, Part, Reward, RewardCuts

SPLIT = Budgets(budgets=(4, 8), l_max=16)
FORCED = ForcedAnswer(of="y", cut=Variable(name="L"))


def times(*rules: str) -> Expression:
    found: Expression = FORCED
    for rule in rules:
        found = Infix(fn="*", left=Weight(rule=rule), right=found)  # type: ignore[arg-type]
    return found


def test_a_walk_comes_to_everything_once_outside_before_inside() -> None:
    where = Correct(of="z")
    inner = Aggregate(fn="mean", var="z", over="group", value=Length(of="z"), where=where)
    clipped = FunctionCall(fn="clip", args=(inner, Constant(value=0), Constant(value=1)))
    part = Part(value=clipped)
    reward = Reward(name="r", lets=(NamedValue(name="a", value=Constant(value=3)),), parts=(part,))
    found = list(walk(reward))
    assert found == [
        reward,
        *walk(reward.lets[0]),
        part,
        clipped,
        inner,
        inner.value,
        where,
        *clipped.args[1:],
    ]
    assert list(parts_of(inner)) == [inner.value, where]
    assert list(parts_of(Constant(value=1))) == []


@pytest.mark.parametrize(
    ("rules", "rule"),
    [
        ((), None),
        (("trapezoid",), "trapezoid"),
        (("half_first", "half_first"), "half_first"),
        (("trapezoid", "uniform"), None),
    ],
)
def test_a_reward_has_one_rule_of_weights_or_none(rules: tuple[str, ...], rule: str | None) -> None:
    reward = Reward(name="r", dense=DenseReward(split=SPLIT, var="L", value=times(*rules)))
    assert reward.weight_rule == rule
    # What a response reaches is its own, and so are the weights.
    own = SPLIT.model_copy(update={"reached": True})
    assert Reward(name="r", dense=DenseReward(split=own, var="L", value=times(*rules))).weight_rule is None
    assert Reward(name="r", outcome=Correct(of="y")).weight_rule is None


@pytest.mark.parametrize(
    ("places", "split", "cuts"),
    [
        ((), SPLIT, RewardCuts()),
        ((Variable(name="L"), PriorSplit()), SPLIT, RewardCuts(splits=True)),
        ((Constant(value=64, unit=1), Constant(value=8.6)), None, RewardCuts(frozenset({64, 8}))),
        ((Infix(fn="/", left=Length(of="y"), right=Constant(value=2)),), None, RewardCuts(computed=True)),
        ((Variable(name="L"), Length(of="y")), SPLIT, RewardCuts(splits=True, computed=True)),
        ((Variable(name="let1"),), None, RewardCuts(computed=True)),
        ((Variable(name="let1"),), SPLIT, RewardCuts(computed=True)),
    ],
)
def test_where_a_reward_asks_for_forced_answers(
    places: tuple[Expression, ...], split: Budgets | None, cuts: RewardCuts
) -> None:
    value = FunctionCall(
        fn="max", args=(Constant(value=0), *(ForcedAnswer(of="y", cut=place) for place in places))
    )
    reward = Reward(
        name="r",
        lets=(NamedValue(name="let1", value=value),),
        outcome=None if split else Correct(of="y"),
        dense=DenseReward(split=split, var="L", value=Correct(of="y")) if split else None,
    )
    assert reward.forced == cuts
    assert reward.forced.any == bool(places)


def test_a_unit_is_for_people_and_no_part_of_identity() -> None:
    tokens, plain = Constant(value=64, unit=1), Constant(value=64)
    assert canonical(tokens) == canonical(plain) == {"op": "number", "value": 64.0}
    assert tokens == plain
    assert hash(tokens) == hash(plain)
