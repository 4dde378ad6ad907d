"""Questions for programs: columns kept for tests, and rows whose tests cannot be read."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from reodsl.diagnostics import Problem
from reodsl.ir.data import Chance, Columns, Data, File
from reodsl.ir.data import Tests as ByTests
from runners.data.files import read_questions
from runners.data.load import load_data

ROWS = [
    {
        "q": "a",
        "t": ["assert f(1) == 2", "assert f(2) == 3"],
        "entry_point": "f",
        "level": 3,
        "tags": {"a": [1, "b"]},
    },
    {"q": "b", "t": ["assert g(1) == 2"], "entry_point": "g", "level": 4.5, "tags": None},
]
KEPT = Columns(question="q", answer="t", meta=("entry_point", "level", "tags"))


@pytest.mark.parametrize("kind", ["jsonl", "json", "parquet"])
def test_further_columns_are_kept_as_they_are(tmp_path: Path, kind: str) -> None:
    path = tmp_path / f"data.{kind}"
    rows: list[dict[str, Any]] = [{**row, "tags": ["x", None]} for row in ROWS] if kind == "parquet" else ROWS
    if kind == "parquet":
        pl.DataFrame(rows).write_parquet(path)
    else:
        path.write_text("\n".join(map(json.dumps, rows)) if kind == "jsonl" else json.dumps(rows))
    table = read_questions(path, KEPT)
    assert table.columns == ["id", "question", "answer", "meta"]
    facts = [json.loads(text) for text in table["meta"]]
    assert facts == [{name: row[name] for name in KEPT.meta} for row in rows]


def test_a_further_column_that_is_not_there_is_named(tmp_path: Path) -> None:
    (tmp_path / "data.json").write_text(json.dumps(ROWS))
    with pytest.raises(Problem, match="entry"):
        read_questions(tmp_path / "data.json", Columns(question="q", answer="t", meta=("entry",)))


@pytest.mark.parametrize("verifier", [ByTests(), Chance(of=ByTests())])
def test_rows_without_tests_are_named(tmp_path: Path, refusal: Any, verifier: Any) -> None:
    answers = ["assert f(1) == 2", "42", "def check(candidate):\n    assert candidate(1) == 2", ""]
    rows = [{"question": f"{n}", "answer": text} for n, text in enumerate(answers[:3])]
    (tmp_path / "data.json").write_text(json.dumps(rows))
    data = Data(name="d", sources=(File(path="data.json"),), verifier=verifier)
    with pytest.raises(Problem) as caught:
        load_data(data, tmp_path)
    refusal("runs/E0718.txt", caught.value, task="d.data")


def test_an_answer_is_needed_beside_further_columns(tmp_path: Path) -> None:
    (tmp_path / "data.json").write_text(json.dumps([{"question": "a", "answer": "", "level": 1}]))
    source = File(path="data.json", columns=Columns(meta=("level",)))
    with pytest.raises(Problem, match="no answer"):
        load_data(Data(name="d", sources=(source,)), tmp_path)
