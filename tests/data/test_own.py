"""Questions of a function of the user's: distinct, of one side of the split, the first ones whatever the number."""

from __future__ import annotations

from pathlib import Path

import pytest

from reodsl.diagnostics import Problem
from reodsl.graph.job import Resources
from reodsl.ir.data import Data, Python, TaskData
from reodsl.store.consent import read_code
from runners.data.draws import split_of
from runners.data.load import load_data, read_sources
from runners.sandbox import lacking

TASK = """from reodsl.own import Question

def make(random):
    a = random.randrange(40)
    return Question(f"{a} + 1?", str(a + 1), trace="so")
"""


def data(count: int, split: str = "train") -> Data:
    source = TaskData(task=Python(function="tasks.py:make"), count=count, seed=5, split=split)  # type: ignore[arg-type]
    return Data(name="own", sources=(source,), verifier="exact")


@pytest.fixture
def resources(tmp_path: Path) -> Resources:
    (tmp_path / "tasks.py").write_text(TASK)
    allowed = read_code("tasks.py:make", tmp_path).checksum
    return Resources(confined=lacking() is None, python=frozenset({allowed}))


def test_questions_are_distinct_and_on_their_side(tmp_path: Path, resources: Resources) -> None:
    (few,) = read_sources(data(8), tmp_path, resources)
    (more,) = read_sources(data(20), tmp_path, resources)
    (held,) = read_sources(data(3, "held_out"), tmp_path, resources)
    assert few["question"].to_list() == more["question"].to_list()[:8]
    assert more["question"].n_unique() == 20
    assert {split_of(text) for text in more["question"]} == {"train"}
    assert {split_of(text) for text in held["question"]} == {"held_out"}
    assert more.columns == ["id", "question", "answer", "trace"]
    assert [eval(text[:-1]) for text in more["question"]] == [int(answer) for answer in more["answer"]]


def test_too_few_questions_are_told(tmp_path: Path, resources: Resources) -> None:
    with pytest.raises(Problem) as caught:
        read_sources(data(60), tmp_path, resources)
    (told,) = caught.value.diagnostics
    assert (told.code, told.where) == ("E0711", "tasks.py:make")


def test_nothing_runs_that_was_not_allowed(tmp_path: Path, resources: Resources) -> None:
    with pytest.raises(Problem) as caught:
        load_data(data(2), tmp_path)
    assert caught.value.diagnostics[0].code == "E0746"
