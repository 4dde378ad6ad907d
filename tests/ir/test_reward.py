"""What is inside a reward, found by walking it; and the rule of its weights."""

from __future__ import annotations

import pytest

from reodsl.ir.base import canonical, parts_of, walk
from reodsl.ir.expression import (
    Aggregate,
    Binary,
    Call,
    Correct,
    Expression,
    Forced,
    Length,
    Name,
    Number,
    Previous,
    Weight,
)
from reodsl.ir.reward import Budgets, Cuts, Dense, Let, Part, Reward

SPLIT = Budgets(budgets=(4, 8), l_max=16)
FORCED = Forced(of="y", cut=Name(name="L"))


def times(*rules: str) -> Expression:
    found: Expression = FORCED
    for rule in rules:
        found = Binary(fn="*", left=Weight(rule=rule), right=found)  # type: ignore[arg-type]
    return found


def test_a_walk_comes_to_everything_once_outside_before_inside() -> None:
    where = Correct(of="z")
    inner = Aggregate(fn="mean", var="z", over="group", value=Length(of="z"), where=where)
    clipped = Call(fn="clip", args=(inner, Number(value=0), Number(value=1)))
    part = Part(value=clipped)
    reward = Reward(name="r", lets=(Let(name="a", value=Number(value=3)),), parts=(part,))
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
    assert list(parts_of(Number(value=1))) == []


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
    reward = Reward(name="r", dense=Dense(split=SPLIT, var="L", value=times(*rules)))
    assert reward.weight_rule == rule
    # What a response reaches is its own, and so are the weights.
    own = SPLIT.model_copy(update={"reached": True})
    assert Reward(name="r", dense=Dense(split=own, var="L", value=times(*rules))).weight_rule is None
    assert Reward(name="r", outcome=Correct(of="y")).weight_rule is None


@pytest.mark.parametrize(
    ("places", "split", "cuts"),
    [
        ((), SPLIT, Cuts()),
        ((Name(name="L"), Previous()), SPLIT, Cuts(splits=True)),
        ((Number(value=64, unit=1), Number(value=8.6)), None, Cuts(frozenset({64, 8}))),
        ((Binary(fn="/", left=Length(of="y"), right=Number(value=2)),), None, Cuts(computed=True)),
        ((Name(name="L"), Length(of="y")), SPLIT, Cuts(splits=True, computed=True)),
        ((Name(name="let1"),), None, Cuts(computed=True)),
        ((Name(name="let1"),), SPLIT, Cuts(computed=True)),
    ],
)
def test_where_a_reward_asks_for_forced_answers(
    places: tuple[Expression, ...], split: Budgets | None, cuts: Cuts
) -> None:
    value = Call(fn="max", args=(Number(value=0), *(Forced(of="y", cut=place) for place in places)))
    reward = Reward(
        name="r",
        lets=(Let(name="let1", value=value),),
        outcome=None if split else Correct(of="y"),
        dense=Dense(split=split, var="L", value=Correct(of="y")) if split else None,
    )
    assert reward.forced == cuts
    assert reward.forced.any == bool(places)


def test_a_unit_is_for_people_and_no_part_of_identity() -> None:
    tokens, plain = Number(value=64, unit=1), Number(value=64)
    assert canonical(tokens) == canonical(plain) == {"op": "number", "value": 64.0}
    assert tokens == plain
    assert hash(tokens) == hash(plain)
