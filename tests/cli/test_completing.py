"""Completion in a shell: files, codes, methods, tasks of the spec before, and runs of the store."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from reodsl.cli.main import cli
from reodsl.ir import Spec
from reodsl.language import compile_file
from reodsl.store import runs
from reodsl.store.store import Store

ROOT = Path(__file__).resolve().parent.parent.parent


def completed(words: str) -> list[str]:
    """What bash is told may stand for the last word, as `plain,NAME` or `file,…`."""
    asked = {
        "COMP_WORDS": f"reodsl {words}",
        "COMP_CWORD": str(len(f"reodsl {words}".split(" ")) - 1),
        "_REODSL_COMPLETE": "bash_complete",
    }
    return CliRunner().invoke(cli, env=asked, prog_name="reodsl").output.split()


@pytest.mark.parametrize(
    ("words", "there"),
    [
        ("expl", "plain,explain"),
        ("explain e040", "plain,E0402"),
        ("new --method hg", "plain,hgpo"),
        ("new --model mini", "plain,miniature"),
        ("why SPEC shrink.e", "plain,shrink.eval.s1"),
        ("accept SPEC edge.f", "plain,edge.frontier.s1"),
    ],
)
def test_names_are_completed(words: str, there: str) -> None:
    assert there in completed(words.replace("SPEC", str(ROOT / "specs" / "quickstart.reo")))


@pytest.mark.parametrize(
    "command", ["run", "plan", "check", "fmt", "graph", "why", "accept", "doctor", "diff", "new"]
)
def test_a_spec_is_completed_as_a_file_is(command: str) -> None:
    assert "file,spe" in completed(f"{command} spe")


def test_tasks_of_a_spec_with_a_mistake_are_none_and_no_error(tmp_path: Path) -> None:
    (tmp_path / "wrong.reo").write_text("study {")
    assert completed(f"why {tmp_path / 'wrong.reo'} m") == []
    assert completed(f"why {tmp_path / 'missing.reo'} m") == []


def test_runs_are_completed_by_their_study_and_when_they_began(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert completed("ls ") == []
    store = Store(tmp_path / ".reodsl")
    store.open()
    spec = compile_file(str(ROOT / "specs" / "quickstart.reo")).spec
    assert isinstance(spec, Spec)
    record = runs.begin(store, spec, "0" * 64)
    runs.end(store, record, "finished")
    began = runs.began(record.name)
    assert completed("ls ") == ["plain,quickstart", f"plain,{began}"]
    assert completed("report qu") == ["plain,quickstart"]
    assert completed(f"diff {began[:4]}") == [f"file,{began[:4]}", f"plain,{began}"]
