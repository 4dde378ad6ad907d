"""Questions for programs: drawn with tests that their solutions pass, and told apart by them; columns kept for tests."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from reodsl.diagnostics import Problem
from reodsl.ir.data import Chance, Columns, Data, File, Generated
from reodsl.ir.data import Tests as ByTests
from reodsl.ir.task import Programs
from runners.data.files import read_questions
from runners.data.load import load_data
from runners.data.programs import generate_programs
from runners.draws import split_of
from runners.verify import SEPARATOR


def holds(solution: str, tests: str) -> bool:
    """Whether a solution passes, by running both here: they are this project's own."""
    names: dict[str, Any] = {}
    exec(re.sub(r"^```.*$", "", solution, flags=re.MULTILINE), names)
    try:
        exec("\n".join(tests.split(SEPARATOR)), names)
    except AssertionError:
        return False
    return True


@pytest.mark.parametrize("form", ["block", "line"])
def test_solutions_pass_their_own_tests_and_hardly_any_others(form: Any) -> None:
    table = generate_programs(Programs(steps=(1, 3), form=form), 60, 1, "train")
    rows = table.select("trace", "answer").rows()
    assert all(holds(solution, tests) for solution, tests in rows)
    others = [holds(solution, tests) for solution, _ in rows[:20] for _, tests in rows[20:]]
    assert sum(others) <= 0.01 * len(others)


def test_draws_depend_on_nothing_but_seed_and_number() -> None:
    task = Programs(steps=(1, 2), question="{name}: {steps}", trace="so {solution}")
    few, many = (generate_programs(task, count, 3, "train") for count in (5, 20))
    assert few.equals(many[:5])
    assert not generate_programs(task, 5, 4, "train").equals(few)
    held = generate_programs(task, 20, 3, "held_out")
    assert {split_of(bare) for bare in held["bare"]} == {"held_out"}
    assert not set(held["bare"]) & set(many["bare"])
    assert all(text.startswith("f: ") for text in many["question"])
    assert many["trace"][0].startswith("so ```python\ndef f(x):\n")
    words = Programs(steps=(2, 2), form="line")
    assert re.fullmatch(r"f = lambda x : \( .* \)", generate_programs(words, 1, 1, "train")["trace"][0])


def test_too_few_programs_are_refused() -> None:
    with pytest.raises(Problem) as caught:
        generate_programs(Programs(steps=(1, 1), largest=1), 60, 1, "train")
    assert caught.value.diagnostics[0].code == "E0711"


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


def test_drawn_questions_load(tmp_path: Path) -> None:
    source = Generated(task=Programs(steps=(1, 2)), count=8, seed=1)
    table = load_data(Data(name="d", sources=(source,), verifier=ByTests()), tmp_path)
    assert table.height == 8
    assert set(table.columns) >= {"id", "question", "answer", "bare", "trace"}
