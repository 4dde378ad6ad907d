"""The learning rate of the own-data spec in docs/DATA.md: a small model learns at it."""

from __future__ import annotations

import re
from pathlib import Path

import polars as pl
import pytest

import reodsl

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "DATA.md").read_text()
SPEC = """
from std.miniature import overthinker, chain_train, chain_hard_questions, chain_forcing
from std.recipes   import ppo
from std.rewards   import outcome

benchmark own_questions { data = chain_hard_questions }

suite own_suite {
  benchmarks = [own_questions]
  max_tokens = 128 tokens
  samples    = 4
  grid       = every(32 tokens, to: 128 tokens)
  reg_to     = 128 tokens
  forcing    = chain_forcing
}

experiment trained = ppo {
  base       = checkpoint(overthinker)
  data       = chain_train
  reward     = outcome
  batch      { prompts = 8, rollouts = 8 }
  rollout    { max_tokens = 128 tokens }
  max_prompt = 32 tokens
  steps      = 20 steps
  optim      { lr = 5e-5 }
  eval       = own_suite
}

experiment slow = trained { optim { lr = 5e-6 } }

study rates {
  eval = own_suite
  arm base    = checkpoint(overthinker) { eval = own_suite }
  arm trained = trained
  arm slow    = slow
}
"""


def test_the_page_trains_as_the_measured_spec_does() -> None:
    for setting in (
        r"steps\s+= 20 steps",
        r"batch\s+{ prompts = 8, rollouts = 8 }",
        r"optim\s+{ lr = 5e-5 }",
    ):
        assert re.search(setting, PAGE), setting
        assert re.search(setting, SPEC), setting


@pytest.mark.heavy
def test_a_small_model_learns_at_the_pages_rate(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("rates.reo").write_text(SPEC)
    table = reodsl.load("rates.reo").run("out", local=True).table("main")
    mean = table.filter(pl.col("benchmark") == "mean")
    right = dict(zip(mean["arm"], mean["accuracy"], strict=True))
    assert right["trained"] > right["base"] + 0.25
    assert right["slow"] < right["base"] + 0.15
