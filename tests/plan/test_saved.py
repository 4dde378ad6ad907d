"""Saved plans: run as they were looked at, refused with what moved, and gone on with after an interruption."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.called import QUICKSTART as SPEC
from tests.called import beside_quickstart, call
from tests.execute import toys

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with the quickstart in it and a saved plan of it, to be run with toys."""
    beside_quickstart(tmp_path, toys.RUNNERS, monkeypatch)
    assert call("plan", SPEC, "--out", "plans/plan.json") == 2
    return tmp_path


def edit(place: Path, old: str, new: str) -> None:
    text = (place / SPEC).read_text()
    assert old in text
    (place / SPEC).write_text(text.replace(old, new))


def store(place: Path) -> Path:
    """The store that the saved plan names."""
    saved = json.loads((place / "plans" / "plan.json").read_text())
    return place / "plans" / str(saved["request"]["store"])


def run() -> int:
    return call("run", "plans/plan.json", "--local", "--quiet")


def test_a_plan_is_run_as_it_was_looked_at(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run() == 0
    assert "report: " in capsys.readouterr().out
    saved = json.loads((place / "plans" / "plan.json").read_text())
    assert set(toys.log(place)) == {task["id"] for task in saved["tasks"]}


def test_a_plan_keeps_its_settings_and_its_store(place: Path) -> None:
    arguments = ("--set", "n=3", "--amend", "reo_exp.epochs=2", "--store", "elsewhere")
    assert call("plan", SPEC, *arguments, "--out", "plans/plan.json") == 2
    assert run() == 0
    assert store(place).resolve() == place / "elsewhere"
    assert (place / "elsewhere" / "format").is_file()
    assert call("plan", SPEC, *arguments) == 0


def test_a_changed_setting_is_told_with_its_line(
    place: Path, capsys: pytest.CaptureFixture[str], refusal: Callable[..., None]
) -> None:
    edit(place, "lr = 5e-4", "lr = 1e-4")
    assert run() == 1
    err = capsys.readouterr().err
    refusal("commands/E0966.txt", err)
    assert toys.log(place) == []
    assert not store(place).exists()


def test_a_comment_and_a_touch_are_no_change(place: Path) -> None:
    edit(place, '"""The paper', '# looked at\n"""The paper')
    assert run() == 0


def test_an_arm_that_went_is_told(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    edit(place, "  arm shrink_64  = checkpoint(shrink.stages[64 tokens])\n", "")
    edit(place, ", shrink_64]", "]")
    assert run() == 1
    assert "shrink_64 is no longer an arm" in capsys.readouterr().err


def test_work_done_since_is_no_change(place: Path) -> None:
    assert call("run", SPEC, "--local", "--quiet") == 0
    assert run() == 0
    assert len(toys.log(place)) == len(set(toys.log(place)))


def test_an_interrupted_run_of_a_plan_goes_on(place: Path) -> None:
    (place / "knobs.json").write_text('{"reo_exp.train.s1": {"fail": "problem"}}')
    assert run() == 1
    (place / "knobs.json").unlink()
    assert run() == 0


def test_a_result_that_was_to_be_reused_and_is_gone_is_told(
    place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run()
    assert call("plan", SPEC, "--amend", "reo_exp.epochs=2", "--out", "plans/plan.json") == 2
    found = json.loads((place / "plans" / "plan.json").read_text())
    key = next(task["key"] for task in found["tasks"] if task["id"] == "vanilla.train.s1")
    folder = store(place) / "objects" / key[:2] / key
    (folder / "manifest.json").unlink()
    assert run() == 1
    assert "vanilla.train.s1: reuse -> run, its result is damaged" in capsys.readouterr().err


def test_code_that_changed_is_told(
    place: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from reodsl.graph.task import VERSIONS

    run()
    call("plan", SPEC, "--amend", "reo_exp.epochs=2", "--out", "plans/plan.json")
    monkeypatch.setitem(VERSIONS, "model", VERSIONS["model"] + 1)
    assert run() == 1
    assert "chain_model.model.s1: reuse -> rerun, its code changed" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("{", "it is not JSON"),
        ("{}", "it has no `format`, where a plan's is 'reodsl plan 1'"),
        ('{"format": "reodsl plan 99"}', "its `format` is 'reodsl plan 99'"),
        ('{"format": "reodsl plan 1"}', "it has no `request`"),
        ('{"format": "reodsl plan 1", "request": []}', ""),
        ('  {"a": [1', "it is not JSON"),
        ('{"a":' * 10_000, "it is nested too deeply"),
    ],
)
def test_what_is_no_plan_is_refused(
    place: Path, text: str, words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (place / "plans" / "plan.json").write_text(text)
    assert run() == 1
    err = capsys.readouterr().err
    assert "error[E0967]" in err
    assert words in err


def test_a_plan_leaves_nothing_else_to_choose(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for extra in (("--set", "n=3"), ("--amend", "reo_exp.epochs=2"), ("--store", "x"), ("--target", "base")):
        assert call("run", "plans/plan.json", "--local", *extra) == 1
        assert "a saved plan has its own settings" in capsys.readouterr().err
