"""References and answers in the shapes of benchmarks, read from a table: right forms are accepted, wrong answers never."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from runners.grade import Claim, PooledVerifier
from tests.grade.recorded import KEPT, fingerprint, recorded

pytestmark = pytest.mark.slow

TABLE = Path(__file__).with_name("graded.txt")
ACCEPTED = 0.99
"""Share of right answers that have to be accepted; of wrong ones none may be."""


@dataclass(frozen=True)
class Row:
    shape: str
    gold: str
    text: str
    right: bool


def rows() -> Iterator[Row]:
    shape = gold = ""
    for line in TABLE.read_text("utf-8").splitlines():
        mark, text = line[:2], line[2:]
        if mark == "##":
            shape = text.strip()
        elif mark == "= ":
            gold = text
        elif mark in ("+ ", "- "):
            yield Row(shape, gold, text, mark == "+ ")


def test_the_table_is_large_and_says_everything_once() -> None:
    every = list(rows())
    assert len(every) >= 400
    assert min(Counter(row.right for row in every).values()) >= 200
    # What is right for one reference is right wherever that reference stands.
    said: dict[tuple[str, str], bool] = {}
    for row in every:
        assert said.setdefault((row.gold, row.text), row.right) == row.right, row


def test_verdicts_that_are_kept_are_those_of_today_s_code() -> None:
    """Others are asked for anew, which takes a minute; `pytest --update-goldens tests/grade` keeps them."""
    assert {json.loads(path.read_text("utf-8"))["of"] for path in KEPT.glob("*.json")} == {fingerprint()}


def test_right_answers_are_accepted_and_wrong_ones_are_not(request: pytest.FixtureRequest) -> None:
    every = list(rows())
    verifier = PooledVerifier("math", workers=2, seconds=20.0, memory_mib=1024, fast=True, confined=False)
    try:
        with recorded(verifier, "graded", request.config.getoption("--update-goldens")):
            verdicts = verifier.grade([Claim(row.text, row.gold) for row in every])
    finally:
        verifier.close()
    assert all(verdict.unsettled is None for verdict in verdicts)
    accepted = [row for row, verdict in zip(every, verdicts, strict=True) if verdict.correct]
    refused = [row for row, verdict in zip(every, verdicts, strict=True) if not verdict.correct]
    assert [row for row in accepted if not row.right] == []
    right = sum(row.right for row in every)
    missed = [row for row in refused if row.right]
    assert len(missed) <= (1 - ACCEPTED) * right, missed
