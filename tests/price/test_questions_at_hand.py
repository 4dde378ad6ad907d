"""What a plan says of questions and models beside the spec: those that are not there, and how many questions there are."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from tests.bad_input.commands import SPEC
from tests.called import call

FILED = SPEC.replace("generated(chain_easy, count: 4, seed: 1, split: held_out)", 'file("asked/HELD")')
ROWS = [{"question": f"<q> {n % 10} a +{n} ? <think>", "answer": str(n)} for n in range(80)]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "asked").mkdir()
    return tmp_path


def write(path: Path) -> None:
    match path.suffix:
        case ".jsonl":
            path.write_text("\n\n".join(map(json.dumps, ROWS)) + "\n")
        case ".json":
            path.write_text(json.dumps(ROWS))
        case ".csv":
            pl.DataFrame(ROWS).write_csv(path)
        case ".parquet":
            pl.DataFrame(ROWS).write_parquet(path)


def planned(capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    call("plan", "tiny.reo", "--json")
    plan: dict[str, Any] = json.loads(capsys.readouterr().out)
    return plan


def checked(plan: dict[str, Any], arm: str) -> int:
    (task,) = [each for each in plan["tasks"] if each["id"].startswith(f"{arm}.eval")]
    count: int = task["price"]["verifications"]
    return count


@pytest.mark.parametrize("name", ["q.jsonl", "q.json", "q.csv", "q.parquet"])
def test_questions_of_a_file_are_counted(name: str, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """As many questions that are generated cost the same, to the last token."""
    write(folder / "asked" / name)
    Path("tiny.reo").write_text(FILED.replace("HELD", name))
    counted = planned(capsys)
    Path("tiny.reo").write_text(SPEC.replace("count: 4, seed: 1, split", "count: 80, seed: 1, split"))
    generated = planned(capsys)
    assert checked(counted, "base") >= 80
    assert checked(counted, "base") == checked(generated, "base")
    assert not counted["price"]["unpriced"]
    # A file that has grown since is counted anew.
    if name == "q.jsonl":
        with (folder / "asked" / name).open("a") as file:
            file.writelines(f'{{"question": "again {n}", "answer": "1"}}\n' for n in range(80))
        Path("tiny.reo").write_text(FILED.replace("HELD", name))
        assert checked(planned(capsys), "base") == pytest.approx(2 * checked(counted, "base"), abs=1)


def test_what_the_spec_declares_is_taken(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(folder / "asked" / "q.jsonl")
    declared = FILED.replace('file("asked/HELD"),', 'file("asked/q.jsonl"), questions = 40,')
    assert "questions = 40" in declared
    Path("tiny.reo").write_text(declared)
    few = checked(planned(capsys), "base")
    Path("tiny.reo").write_text(FILED.replace("HELD", "q.jsonl"))
    assert checked(planned(capsys), "base") == pytest.approx(2 * few, abs=1)


def test_files_that_are_not_there_are_named(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = FILED.replace("HELD", "q.jsonl")
    begin, end = text.index("  source = architecture("), text.index("  context = 64")
    Path("tiny.reo").write_text(f'{text[:begin]}  source = folder("mine/weights")\n{text[end:]}')
    assert call("plan", "tiny.reo") == 2
    out = capsys.readouterr().out
    rows = {line.split()[1]: line for line in out.splitlines() if line.startswith("  + ")}
    assert "mine/weights is not on this machine" in rows["mite.model"]
    assert "asked/q.jsonl is not on this machine" in rows["held.data"]
    assert "not done yet" in rows["asked.data"]
    assert "Not on this machine: mine/weights, asked/q.jsonl. A run here stops before it starts." in out
    plan = planned(capsys)
    assert {name for task in plan["tasks"] for name in task["absent"]} == {"mine/weights", "asked/q.jsonl"}
    (folder / "mine" / "weights").mkdir(parents=True)
    write(folder / "asked" / "q.jsonl")
    assert call("plan", "tiny.reo") == 2
    assert "not on this machine" not in capsys.readouterr().out.lower()


def test_what_a_hub_or_a_package_has_is_named(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("HF_HUB_CACHE", str(folder / "hub"))
    text = SPEC.replace(
        "generated(chain_easy, count: 4, seed: 1)", 'package("no_such_gym", task: "sums", count: 4, seed: 1)'
    ).replace("generated(chain_easy, count: 4, seed: 1, split: held_out)", 'hub("some/questions")')
    Path("tiny.reo").write_text(text)
    call("plan", "tiny.reo")
    assert "Not on this machine: some/questions, no_such_gym." in capsys.readouterr().out
    write_copy = folder / "data" / "some" / "questions"
    write_copy.mkdir(parents=True)
    write(write_copy / "train.jsonl")
    plan = planned(capsys)
    assert {name for task in plan["tasks"] for name in task["absent"]} == {"no_such_gym"}
    assert checked(plan, "base") >= 80


def test_python_beside_the_spec_that_is_not_there_is_an_error(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("tiny.reo").write_text(SPEC.replace("verifier = exact", 'verifier = python("checks.py:check")'))
    assert call("plan", "tiny.reo") == 1
    err = capsys.readouterr().err
    assert err.count("E0743") == 1
    assert "the file does not exist" in err
    Path("checks.py").write_text("def check(answer):\n    return True\n")
    assert call("plan", "tiny.reo") == 2
