"""The questions table: mapping, missing columns, empty rows, duplicates, ids."""

from __future__ import annotations

import polars as pl
import pytest

from reodsl.diagnostics import Diagnostic, Problem
from reodsl.ir.data import Columns, normal_question
from runners.data.table import question_id, questions_table, require_filled, require_names, settle_duplicates
from runners.grade import SEPARATOR

MAPPED = Columns(question="problem", answer="solution")


def only(caught: pytest.ExceptionInfo[Problem]) -> Diagnostic:
    (found,) = caught.value.diagnostics
    return found


def test_columns_are_mapped_and_made_text() -> None:
    frame = pl.DataFrame({"problem": ["1+1", "2+2"], "solution": [2, 4], "level": [1, 2]})
    table = questions_table(frame, MAPPED, "f")
    assert table.columns == ["id", "question", "answer"]
    assert table["answer"].to_list() == ["2", "4"]
    assert table["id"].to_list() == [question_id("1+1"), question_id("2+2")]


def test_given_ids_and_traces_are_kept() -> None:
    frame = pl.DataFrame({"question": ["a"], "answer": ["b"], "work": ["w"], "number": [7]})
    table = questions_table(frame, Columns(trace="work", id="number"), "f")
    assert table.rows(named=True) == [{"id": "7", "question": "a", "answer": "b", "trace": "w"}]


def test_a_missing_column_says_what_there_is_and_how_to_map_it() -> None:
    with pytest.raises(Problem) as caught:
        questions_table(pl.DataFrame({"questions": ["a"], "solution": ["b"]}), Columns(), "data.csv")
    found = only(caught)
    assert found.code == "E0701"
    assert "`question`, `answer`" in found.message
    assert found.where == "data.csv"
    assert "`questions`, `solution`" in found.notes[0]
    assert any("did you mean `questions`" in note for note in found.notes)
    assert found.help is not None
    assert "columns: columns(question:" in found.help


def test_a_list_of_answers_is_several_right_ones() -> None:
    frame = pl.DataFrame({"question": ["a", "b", "c"], "answer": [["1", "2", "1"], ["3"], []]})
    table = questions_table(frame, Columns(), "f")
    assert table["answer"].to_list() == [f"1{SEPARATOR}2", "3", ""]


def test_a_column_of_lists_is_refused() -> None:
    with pytest.raises(Problem) as caught:
        questions_table(pl.DataFrame({"question": ["a"], "answer": [[1]]}), Columns(), "f")
    assert only(caught).code == "E0701"


@pytest.mark.parametrize("empty", ["", "  \n", None])
def test_rows_without_an_answer_are_named(empty: str | None) -> None:
    table = pl.DataFrame({"id": list("abc"), "question": list("xyz"), "answer": ["1", empty, "3"]})
    with pytest.raises(Problem) as caught:
        require_filled(table, "f")
    found = only(caught)
    assert (found.code, found.where) == ("E0704", "f, row 2")
    assert found.message == "1 of 3 rows have no answer"


def test_no_rows_at_all_is_a_problem() -> None:
    with pytest.raises(Problem) as caught:
        require_filled(
            pl.DataFrame(schema={"id": pl.String, "question": pl.String, "answer": pl.String}), "f"
        )
    assert only(caught).code == "E0704"


REPEATED = pl.DataFrame(
    {"id": list("abcd"), "question": ["What is 1+1?", "x", "what  is １+1?\n", "x"], "answer": list("2123")}
)


def test_duplicates_are_counted_and_shown() -> None:
    with pytest.raises(Problem) as caught:
        settle_duplicates(REPEATED, "error", "f")
    found = only(caught)
    assert found.code == "E0705"
    assert found.message == "2 of 4 questions are duplicates"
    assert found.notes[0].startswith("row 3 repeats row 1: what is")


def test_the_first_of_each_duplicate_is_kept() -> None:
    assert settle_duplicates(REPEATED, "drop", "f")["id"].to_list() == ["a", "b"]


def test_a_question_may_have_several_solutions() -> None:
    table = REPEATED.with_columns(trace=pl.Series(["s", "t", "u", "t"]))
    assert settle_duplicates(table, "drop", "f")["id"].to_list() == ["a", "b", "c"]


def test_many_duplicates_are_shown_in_part() -> None:
    table = pl.DataFrame({"id": ["a"] * 100, "question": ["q" * 500] * 100, "answer": ["1"] * 100})
    with pytest.raises(Problem) as caught:
        settle_duplicates(table, "error", "f")
    found = only(caught)
    assert found.notes[-1] == "and 94 more"
    assert max(len(note) for note in found.notes) < 120


def test_an_id_is_of_one_question() -> None:
    table = pl.DataFrame({"id": list("abab"), "question": ["x", "y", " X", "z"], "answer": list("1234")})
    with pytest.raises(Problem) as caught:
        require_names(table, "f")
    found = only(caught)
    assert (found.code, found.message) == ("E0705", "1 of 2 ids belong to several questions")
    assert found.notes == ("`b`: row 2, y; row 4, z",)
    require_names(table.head(3), "f")


def test_sign_and_digit_matter_to_a_question() -> None:
    assert normal_question("2 +4") != normal_question("2 -4")
    assert normal_question(" A\u00a0b ") == "a b"
