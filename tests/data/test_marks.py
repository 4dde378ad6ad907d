"""Marks around questions: taken off from outside to inside, ids and duplicates by what is left, useless ones warned of."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import polars as pl
import pytest

from reodsl.diagnostics import Problem
from reodsl.graph.lower import lower
from reodsl.ir import canonical_json
from reodsl.ir.data import Columns, Data, File, Marks
from reodsl.language import compile_file
from runners.data.load import file_problems, load_data, strip_marks
from runners.data.table import question_id

CHAT = Marks(before="<｜User｜>", after="<｜Assistant｜><think>")
BOXED = Marks(after="Reason step by step.")


def write(folder: Path, *rows: tuple[str, str, str], name: str = "d.parquet") -> None:
    frame = pl.DataFrame(rows, schema=["id", "question", "answer"], orient="row")
    frame.write_parquet(folder / name)


def load(folder: Path, *marks: Marks, id_: str | None = None, **settings: str) -> pl.DataFrame:
    files = [File(path=path.name, columns=Columns(id=id_)) for path in sorted(folder.glob("*.parquet"))]
    return load_data(Data.model_validate({"name": "d", "sources": files, "strip": marks, **settings}), folder)


@pytest.mark.parametrize(
    ("question", "left"),
    [
        ("<｜User｜>\nHow many? Reason step by step.<｜Assistant｜><think>\n", "How many?"),
        (" <｜User｜> How many?\n<｜Assistant｜><think>", "How many?"),
        ("How many?\nReason step by step.", "How many?"),
        ("How many?", "How many?"),
        ("Is <｜User｜> a mark? Reason step by step. Or not.", "Is <｜User｜> a mark? Reason step by step. Or not."),
    ],
)  # fmt: skip
def test_marks_are_taken_off_the_ends_and_nothing_else(question: str, left: str) -> None:
    assert strip_marks(question, (CHAT, BOXED)) == left
    assert strip_marks(question, ()) == question


def test_ids_are_made_from_what_is_left_unless_the_data_has_its_own(tmp_path: Path) -> None:
    write(tmp_path, ("a", "<｜User｜>How many?<｜Assistant｜><think>\n", "2"))
    assert load(tmp_path, CHAT).rows() == [(question_id("How many?"), "How many?", "2")]
    assert load(tmp_path, CHAT, id_="id")["id"].to_list() == ["a"]


def test_a_question_of_marks_alone_is_an_empty_one(tmp_path: Path) -> None:
    write(tmp_path, ("a", "<｜User｜><｜Assistant｜><think>", "2"))
    with pytest.raises(Problem) as caught:
        load(tmp_path, CHAT)
    assert caught.value.diagnostics[0].code == "E0704"


@pytest.mark.parametrize("marks", [(), (CHAT,)])
def test_doubled_questions_are_seen_through_marks_stripped_or_not(
    tmp_path: Path, marks: tuple[Marks, ...]
) -> None:
    write(tmp_path, ("a", "How many?", "2"), ("b", "Why?", "x"), name="bare.parquet")
    write(tmp_path, ("a", "<｜User｜>How  MANY?<｜Assistant｜><think>\n", "2"), name="marked.parquet")
    with pytest.raises(Problem) as caught:
        load(tmp_path, *marks)
    assert caught.value.diagnostics[0].code == "E0705"
    kept = load(tmp_path, *marks, id_="id", duplicates="drop")
    assert kept["question"].to_list() == ["How many?", "Why?"]
    # One name for two spellings of one question is not a clash; for two questions it is.
    write(tmp_path, ("a", "<｜User｜>Who?<｜Assistant｜><think>\n", "y"), name="marked.parquet")
    with pytest.raises(Problem) as caught:
        load(tmp_path, *marks, id_="id", duplicates="drop")
    assert caught.value.diagnostics[0].code == "E0705"


def test_marks_that_no_question_has_are_warned_of(tmp_path: Path, refusal: Callable[..., None]) -> None:
    write(tmp_path, ("a", "<｜User｜>How many?<｜Assistant｜>", "2"), ("b", "<｜User｜>Why?", "x"))
    source = File(path="d.parquet")

    def found(*marks: Marks) -> list[str]:
        declared = Data(name="d", sources=(source,), strip=marks)
        return [f"{each.code} {each.message}" for each in file_problems(declared, tmp_path)]

    assert found(Marks(before="<｜User｜>", after="<｜Assistant｜>")) == []
    assert found() == []
    (one,) = file_problems(Data(name="d", sources=(source,), strip=(Marks(before="<|User|>"),)), tmp_path)
    assert one.code == "W0715"
    assert one.severity == "warning"
    refusal("runs/W0715.txt", Problem(one))
    # What is inside is only seen once the outer marks are off.
    assert found(Marks(before="<｜User｜>"), Marks(after="<｜Assistant｜>")) == []
    assert found(Marks(after="many?")) != []
    assert found(Marks(after="<｜Assistant｜>"), Marks(after="many?")) == []


SPEC = """
from std.models import qwen3_4b
from std.recipes import ppo
from std.rewards import outcome
from std.suites import math_reg

data mine { source = file("d.jsonl")STRIP }

experiment tried = ppo {
  base   = qwen3_4b
  data   = mine
  reward = outcome
  steps  = 4 steps
  eval   = math_reg
}
"""


def payload(folder: Path, strip: str) -> str:
    (folder / "spec.reo").write_text(SPEC.replace("STRIP", strip))
    compiled = compile_file(folder / "spec.reo")
    assert compiled.spec is not None, compiled.diagnostics
    return canonical_json(lower(compiled.spec)["mine.data"].payload)


def test_what_is_stripped_is_part_of_the_datas_identity_and_nothing_stripped_is_none(tmp_path: Path) -> None:
    bare = payload(tmp_path, "")
    assert "strip" not in bare
    one = payload(tmp_path, ', strip = marks(before: "Q:")')
    other = payload(tmp_path, ', strip = [marks(before: "Q:", after: "A:")]')
    assert len({bare, one, other}) == 3


def test_marks_of_nothing_are_refused(tmp_path: Path) -> None:
    (tmp_path / "spec.reo").write_text(SPEC.replace("STRIP", ", strip = marks()"))
    found = compile_file(tmp_path / "spec.reo").diagnostics
    assert [each.code for each in found if each.severity == "error"] == ["E0310"]
