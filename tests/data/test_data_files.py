"""Files as sources: four formats read the same, bad rows named by their line, odd files refused."""

from __future__ import annotations

import json
import os
from pathlib import Path

import polars as pl
import pytest

from reodsl.diagnostics import Diagnostic, Problem
from reodsl.ir.data import Columns
from runners.data import files
from runners.data.files import file_problem, read_questions
from runners.grade import SEPARATOR

ROWS = [
    {"problem": "1 + 1, and then?", "solution": "2"},
    {"problem": 'say "é"\nnow', "solution": "\\frac{1}{2}"},
    {"problem": "007", "solution": "007"},
]
MAPPED = Columns(question="problem", answer="solution")


def write(folder: Path, kind: str) -> Path:
    path = folder / f"data.{kind}"
    frame = pl.DataFrame(ROWS)
    if kind == "parquet":
        frame.write_parquet(path)
    elif kind == "csv":
        frame.write_csv(path)
    elif kind == "json":
        path.write_text(json.dumps(ROWS))
    else:
        path.write_text("\n".join(json.dumps(row) for row in ROWS) + "\n\n")
    return path


def found(path: Path, columns: Columns = MAPPED) -> Diagnostic:
    with pytest.raises(Problem) as caught:
        read_questions(path, columns)
    (diagnostic,) = caught.value.diagnostics
    assert diagnostic.help
    return diagnostic


@pytest.mark.parametrize("kind", ["parquet", "jsonl", "ndjson", "json", "csv"])
def test_every_format_reads_to_the_same_table(tmp_path: Path, kind: str) -> None:
    table = read_questions(write(tmp_path, kind), MAPPED)
    assert table.select("question", "answer").rows() == [tuple(row.values()) for row in ROWS]
    assert table.schema == {"id": pl.String, "question": pl.String, "answer": pl.String}


@pytest.mark.parametrize("kind", ["parquet", "jsonl", "json", "csv"])
def test_a_missing_column_is_named_in_every_format(tmp_path: Path, kind: str) -> None:
    diagnostic = found(write(tmp_path, kind), Columns(question="problem", answer="answers"))
    assert diagnostic.code == "E0701"
    assert "`answers`" in diagnostic.message
    assert "`problem`, `solution`" in diagnostic.notes[0]


def test_numbers_in_json_keep_their_spelling(tmp_path: Path) -> None:
    path = tmp_path / "d.jsonl"
    long = "9" * 6000
    path.write_text(f'{{"question": "a", "answer": 1.50}}\n{{"question": "b", "answer": {long}}}\n')
    assert read_questions(path, Columns())["answer"].to_list() == ["1.50", long]


def test_a_json_file_may_have_a_record_a_line(tmp_path: Path) -> None:
    path = tmp_path / "d.json"
    path.write_text('{"question": "a", "answer": ["1", 2, "1"]}\n{"question": "b", "answer": "3"}\n')
    assert read_questions(path, Columns())["answer"].to_list() == [f"1{SEPARATOR}2", "3"]


def test_records_may_be_laid_out_over_lines(tmp_path: Path) -> None:
    path = tmp_path / "d.json"
    rows = [{"question": "a", "answer": "1"}, {"question": "b\n", "answer": ["2", "3"]}, {"question": 7}]
    path.write_text("\n".join(json.dumps(row, indent=2) for row in rows) + "\n\n7")
    assert found(path, Columns()).where == f"{path}, line 16"
    path.write_text("\n\n".join(json.dumps(row, indent=2) for row in rows[:2]))
    assert read_questions(path, Columns())["answer"].to_list() == ["1", f"2{SEPARATOR}3"]


def test_a_column_that_is_not_read_may_be_there_twice(tmp_path: Path) -> None:
    path = tmp_path / "d.csv"
    path.write_text("question,note,answer,note\na,,b,\n")
    assert read_questions(path, Columns())["answer"].to_list() == ["b"]


def test_a_field_left_out_is_empty(tmp_path: Path) -> None:
    path = tmp_path / "d.jsonl"
    path.write_text(
        '{"question": "a", "answer": true}\n{"question": "b"}\n{"question": "\\ud800", "answer": null}\n'
    )
    assert read_questions(path, Columns())["answer"].to_list() == ["true", None, None]


@pytest.mark.parametrize(
    ("name", "content", "place", "words"),
    [
        ("d.jsonl", '{"question": "a", "answer": "b"}\n{"question": ', "line 2", "not JSON"),
        ("d.jsonl", '{"question": "a", "answer": "b"}\n\n["a"]', "line 3", "a list, not a record"),
        ("d.jsonl", '{"question": ["a"], "answer": "b"}', "line 1", "`question` is a list"),
        ("d.jsonl", '{"question": "a", "answer": [{"b": 1}]}', "line 1", "`answer` is a record"),
        ("d.jsonl", "[" * 100_000, "line 1", "nested too deep"),
        ("d.json", '"question"', "d.json", "a text or number, not a list"),
        ("d.json", '[{"question": "a", "answer": "b"},\n 7]', "record 2", "not a record"),
        ("d.json", '[{"question":\n "a",,', "line 2", "not JSON"),
        ("d.jsonl", '{\n "question": "a",\n "answer": "b"\n}', "line 1", "a record has several lines"),
        ("d.jsonl", '{"question": "a", "answer": "b", "answer": "c"}', "line 1", "`answer` is listed twice"),
        ("d.json", '{"question": "a",\n "answer": "b"}\n\n{"question": "c",\n 4}', "line 5", "not JSON"),
        ("d.json", '[{"question": "a", "answer": {"b": 1, "b": 2}}]', "d.json", "`b` is listed twice"),
        ("d.csv", "question,answer,answer\na,b,c\n", "line 1", "2 columns are named `answer`"),
        ("d.csv", "question,answer\na,b\nc,d,e\n", "line 3", "3 fields, and the header has 2"),
        ("d.csv", 'question,answer\n"a,b\n', "line 2", "not CSV"),
    ],
)
def test_a_bad_row_is_named_by_its_place(
    tmp_path: Path, name: str, content: str, place: str, words: str
) -> None:
    path = tmp_path / name
    path.write_text(content)
    diagnostic = found(path, Columns())
    assert diagnostic.code == "E0706"
    assert diagnostic.where is not None
    assert diagnostic.where.endswith(place)
    assert words in diagnostic.message


@pytest.mark.parametrize("name", ["d.csv", "d.jsonl", "d.json"])
def test_bytes_that_are_no_text_are_refused(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    path.write_bytes(b"question,answer\n\xff\xfe,b\n")
    diagnostic = found(path, Columns())
    assert diagnostic.code == "E0706"
    assert "UTF-8" in diagnostic.message


@pytest.mark.parametrize("damage", ["empty", "short", "noise"])
def test_a_damaged_parquet_file_is_refused(tmp_path: Path, damage: str) -> None:
    path = write(tmp_path, "parquet")
    content = path.read_bytes()
    noise = b"PAR1" + bytes(range(256)) * 4 + b"PAR1"
    path.write_bytes({"empty": b"", "short": content[: len(content) // 2], "noise": noise}[damage])
    assert found(path).code == "E0706"


def outcome(path: Path) -> str:
    try:
        read_questions(path, MAPPED)
    except Problem as problem:
        return problem.diagnostics[0].code
    return "read"


def test_every_flipped_byte_of_a_parquet_file_is_read_or_refused(tmp_path: Path) -> None:
    path = write(tmp_path, "parquet")
    content = bytearray(path.read_bytes())
    outcomes = set()
    for place in range(0, len(content), 7):
        path.write_bytes(
            bytes(content[:place]) + bytes([content[place] ^ 0x5A]) + bytes(content[place + 1 :])
        )
        outcomes.add(outcome(path))
    assert outcomes <= {"read", "E0701", "E0706"}
    assert len(outcomes) > 1


def test_a_parquet_file_that_unpacks_without_end_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "d.parquet"
    pl.DataFrame({"problem": ["x" * 10_000] * 500, "solution": ["1"] * 500}).write_parquet(path)
    monkeypatch.setattr(files, "LARGEST_FILE", 100_000)
    assert path.stat().st_size < 100_000
    assert "bytes of text" in found(path).message
    monkeypatch.setattr(files, "MOST_ROWS", 100)
    assert "500 rows" in found(path).message


def test_a_parquet_column_of_numbers_becomes_text(tmp_path: Path) -> None:
    path = tmp_path / "d.parquet"
    pl.DataFrame({"question": ["a"], "answer": [5]}).write_parquet(path)
    assert read_questions(path, Columns())["answer"].to_list() == ["5"]


def test_what_is_no_plain_file_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pipe = tmp_path / "pipe.csv"
    os.mkfifo(pipe)
    folder = tmp_path / "folder.csv"
    folder.mkdir()
    large = tmp_path / "large.csv"
    large.write_text("question,answer\n1,2\n")
    monkeypatch.setattr(files, "LARGEST_FILE", 5)
    for path in (pipe, folder, large, tmp_path / "none.csv", tmp_path / "a.xlsx", tmp_path / "nul\0.csv"):
        diagnostic = file_problem(path)
        assert diagnostic is not None
        assert diagnostic.code == "E0706"
        assert diagnostic.help
