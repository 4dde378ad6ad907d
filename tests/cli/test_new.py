"""`reodsl new`: a file that checks and is laid out; one that is there is never touched."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from reodsl.cli.main import main
from reodsl.start import MODELS


@pytest.fixture(autouse=True)
def _folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def test_what_it_writes_checks_and_is_laid_out(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["new", "deep/er/mine_too.reo", "--method", "mrt", "--model", "qwen3_4b"]) == 0
    assert "reodsl plan deep/er/mine_too.reo" in capsys.readouterr().out
    assert main(["check", "deep/er/mine_too.reo"]) == 0
    assert main(["fmt", "--check", "deep"]) == 0
    assert "study mine_too {" in Path("deep/er/mine_too.reo").read_text()


def test_the_quickstart_is_the_one_of_the_readme(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["new", "--quickstart"]) == 0
    assert "next: reodsl run quickstart.reo" in capsys.readouterr().out
    shown = Path(__file__).parents[2] / "specs" / "quickstart.reo"
    assert Path("quickstart.reo").read_text() == shown.read_text()
    assert main(["new", "--quickstart"]) == 1
    assert main(["new", "-", "--quickstart"]) == 0
    assert capsys.readouterr().out == shown.read_text()


def test_it_overwrites_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    Path("mine.reo").write_text("work")
    assert main(["new", "mine.reo"]) == 1
    assert "error[E0118]: this file exists already" in capsys.readouterr().err
    assert Path("mine.reo").read_text() == "work"
    Path("link.reo").symlink_to("mine.reo")
    assert main(["new", "link.reo"]) == 1
    assert Path("mine.reo").read_text() == "work"


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["mine"], "write `mine.reo`"),
        ([], "name the FILE"),
        (["mine.reo", "--method", "mrtt"], "did you mean `mrt`?"),
        (["mine.reo", "--method", "GRPO"], "did you mean `vanilla`?"),
        (["mine.reo", "--model", "gpt"], "`reodsl new --list` shows them"),
        (["--quickstart", "--method", "mrt"], "leave out --method and --model"),
        (["mine.reo", "--json"], "--json goes with --list"),
        (["a.reo/mine.reo"], "not a folder"),
        (["a.reo/mine.reo"], "help: name a file in another folder"),
        ([""], "write `mine.reo`"),
        ([".reo"], "write `mine.reo`"),
    ],
)
def test_wrong_use(arguments: list[str], words: str, capsys: pytest.CaptureFixture[str]) -> None:
    Path("a.reo").write_text("")
    assert main(["new", *arguments]) == 1
    assert words in capsys.readouterr().err
    assert not Path("mine.reo").exists()


def test_the_list_holds_every_choice(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["new", "--list"]) == 0
    text = capsys.readouterr().out
    assert main(["new", "--list", "--json"]) == 0
    facts = json.loads(capsys.readouterr().out)
    assert (list(facts["methods"]), list(facts["models"])) == (
        list(MODELS["miniature"].methods),
        list(MODELS),
    )
    for name, doc in {**facts["methods"], **facts["models"]}.items():
        assert name in text
        assert doc in text


def test_to_standard_output(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["new", "-", "--method", "reo"]) == 0
    text = capsys.readouterr().out
    assert text.startswith('"""REO-RL')
    assert list(Path().iterdir()) == []
