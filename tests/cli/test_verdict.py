"""The verdict of a run is said wherever the run is shown: at its end, by `ls` and `report`, and in the page of `view`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from reodsl.cli.main import main
from reodsl.store.store import Store
from reodsl.view.api import Api
from tests.cli.test_json import SMALL


def output(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    capsys.readouterr()
    assert main(list(arguments)) == 0
    return capsys.readouterr().out


def facts(capsys: pytest.CaptureFixture[str], *arguments: str) -> Any:
    return json.loads(output(capsys, *arguments, "--json"))


@pytest.mark.slow
@pytest.mark.usefixtures("undrawn")
def test_the_verdict_is_said_wherever_a_run_is_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("small.reo").write_text(SMALL)
    lines = output(capsys, "run", "small.reo", "--local").splitlines()
    outcome = facts(capsys, "run", "small.reo", "--local")["verdict"]
    headline, *rest = outcome["sentences"]
    assert headline.endswith(" are tied (0.0 tokens apart, 95% CI 0.0 to 0.0).")
    assert "This rests on one seed and 4 questions: another seed may differ." in rest
    assert outcome["command"] == "reodsl run small.reo --amend 'replicate=[1,2,3]'"
    assert outcome["command"] in output(capsys, "plan", "small.reo")
    assert set(outcome["arms"]) == {"base", "tiny"}
    assert " ".join(" ".join(lines).split()).startswith(" ".join(outcome["sentences"]))
    assert facts(capsys, "report", "small", "--out", "again")["verdict"] == outcome
    assert {tuple(run["verdict"]) for run in facts(capsys, "ls")["runs"]} == {(headline, *rest)}
    assert output(capsys, "ls").splitlines()[1] == f"    {headline}"
    assert output(capsys, "ls", "small").splitlines()[: 1 + len(rest)] == [headline, *rest]
    assert output(capsys, "ls", "small", "tiny").splitlines()[0] != headline
    store = Store(Path(".reodsl"))
    assert {run["verdict"] for run in Api(store).runs({})["runs"]} == {headline}
    # A report that is drawn anew has the names that arms have now.
    Path("small.reo").write_text(SMALL.replace("arm tiny", "arm renamed"))
    renamed = facts(capsys, "run", "small.reo", "--local")["verdict"]
    assert set(renamed["arms"]) == {"base", "renamed"}
    assert [pair["value"] for pair in renamed["pairs"]] == [pair["value"] for pair in outcome["pairs"]]
