"""Doubtful references of a data set: rows that nothing reads and rows that disagree, by source and row; none in silence."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from reodsl.ir.data import Columns, Data, File
from runners.data.load import doubts, join_sources, read_sources
from runners.data.references import KEPT


def found(folder: Path, *files: list[tuple[str, str]], **settings: Any) -> dict[str, Any] | None:
    sources = []
    for number, rows in enumerate(files):
        path = folder / f"{number}.jsonl"
        path.write_text("".join(json.dumps({"question": q, "answer": a}) + "\n" for q, a in rows))
        sources.append(File(path=path.name, columns=Columns()))
    data = Data.model_validate({"name": "d", "sources": sources, "duplicates": "drop", **settings})
    read = read_sources(data, folder)
    join_sources(data, read)
    return doubts(data, read)


def places(rows: list[dict[str, Any]]) -> list[tuple[str, int, str]]:
    return [(row["source"], row["row"], row["answer"]) for row in rows]


def test_data_without_doubts_says_nothing(tmp_path: Path) -> None:
    assert found(tmp_path, [("1+1?", "2"), ("Who?", "Evelyn"), ("1+1?", "2.0")]) is None


def test_unread_references_are_named_by_source_and_row(tmp_path: Path) -> None:
    facts = found(tmp_path, [("a", "1"), ("b", r"\frac{1}{")], [("c", "2 +"), ("d", "x")])
    assert facts is not None
    assert (facts["rows"], facts["unread"]["count"], facts["disagree"]["count"]) == (4, 2, 0)
    assert places(facts["unread"]["first"]) == [("0.jsonl", 2, r"\frac{1}{"), ("1.jsonl", 1, "2 +")]


def test_texts_that_have_to_be_met_as_they_stand_are_read(tmp_path: Path) -> None:
    assert found(tmp_path, [("a", "???"), ("b", "2 +")], verifier="exact") is None


def test_only_some_are_named_and_all_counted(tmp_path: Path) -> None:
    facts = found(tmp_path, [(f"q{n}", f"{n} +") for n in range(KEPT + 5)] + [("sum", "4")])
    assert facts is not None
    assert (facts["unread"]["count"], len(facts["unread"]["first"])) == (KEPT + 5, KEPT)


@pytest.mark.parametrize(
    ("first", "second", "agree"),
    [
        ("1/2", "0.5", True),
        (r"\sqrt{8}", r"2\sqrt{2}", True),
        ("x = 4", "4", True),
        ("Monday", "monday", True),
        ("54", "56", False),
        ("Monday", "Tuesday", False),
        (r"\sqrt{8}", r"2\sqrt{3}", False),
        ("0.5", "0.5001", True),
    ],
)
def test_references_of_one_question_agree_by_what_they_say(
    tmp_path: Path, first: str, second: str, agree: bool
) -> None:
    facts = found(tmp_path, [("What?", first), ("Else?", "1")], [(" WHAT? ", second)], tolerance=0.001)
    assert (facts is None) == agree
    if facts is not None:
        ((one, other),) = facts["disagree"]["first"]
        assert places([one, other]) == [("0.jsonl", 1, first), ("1.jsonl", 1, second)]


def test_exact_references_disagree_where_their_texts_do(tmp_path: Path) -> None:
    rows = [("What?", "1/2"), ("What?", "0.5"), ("What?", "half")]
    facts = found(tmp_path, rows, verifier="exact")
    assert facts is not None
    assert [second["row"] for _, second in facts["disagree"]["first"]] == [3]


def test_of_several_right_answers_one_in_common_is_enough(tmp_path: Path) -> None:
    path = tmp_path / "several.jsonl"
    path.write_text('{"question": "a", "answer": ["1", "2"]}\n{"question": "a", "answer": ["2", "3"]}\n')
    data = Data(name="d", sources=(File(path=path.name),), duplicates="drop")
    assert doubts(data, read_sources(data, tmp_path)) is None
