"""Questions shared by training and evaluation data."""

from __future__ import annotations

import polars as pl

from runners.data.overlap import overlap


def test_shared_questions_are_found_in_any_spelling() -> None:
    train = pl.DataFrame({"id": ["t1", "t2", "t3"], "question": ["What is 1+1?", "b", "WHAT is 1+1?"]})
    evaluation = pl.DataFrame({"id": ["e1", "e2", "e3"], "question": ["c", "what  is 1+1?", "B "]})
    assert overlap(train, evaluation).rows() == [("e2", "what  is 1+1?", "t1"), ("e3", "B ", "t2")]


def test_apart_is_empty() -> None:
    train = pl.DataFrame({"id": ["t"], "question": ["a"]})
    found = overlap(train, pl.DataFrame({"id": ["e"], "question": ["b"]}))
    assert found.columns == ["id", "question", "train_id"]
    assert found.height == 0
