"""References of a data set that nothing reads, by source and row; none in silence."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from reodsl.ir.data import Columns, Data, File
from runners.data.load import doubts, join_sources, read_sources
from runners.data.references import LISTED_ROWS


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
    assert (facts["rows"], facts["unread"]["count"]) == (4, 2)
    assert places(facts["unread"]["first"]) == [("0.jsonl", 2, r"\frac{1}{"), ("1.jsonl", 1, "2 +")]


def test_texts_that_have_to_be_met_as_they_stand_are_read(tmp_path: Path) -> None:
    assert found(tmp_path, [("a", "???"), ("b", "2 +")], verifier="exact") is None


def test_only_some_are_named_and_all_counted(tmp_path: Path) -> None:
    facts = found(tmp_path, [(f"q{n}", f"{n} +") for n in range(LISTED_ROWS + 5)] + [("sum", "4")])
    assert facts is not None
    assert (facts["unread"]["count"], len(facts["unread"]["first"])) == (LISTED_ROWS + 5, LISTED_ROWS)
