"""Numbers of questions: read by their paths, and told as missing, misspelt or no number."""

from __future__ import annotations

import json
from typing import Any

import pytest

from runners.rollout.questions import find_missing_number, read_facts, read_numbers


def test_numbers_in_records_are_read_by_their_paths() -> None:
    meta = {"level": 3, "info": {"hard": 1.5, "more": {"n": 2}}, "flag": True, "name": "2", "list": [1]}
    assert read_numbers(json.dumps(meta)) == {"level": 3.0, "info.hard": 1.5, "info.more.n": 2.0}
    assert read_numbers(json.dumps({"info.level": 4})) == {"info.level": 4.0}
    assert read_numbers("no JSON") == read_numbers("[1, 2]") == {}


@pytest.mark.parametrize(
    ("values", "message", "helps"),
    [
        ([1, 2, 3], None, None),
        ([1, None, 3], "which 1 of 3 questions do not have", "give each question the number"),
        (["hard", "easy", 3], "which is text in 2 of 3 questions", "write a number in each row"),
        ([True, None, 3], "which is true or false in 1 of 3 questions", "write a number in each row"),
        ([[1], 2, 3], "which is a list in 1 of 3 questions", "write a number in each row"),
        ([None, None, None], "which no question has", "did you mean `levels`?"),
    ],
)
def test_missing_numbers_are_told_apart(values: list[Any], message: str | None, helps: str | None) -> None:
    rows = [
        (f"q{at}", read_facts(json.dumps({"levels": at, **({} if value is None else {"level": value})})))
        for at, value in enumerate(values)
    ]
    found = find_missing_number("the reward `paid`", "level", rows)
    if found is None:
        assert message is None
        return
    assert message is not None
    assert found.message == f"the reward `paid` reads `x.level`, {message}"
    assert str(found.help).startswith(str(helps))
