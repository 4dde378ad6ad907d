"""Stores and other places on the command line: where a store is looked for, what is told of it, and empty names."""

from __future__ import annotations

from pathlib import Path

import pytest

from reodsl.cli.prepare import prepare
from reodsl.store.store import Store, find_store
from tests.called import call


@pytest.fixture(autouse=True)
def _folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def test_one_and_several_leftovers_are_counted_in_words(capsys: pytest.CaptureFixture[str]) -> None:
    store = Store(Path("specs/.reodsl")).open()
    for number, words in ((1, "     1 leftover  "), (2, "     2 leftovers  ")):
        (store.root / "tmp" / f"half.{number}").mkdir()
        assert call("gc", "--dry-run") == 2
        assert capsys.readouterr().out.startswith(words)


def test_without_a_spec_the_only_store_below_is_meant(capsys: pytest.CaptureFixture[str]) -> None:
    Store(Path("specs/.reodsl")).open()
    assert call("ls") == 0
    assert capsys.readouterr().out == "No runs yet.\n"
    Store(Path("other/.reodsl")).open()
    assert call("ls") == 1
    assert "there are several stores: other/.reodsl, specs/.reodsl" in capsys.readouterr().err
    for name in ("ls", "gc", "report"):
        assert call(name, "--help") == 0
        assert "the only one below it" in " ".join(capsys.readouterr().out.split())


@pytest.mark.parametrize(
    "arguments",
    [
        ["ls", "--store", ""],
        ["report", "mine", "--out", ""],
        ["run", "mine.reo", "--out", ""],
        ["frontier", "curves.json", "--out", ""],
    ],
)
def test_a_variable_that_is_not_set_is_not_this_folder(
    arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    Store(Path()).open()
    assert call(*arguments) == 1
    assert "the path is empty; write `.` for this folder" in capsys.readouterr().err
    assert call("ls", "--store", ".") == 0


def test_specs_of_a_project_share_the_nearest_store_above_them(monkeypatch: pytest.MonkeyPatch) -> None:
    folder = Path("project/specs/mine").resolve()
    folder.mkdir(parents=True)
    assert find_store(folder) == folder / ".reodsl"
    above = Store(folder.parents[1] / ".reodsl").open()
    assert find_store(folder) == above.root
    for name in (folder / "one.reo", folder.parents[1] / "two.reo"):
        assert call("new", "--quickstart", str(name)) == 0
        assert prepare(str(name), (), (), None, None).store.root == above.root
    monkeypatch.chdir(folder)
    assert call("ls") == 0
    beside = Store(folder / ".reodsl").open()
    assert find_store(folder) == beside.root


def test_a_store_of_somebody_else_above_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    folder = Path("shared/mine").resolve()
    folder.mkdir(parents=True)
    Store(folder.parent / ".reodsl").open()
    monkeypatch.setattr("os.getuid", lambda: -1)
    assert find_store(folder) == folder / ".reodsl"
