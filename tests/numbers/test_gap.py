"""Losses by cause against a loop over every response and budget, and their sum against the area that REG integrates."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from reodsl.numbers.verdict import CAUSES, SAMPLE_KEYS, split_losses, weigh

GRID = (0, 4, 8, 16, 32)
QUESTIONS = st.lists(
    st.lists(
        st.tuples(st.integers(1, 40), st.lists(st.booleans(), min_size=5, max_size=5)), min_size=1, max_size=3
    ),
    min_size=1,
    max_size=4,
)
"""The responses to each question: tokens, and whether each budget's answer is right."""


def rows(questions: list[list[tuple[int, list[bool]]]]) -> list[dict[str, Any]]:
    """Answers at budgets past the end are that of the whole response, as an evaluation has them."""
    found = []
    for q, responses in enumerate(questions):
        for s, (tokens, right) in enumerate(responses):
            whole = right[-1]
            for budget, correct in zip(GRID, right, strict=True):
                cut = budget < tokens
                keys = {"benchmark": "b", "question": f"q{q}", "sample": s, "budget": budget}
                found.append(keys | {"forced": cut, "correct": correct if cut else whole})
    return found


def finishes(table: list[dict[str, Any]], longest: int) -> pl.LazyFrame:
    """Rows of `samples.parquet`: a response whose last forced budget is `longest` or more is cut off."""
    ended: dict[tuple[Any, ...], int] = {}
    for row in table:
        key = tuple(row[name] for name in SAMPLE_KEYS)
        ended[key] = max(ended.get(key, 0), row["budget"] if row["forced"] else 0)
    rows = [(*key, "length" if last >= longest else "stop") for key, last in ended.items()]
    return pl.LazyFrame(rows, schema=[*SAMPLE_KEYS, "finish"], orient="row")


@settings(max_examples=60, deadline=None)
@given(QUESTIONS, st.sampled_from([32, 16, 12]))
def test_losses_are_those_of_a_loop_and_add_up(
    questions: list[list[tuple[int, list[bool]]]], to: int
) -> None:
    table, weights = rows(questions), weigh(GRID, to)
    samples = finishes(table, 8)
    cut = {(q, s) for _, q, s, finish in samples.collect().iter_rows() if finish == "length"}
    found = split_losses(
        pl.DataFrame(table).sample(fraction=1, shuffle=True, seed=1).lazy(), samples, weights
    ).collect()
    slow: dict[tuple[str, int], Counter[str]] = {}
    used = [row for row in table if row["budget"] in weights]
    for row in used:
        causes = slow.setdefault((row["question"], row["sample"]), Counter())
        if row["correct"]:
            continue
        mine = [each for each in used if each["question"] == row["question"]]
        before = [
            each["correct"]
            for each in mine
            if each["sample"] == row["sample"] and each["budget"] < row["budget"]
        ]
        if not any(each["correct"] for each in mine):
            cause = "unsolved"
        elif any(before):
            cause = "after"
        else:
            later = [each["correct"] for each in mine if each["sample"] == row["sample"]]
            ended = "cut" if (row["question"], row["sample"]) in cut else "given_up"
            cause = ended if not row["forced"] and not any(later) else "before"
        causes[cause] += weights[row["budget"]]
    points = [b for b in GRID if b < to] + [to]
    for row in found.to_dicts():
        for cause in CAUSES:
            assert row[cause] == pytest.approx(slow[row["question"], row["sample"]][cause])
        own = {
            each["budget"]: 1 - each["correct"]
            for each in table
            if all(each[key] == row[key] for key in SAMPLE_KEYS)
        }
        lost = np.interp(points, GRID, [own[b] for b in GRID])
        area = sum((b - a) * (x + y) / 2 for (a, x), (b, y) in pairwise(zip(points, lost, strict=True)))
        assert sum(row[cause] for cause in CAUSES) == pytest.approx(area)


def test_each_cause_is_what_its_words_say() -> None:
    """By hand: one is right from 8 on and wrong at 32 once it ended, two are wrong at the end, one is never solved."""
    lost_again = (20, [False, False, True, True, False])
    gave_up = (10, [False] * 5)
    cut_off = (30, [False] * 5)
    table = rows([[lost_again, gave_up, cut_off], [(40, [False] * 5)]])
    found = split_losses(pl.DataFrame(table).lazy(), finishes(table, 16), weigh(GRID)).collect()
    weights = [2, 4, 6, 12, 8]
    assert list(weigh(GRID).values()) == weights
    assert found.drop(SAMPLE_KEYS[0]).rows() == [
        ("q0", 0, 2 + 4, 8, 0, 0, 0),
        ("q0", 1, 2 + 4 + 6, 0, 12 + 8, 0, 0),
        ("q0", 2, 2 + 4 + 6 + 12, 0, 0, 8, 0),
        ("q1", 0, 0, 0, 0, 0, 32),
    ]
