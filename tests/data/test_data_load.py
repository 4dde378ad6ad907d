"""From a data declaration to its table: sources joined and checked, what is missing said before anything runs."""

from __future__ import annotations

import json
from datetime import date
from pathlib import Path

import polars as pl
import pytest

from reodsl.diagnostics import Problem
from reodsl.ir.data import Columns, Data, DataSource, File, HubData, PackageData, TaskData
from reodsl.ir.task import FoldTask, FoldTraces
from runners.data.load import load_data, source_problems

MINIATURE = json.loads(Path(__file__).with_name("fold.json").read_text())
TASK = FoldTask.model_validate(MINIATURE["task"])
TRACES = FoldTraces.model_validate(MINIATURE["traces"])
QUESTIONS = TaskData(task=TASK, count=20, seed=1)
SOLVED = TaskData(task=TASK, count=30, seed=1, traces=TRACES)


def data(*sources: DataSource, **settings: str) -> Data:
    return Data.model_validate({"name": "d", "sources": sources, **settings})


def code(declaration: Data, folder: Path) -> str:
    with pytest.raises(Problem) as caught:
        load_data(declaration, folder)
    return caught.value.diagnostics[0].code


def test_sources_stand_one_after_another(tmp_path: Path) -> None:
    (tmp_path / "q.csv").write_text("question,answer\nWhat is 1 + 1?,2\n")
    table = load_data(data(QUESTIONS, File(path="q.csv")), tmp_path)
    assert table.height == 21
    assert table["question"][20] == "What is 1 + 1?"
    assert table.columns == ["id", "question", "answer", "bare"]
    assert table["bare"].null_count() == 1


def test_a_curriculum_is_two_sources_of_solved_questions(tmp_path: Path) -> None:
    clean = SOLVED.model_copy(update={"task": TASK.model_copy(update={"length": (4, 8)}), "count": 10})
    table = load_data(data(clean, SOLVED), tmp_path)
    assert table.height == 40
    assert "trace" in table.columns


def test_duplicates_across_sources_are_an_error_or_dropped(tmp_path: Path) -> None:
    assert code(data(QUESTIONS, QUESTIONS), tmp_path) == "E0705"
    assert load_data(data(QUESTIONS, QUESTIONS, duplicates="drop"), tmp_path).height == 20


@pytest.mark.parametrize("duplicates", ["error", "drop"])
def test_files_that_both_number_from_one_are_an_error_unless_ids_are_made(
    tmp_path: Path, duplicates: str
) -> None:
    (tmp_path / "one.csv").write_text("id,question,answer\n1,a,2\n2,b,3\n")
    (tmp_path / "two.csv").write_text("id,question,answer\n1,c,2\n")
    named, made = Columns(id="id"), Columns()
    files = ("one.csv", "two.csv")
    both = [File(path=path, columns=named) for path in files]
    assert code(data(*both, duplicates=duplicates), tmp_path) == "E0705"
    table = load_data(data(*(File(path=path, columns=made) for path in files)), tmp_path)
    assert table["id"].n_unique() == 3


def test_an_empty_file_and_an_empty_answer_are_errors(tmp_path: Path) -> None:
    (tmp_path / "none.csv").write_text("question,answer\n")
    (tmp_path / "hole.csv").write_text("question,answer\na,\n")
    assert code(data(File(path="none.csv")), tmp_path) == "E0704"
    assert code(data(File(path="hole.csv")), tmp_path) == "E0704"


NAN, INFINITY = float("nan"), float("inf")
FORMS: dict[str, tuple[object, ...]] = {
    "jsonl": (None, NAN, INFINITY, -INFINITY, "nan", "NaN", "None", "null", "inf", "<NA>", "", " \t", []),
    "json": (None, NAN, "None", [None, "nan"], [NAN]),
    "csv": ("nan", "NaN", "None", "null", "inf", "-inf", "", " "),
    "parquet": (None, NAN, INFINITY, "nan", "None", "", [NAN], [None], ["null"]),
}


@pytest.mark.parametrize("form", FORMS)
def test_a_reference_that_is_missing_is_so_in_every_form(form: str, tmp_path: Path) -> None:
    """NaN was the answer `NaN` in Parquet, and an error in JSON; a data set of a hub is read as its files are."""
    for absent in FORMS[form]:
        filled = 2.5 if isinstance(absent, float) else ["2.5"] if isinstance(absent, list) else "2.5"
        filled = [2.5] if absent == [NAN] and form == "parquet" else filled
        rows = [{"question": f"What is {n}?", "answer": filled, "more": NAN} for n in range(3)]
        rows[1]["answer"] = absent
        path = tmp_path / "data/o/d" / f"train.{form}"
        path.parent.mkdir(parents=True, exist_ok=True)
        if form == "parquet":
            pl.DataFrame(rows, strict=False).write_parquet(path)
        elif form == "csv":
            pl.DataFrame(rows, strict=False).write_csv(path)
        else:
            path.write_text("\n".join(map(json.dumps, rows)) if form == "jsonl" else json.dumps(rows))
        for source in (File(path=str(path)), HubData(repo="o/d", split="train")):
            with pytest.raises(Problem) as caught:
                load_data(data(source), tmp_path)
            (refusal,) = caught.value.diagnostics
            assert (refusal.code, refusal.message) == ("E0704", "1 of 3 rows have no answer"), absent
            assert refusal.where is not None
            assert refusal.where.endswith("row 2")
            assert not refusal.notes or "which programs write for a missing value" in refusal.notes[0]
    # A field that has a value beside one that has none, and what is known of a question.
    rows[1]["answer"] = filled
    if form == "parquet":
        pl.DataFrame(rows, strict=False).write_parquet(path)
        table = load_data(data(File(path=str(path), columns=Columns(meta=("more",)))), tmp_path)
        assert [json.loads(text) for text in table["meta"]] == [{"more": None}] * 3


def test_dates_that_are_known_of_a_question_are_texts_in_every_form(tmp_path: Path) -> None:
    day, columns = date(2026, 11, 29), Columns(meta=("day",))
    for name, answer in (("flat", "4"), ("nested", ["4"])):
        frame = pl.DataFrame({"question": ["q"], "answer": [answer], "day": [day]})
        frame.write_parquet(tmp_path / f"{name}.parquet")
        table = load_data(data(File(path=f"{name}.parquet", columns=columns)), tmp_path)
        assert json.loads(table["meta"][0]) == {"day": "2026-11-29"}


def test_solved_questions_stand_alone(tmp_path: Path) -> None:
    assert code(data(SOLVED, QUESTIONS), tmp_path) == "E0712"


def test_what_is_missing_is_known_before_reading(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    declaration = data(
        QUESTIONS,
        File(path="none.csv"),
        HubData(repo="owner/none"),
        PackageData(package="os", task="system", count=1, seed=0),
    )
    assert [found.code for found in source_problems(declaration, tmp_path)] == ["E0706", "E0850", "E0709"]
    assert source_problems(data(QUESTIONS), tmp_path) == []
