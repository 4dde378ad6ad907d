"""The tutorial of docs/BASELINES.md, followed from its empty file: each command does what the page says."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import polars as pl
import pytest

from reodsl.cli.main import main
from reodsl.language import check_file
from tests.specs.test_miniature import short_form

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "BASELINES.md").read_text().split("## A new one, from an empty file")[1]
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


@pytest.fixture
def blocks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, str]]:
    """The page's blocks as (kind, text), in a folder that has the specs and the first block as `mine.reo`."""
    monkeypatch.chdir(tmp_path)
    shutil.copytree(ROOT / "specs", "specs")
    found = [(kind, text) for kind, text in BLOCK.findall(PAGE)]
    assert [kind for kind, _ in found[:3]] == ["reo", "sh", "text"]
    Path("mine.reo").write_text(found[0][1])
    return found


def commands(text: str) -> dict[str, list[str]]:
    lines = [line.split("#")[0].split()[1:] for line in text.splitlines()]
    return {line[0]: line for line in lines}


def code(arguments: list[str]) -> int:
    """The exit code of a command: 2 is work, or a difference."""
    try:
        return main(arguments)
    except SystemExit as caught:
        return int(str(caught.code))


def test_the_commands_before_the_run(
    blocks: list[tuple[str, str]], capsys: pytest.CaptureFixture[str]
) -> None:
    steps = commands(blocks[1][1])
    assert list(steps) == ["check", "plan", "diff", "run"]
    assert code(["fmt", "--check", "mine.reo"]) == 0
    assert code(steps["check"]) == 0
    assert capsys.readouterr().out == "mine.reo: ok\n"
    assert code(steps["plan"]) == 2
    assert "mine.train" in capsys.readouterr().out
    assert code(steps["diff"]) == 2
    assert "Shared work" in capsys.readouterr().out
    assert steps["run"] == ["run", "mine.reo"]


def test_the_run_in_short(blocks: list[tuple[str, str]], tmp_path: Path) -> None:
    root = tmp_path / "root"
    root.mkdir()
    small = {"mine.batch.prompts": "2", "mine.batch.rollouts": "4"}
    _, folders = short_form(Path("mine.reo"), root, steps=2, amends=small)
    (folder,) = (own for name, own in folders.items() if name.startswith("mine.train"))
    assert pl.read_parquet(folder / "rollouts.parquet")["reward"].is_between(-0.5, 1).all()


@pytest.mark.heavy
def test_the_run_as_it_is_written(blocks: list[tuple[str, str]]) -> None:
    assert code([*commands(blocks[1][1])["run"], "--local", "--out", "out"]) == 0
    assert set(pl.read_parquet("out/tables/main.parquet")["arm"]) == {"base", "mine"}


def test_the_study_beside_others(blocks: list[tuple[str, str]]) -> None:
    Path("beside.reo").write_text(blocks[2][1])
    assert check_file("beside.reo").diagnostics == ()
    assert code(["plan", "beside.reo"]) == 2
