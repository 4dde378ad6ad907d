"""Changes of rewards in words: both sides, as a spec has them."""

from __future__ import annotations

from typing import Any

from reodsl.plan.places import Difference, words

CORRECT = {"op": "correct", "of": "y"}


def number(value: float) -> dict[str, Any]:
    return {"op": "number", "value": value}


def binary(fn: str, left: object, right: object) -> dict[str, Any]:
    return {"op": "binary", "fn": fn, "left": left, "right": right}


def said(old: object, new: object, name: str = "outcome") -> str:
    return words(Difference(f"payload.stage.method.reward.{name}", old, new))


def test_a_reward_is_shown_before_and_after() -> None:
    assert said(CORRECT, binary("-", CORRECT, number(0.5))) == "reward correct(y) -> correct(y) - 0.5"
    assert said(None, CORRECT) == "reward none -> correct(y)"
    lets = [[{"name": "cost", "value": number(value)}] for value in (1, 2)]
    assert said(*lets, name="lets") == "reward.lets cost = 1 -> cost = 2"


def test_long_rewards_are_shown_where_they_part() -> None:
    terms = CORRECT
    for at in range(30):
        terms = binary("+", terms, binary("*", number(at), {"op": "length", "of": "y"}))
    assert said(binary("+", terms, CORRECT), binary("+", terms, number(7))).endswith(
        "29 * len(y) + correct(y) -> …* len(y) + 29 * len(y) + 7"
    )


def test_what_an_older_version_had_is_no_error() -> None:
    assert said({"op": "gone"}, CORRECT) == "reward gone -> correct(y)"
