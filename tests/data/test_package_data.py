"""Questions of a package: made, stored as JSON, scored by the package itself in a worker; all else refused."""

from __future__ import annotations

import json
import sys
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from reodsl.diagnostics import Problem
from reodsl.ir.data import Data, PackageData
from runners.data.load import load_data
from runners.data.package import package_problem, read_package
from runners.grade import Claim, PooledVerifier

GYM = '''
"""A stand-in for reasoning-gym with two tasks: a sum, and one whose entries need tuples."""


class Sums:
    def __init__(self, name, size, seed, small=False, step=1, names=(), style=""):
        self.name, self.size, self.seed, self.small, self.step = name, size, seed, small, step
        self.names = names

    def __getitem__(self, index):
        index = index % 3 if self.small else index * self.step
        total = self.seed + index
        answer = None if self.name in ("open", "named") else str(total)
        told = {"sum": (total,) if self.name == "tuples" else total, "expression": f"{self.seed} + {index}"}
        if self.name == "objects":
            told["object"] = object
        return {"question": f"What is {self.seed} + {index}?", "answer": answer, "metadata": told}

    def score_answer(self, answer, entry):
        if self.name == "named":
            return float(answer in self.names)
        if self.name == "objects" and entry["metadata"]["object"] is not object:
            return 0.0
        kept = entry["metadata"]["sum"]
        if self.name == "tuples" and not isinstance(kept, tuple):
            return 0.0
        return 1.0 if str(kept if self.name != "tuples" else kept[0]) == answer else 0.05


def create_dataset(name, size, seed, **config):
    if name not in ("sums", "tuples", "open", "objects", "named"):
        raise ValueError(f"Dataset '{name}' not registered")
    return Sums(name, size, seed, **config)
'''


@pytest.fixture
def gym(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    (tmp_path / "reasoning_gym.py").write_text(GYM)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    for name in [name for name in sys.modules if name.partition(".")[0] == "reasoning_gym"]:
        monkeypatch.delitem(sys.modules, name)
    yield
    sys.modules.pop("reasoning_gym", None)


def source(**change: Any) -> PackageData:
    return PackageData.model_validate(
        {"package": "reasoning_gym", "task": "sums", "count": 3, "seed": 40, **change}
    )


def message(declaration: PackageData) -> str:
    with pytest.raises(Problem) as caught:
        read_package(declaration)
    (found,) = caught.value.diagnostics
    assert found.code == "E0709"
    return found.message


@pytest.mark.usefixtures("gym")
def test_questions_carry_what_their_scorer_needs() -> None:
    table = read_package(source(package="reasoning-gym"))
    assert table["question"].to_list() == ["What is 40 + 0?", "What is 40 + 1?", "What is 40 + 2?"]
    assert table["answer"].to_list() == ["40", "41", "42"]
    assert json.loads(table["meta"][2]) == {
        "task": "sums",
        "entry": {
            "question": "What is 40 + 2?",
            "answer": "42",
            "metadata": {"sum": 42, "expression": "40 + 2"},
        },
    }


@pytest.mark.usefixtures("gym")
def test_the_package_scores_answers_in_a_worker() -> None:
    table = read_package(source())
    verifier = PooledVerifier("reasoning_gym", 1, 5.0, 1024, fast=False)
    try:
        graded = verifier.grade(
            [
                Claim(text, gold, meta)
                for text in ("41", "7")
                for gold, meta in table.select("answer", "meta").iter_rows()
            ]
        )
        assert [v.correct for v in graded] == [False, True, False, False, False, False]
        assert {v.status for v in graded} == {"checked"}
        assert [v.status for v in verifier.grade([Claim("41", "41", "no json")])] == ["failed"]
    finally:
        verifier.close()


@pytest.mark.usefixtures("gym")
def test_a_question_without_one_right_answer_is_kept(tmp_path: Path) -> None:
    table = load_data(Data(name="d", sources=(source(task="open"),), verifier="package"), tmp_path)
    assert table["answer"].to_list() == ["", "", ""]


@pytest.mark.usefixtures("gym")
def test_a_task_whose_entries_need_tuples_keeps_them() -> None:
    table = read_package(source(task="tuples"))
    verifier = PooledVerifier("reasoning_gym", 1, 5.0, 1024, fast=False)
    try:
        answers = [Claim(text, "40", table["meta"][0]) for text in ("40", "41")]
        assert [v.correct for v in verifier.grade(answers)] == [True, False]
    finally:
        verifier.close()


@pytest.mark.usefixtures("gym")
def test_a_task_that_json_cannot_hold_is_refused() -> None:
    assert "stored as JSON" in message(source(task="objects"))


@pytest.mark.usefixtures("gym")
def test_options_are_json_and_scorers_get_them() -> None:
    table = read_package(
        source(task="named", options=('names=["a", "b"]', "style = plain word", "step=2", "small=false"))
    )
    assert json.loads(table["meta"][0])["options"] == {
        "names": ["a", "b"],
        "style": "plain word",
        "step": 2,
        "small": False,
    }
    verifier = PooledVerifier("reasoning_gym", 1, 5.0, 1024, fast=False)
    try:
        asked = [Claim(text, "", table["meta"][0]) for text in ("a", "c")]
        assert [v.correct for v in verifier.grade(asked)] == [True, False]
    finally:
        verifier.close()
    for option in ("names=[1", "x=a;b", "size=3"):
        assert "is not an option" in message(source(task="named", options=(option,)))


HEAVY_COMPOSITE = (
    'datasets=[{"name": "chain_sum", "weight": 2}, {"name": "countdown", "config": {"min_numbers": 3}}]'
)


@pytest.mark.heavy
def test_every_data_set_of_the_pinned_package_is_there_and_its_scorer_takes_its_answers() -> None:
    names = sorted(pytest.importorskip("reasoning_gym.factory").DATASETS)
    assert len(names) >= 100
    answers = []
    for name in names:
        options = (HEAVY_COMPOSITE,) if name == "composite" else ()
        table = read_package(
            PackageData(package="reasoning-gym", task=name, count=2, seed=1, options=options)
        )
        answers += [Claim(text, text, meta) for text, meta in table.select("answer", "meta").rows() if text]
    verifier = PooledVerifier("reasoning_gym", 2, 30.0, 1024, fast=False)
    try:
        assert [
            a.meta[:40] for a, v in zip(answers, verifier.grade(answers), strict=True) if not v.correct
        ] == []
    finally:
        verifier.close()


@pytest.mark.usefixtures("gym")
def test_an_unknown_task_is_refused() -> None:
    assert "not registered" in message(source(task="none"))
    assert "not the name of a task" in message(source(task="os; import"))


def test_no_other_package_is_imported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "trap", types.ModuleType("trap"))
    assert "not a package that generates questions" in message(source(package="trap"))


def test_a_package_that_is_not_installed_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("runners.data.package.importlib.util.find_spec", lambda name: None)
    found = package_problem(source())
    assert found is not None
    assert found.help == "install it with `pip install reasoning-gym`"
