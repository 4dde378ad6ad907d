"""`reodsl diff` on specs, runs and folders: exit codes, text and JSON."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.called import beside_quickstart, call
from tests.execute import toys
from tests.graph import studies as make

ROOT = Path(__file__).resolve().parents[2]
PAPER = (ROOT / "specs" / "qwen3_4b_reo_exp.reo").read_text()
HARMONIZING = (
    PAPER.replace("qwen3_4b_reo_exp", "qwen3_4b_harmonizing")
    .replace("from std.rewards  import reo", "from std.rewards  import length_harmonizing")
    .replace("reward  = reo(at: five)", "reward  = length_harmonizing(gamma: 2)\n  reference_samples = 4")
)


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with the quickstart, REO-RL (Exp) and a length reward; the present folder for the test."""
    beside_quickstart(tmp_path, toys.RUNNERS, monkeypatch)
    (tmp_path / "reo_exp.reo").write_text(PAPER)
    (tmp_path / "harmonizing.reo").write_text(HARMONIZING)
    return tmp_path


def said(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str]:
    capsys.readouterr()
    code = call("diff", *arguments)
    return code, capsys.readouterr().out


Golden = Callable[[str, str], None]


def test_two_methods_side_by_side(place: Path, capsys: pytest.CaptureFixture[str], golden: Golden) -> None:
    code, out = said(capsys, "reo_exp.reo", "harmonizing.reo")
    assert code == 2
    golden("diff/methods.txt", out)


def test_a_study_with_a_changed_param(
    place: Path, capsys: pytest.CaptureFixture[str], golden: Golden
) -> None:
    code, out = said(capsys, "quickstart.reo", "--set", "n=3")
    assert code == 2
    golden("diff/param.txt", out)


def test_a_frontier_that_one_side_lacks_is_told_once(
    place: Path, capsys: pytest.CaptureFixture[str], golden: Golden
) -> None:
    text = (place / "quickstart.reo").read_text()
    kept = [line for line in text.splitlines() if not line.strip().startswith(("frontier edge", "score "))]
    plain = "\n".join(kept).replace(", reg]", "]").replace(", edge]", "]")
    (place / "plain.reo").write_text(plain + "\n")
    code, out = said(capsys, "quickstart.reo", "plain.reo")
    assert code == 2
    golden("diff/frontier.txt", out)
    assert said(capsys, "plain.reo", "quickstart.reo")[1].count("frontiers") == 1


def test_a_change_that_several_arms_share_is_shown_once(
    place: Path, capsys: pytest.CaptureFixture[str], golden: Golden
) -> None:
    text = (place / "quickstart.reo").read_text()
    (place / "other.reo").write_text(
        text.replace("lr = 5e-4", "lr = 1e-3").replace("prompts = 32", "prompts = 16")
    )
    code, out = said(capsys, "quickstart.reo", "other.reo")
    assert code == 2
    golden("diff/shared.txt", out)


@pytest.mark.parametrize(
    ("change", "setting", "cells"),
    [
        ("importance_cap=2", "importance_cap", ("none (default)", "2")),
        ("kl=0.001", "kl", ("0 (default)", "0.001")),
        ("loss.ratio=sequence", "loss.ratio", ("token (default)", "sequence")),
    ],
)
def test_a_default_is_told_as_its_value(
    place: Path, capsys: pytest.CaptureFixture[str], change: str, setting: str, cells: tuple[str, str]
) -> None:
    code, out = said(capsys, "reo_exp.reo", "--amend", change)
    assert code == 2
    (row,) = [line for line in out.splitlines() if line.startswith(f"{setting} ")]
    assert tuple(re.split("  +", row)[1:]) == cells
    assert sum(line.startswith("same ") for line in out.splitlines()) == 1
    assert re.search(r"^same +\d+ other settings  \(--all\)$", out, re.M)
    found = json.loads(said(capsys, "reo_exp.reo", "--amend", change, "--json")[1])
    (given,) = [each for arm in found["arms"] for each in arm["rows"] if each["setting"] == setting]
    assert given["a"] in (None, 0, "token")


def test_unlike_specs_are_summed_up(place: Path, capsys: pytest.CaptureFixture[str], golden: Golden) -> None:
    code, out = said(capsys, "quickstart.reo", "reo_exp.reo")
    assert code == 2
    golden("diff/unlike.txt", out)


def test_a_formatted_spec_is_the_same(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    messy = place / "messy.reo"
    messy.write_text("# first\n" + PAPER.replace("  base ", "  base      ").replace("128,", "128   ,"))
    formatted = place / "formatted.reo"
    formatted.write_text(messy.read_text())
    assert call("fmt", str(formatted)) == 0
    assert formatted.read_text() != messy.read_text()
    assert said(capsys, "messy.reo", "formatted.reo")[0] == 0
    code, out = said(capsys, "reo_exp.reo", "reo_exp.reo")
    assert (code, out) == (0, "No difference in meaning: reo_exp.reo\n")


def test_json_has_rows_same_and_tasks(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, out = said(capsys, "reo_exp.reo", "harmonizing.reo", "--json")
    found: dict[str, Any] = json.loads(out)
    assert code == 2
    assert set(found) == {"a", "b", "different", "study", "arms", "only_a", "only_b", "tasks"}
    (arm,) = [each for each in found["arms"] if each["rows"]]
    rows = {row["setting"]: row for row in arm["rows"]}
    assert rows["reward"]["a"][0] == "dense over 6 budgets"
    assert "b" not in rows["reward.at.budgets"]
    assert arm["same"]["optim"]["optim.lr"] == 5e-6
    assert {"a": "base.eval", "b": "base.eval"} in found["tasks"]["shared"]
    assert not json.loads(said(capsys, "reo_exp.reo", "reo_exp.reo", "--json")[1])["different"]


def test_all_shows_what_is_the_same(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    short = said(capsys, "reo_exp.reo", "harmonizing.reo")[1]
    long = said(capsys, "reo_exp.reo", "harmonizing.reo", "--all")[1]
    assert "= optim.lr" not in short
    assert "= optim.lr" in long
    assert "(--all)" not in long


def test_a_run_and_the_spec_now(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert call("run", "quickstart.reo", "--local", "--quiet", "--set", "n=3") == 0
    code, out = said(capsys, "quickstart", "quickstart.reo", "--set", "n=3")
    assert code == 0, out
    # One line: they measure the same too. The run is named by what names it to other commands.
    words = re.fullmatch(
        r"No difference in meaning: quickstart (\d{8}T\d{6}), quickstart.reo with n=3\n", out
    )
    assert words is not None
    assert call("ls") == 0
    assert capsys.readouterr().out.startswith(f"{words[1]}  quickstart  ")
    assert said(capsys, words[1], "quickstart.reo", "--set", "n=3")[0] == 0
    code, out = said(capsys, "quickstart", "quickstart.reo")
    assert code == 2
    assert "[4, 13, 40] tokens" in out


def test_a_file_is_known_by_its_content(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = (place / "quickstart.reo").read_text()
    text = text.replace(
        "recipe small", 'data mine { source = file("a.jsonl"), verifier = exact }\n\nrecipe small'
    )
    (place / "filed.reo").write_text(re.sub(r"data +=\s*chain_train", "data = mine", text))
    (place / "a.jsonl").write_text('{"question": "1", "answer": "1"}\n')
    assert call("run", "filed.reo", "--local", "--quiet") == 0

    def shared() -> bool:
        found = json.loads(said(capsys, "quickstart", "filed.reo", "--json")[1])["tasks"]["shared"]
        return {"a": "mine.data", "b": "mine.data"} in found

    assert shared()
    (place / "a.jsonl").write_text('{"question": "2", "answer": "2"}\n')
    assert not shared()


def test_two_runs(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    call("run", "quickstart.reo", "--local", "--quiet")
    call("run", "quickstart.reo", "--local", "--quiet", "--amend", "vanilla.epochs=2")
    capsys.readouterr()
    call("ls", "--json")
    names = [run["name"] for run in json.loads(capsys.readouterr().out)["runs"]]
    assert len(names) == 2
    code, out = said(capsys, *names)
    assert code == 2
    assert "epochs" in out
    assert said(capsys, names[0], names[0])[0] == 0


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("quickstart.reo",), "name a second spec or run"),
        (("quickstart.reo", "nowhere.reo"), "error["),
        (("quickstart.reo", "ghost"), "E0952"),
        (("quickstart.reo", "broken.json"), "E0967"),
        (("quickstart.reo", "ghost", "--set", "n=3"), "change only specs"),
    ],
)
def test_what_cannot_be_compared(
    place: Path, capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...], words: str
) -> None:
    (place / "broken.json").write_text("{}")
    assert call("diff", *arguments) == 1
    err = capsys.readouterr().err
    assert words in err
    assert "validation error" not in err


def test_a_runs_folder_has_its_spec(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = place / "run"
    folder.mkdir()
    (folder / "spec.reo.json").write_text(make.four().model_dump_json())
    assert said(capsys, "run", "run")[0] == 0


STAGED = """
from std.miniature import overthinker, chain_train, chain_second_traces, chain_suite
from std.recipes import sft
from std.selections import shortest

experiment brief = sft {
  base  = checkpoint(overthinker)
  data  = shortest(pool(checkpoint(overthinker), data: chain_train, samples: 4, max_tokens: 128 tokens))
  batch { prompts = 32 }
  max_tokens = 192 tokens
  optim { lr = 1e-4 }
  eval  = chain_suite
  stage one { steps = 2 steps }
  stage two { steps = 3 steps }
}
"""


def test_of_a_stage_that_both_have_only_what_one_lacks_is_not_there(
    place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (place / "staged.reo").write_text(STAGED)
    _, out = said(capsys, "staged.reo", "--amend", "brief.stages.two.data=chain_second_traces")
    assert re.search(r"^stages\.1\.selected +\d+ settings \(--all\) +not there$", out, re.M), out
    assert not re.search(r"^stages\.1 ", out, re.M)
