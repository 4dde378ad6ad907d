"""The door for notebooks: load, override, plan, run, frames and charts."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

import reodsl
from reodsl.diagnostics import Problem, warning
from reodsl.plan.registry import load_registry


@pytest.fixture
def spec(tmp_path: Path) -> Path:
    path = tmp_path / "tiny.reo"
    path.write_text(
        '''"""Two steps of next-token training on the miniature, and its start."""
from std.miniature import chain_model, chain_second_traces, chain_forcing, chain_easy
from std.recipes import sft

param length: steps = 2 steps in 1 steps..9 steps

data few_questions { source = generated(chain_easy, count: 4, seed: 1), verifier = exact }
benchmark few { data = few_questions }
suite quick {
  benchmarks = [few]
  max_tokens = 16 tokens
  samples    = 1
  grid       = [0 tokens, 8 tokens, 16 tokens]
  reg_to     = 16 tokens
  forcing    = chain_forcing
}

experiment tiny = sft {
  base       = chain_model
  data       = chain_second_traces
  batch      { prompts = 4 }
  max_tokens = 192 tokens
  steps      = length
  eval       = quick
}
'''
    )
    return path


def test_a_spec_is_loaded_overridden_planned_and_run(
    spec: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = replace(load_registry(), check=lambda *_: (warning("W0971", "other GPUs"),))
    monkeypatch.setattr("reodsl.plan.registry.load_registry", lambda: other)
    loaded = reodsl.load(spec, length=3, amend={"optim.lr": 1e-4})
    (training,) = [task for task in loaded.graph.tasks if task.kind == "train"]
    assert training.payload["stage"]["steps"] == 3
    assert training.payload["stage"]["optim"]["lr"] == 1e-4
    assert set(loaded.plan().values()) == {"run"}
    with pytest.warns(UserWarning, match="W0971: other GPUs"):
        run = loaded.run(tmp_path / "out", local=True)
    assert set(reodsl.load(spec, length=3, amend={"optim.lr": 1e-4}).plan().values()) == {"reuse"}
    assert run.report.read_text().startswith("<!doctype html>")
    assert {"main", "curves"} <= set(run.tables())
    assert run.table("training").height == 3
    assert run.samples("tiny", 1).height == 4
    assert run.curves().to_dict()["layer"]
    with pytest.raises(Problem, match="there is no table 'mian'"):
        run.table("mian")
    with pytest.raises(Problem, match="nothing was evaluated as tinny@1"):
        run.samples("tinny", 1)
    with pytest.raises(Problem, match="nothing was evaluated on 'fw'") as caught:
        run.curves("fw")
    assert caught.value.__notes__[0].endswith("= help: there is few, mean\n")


def test_a_spec_with_errors_says_all_of_them(spec: Path) -> None:
    with pytest.raises(Problem) as caught:
        reodsl.load(spec, length=12)
    (shown,) = caught.value.__notes__
    assert "must be from 1 step to 9 steps" in shown
    assert "= help: " in shown
    assert [found.code for found in caught.value.diagnostics]
