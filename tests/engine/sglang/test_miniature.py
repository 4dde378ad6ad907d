"""The miniature on both engines: curves of one checkpoint agree within sampling noise, and training ends in a report."""

from __future__ import annotations

from pathlib import Path

import polars as pl
import pytest

import reodsl
from tests.engine.sglang.agreement import DEVIATIONS, gaps

pytestmark = [pytest.mark.sglang, pytest.mark.heavy]

SPEC = """
from std.miniature import overthinker, chain_train, chain_suite, chain_forcing
from std.rewards   import reo
from std.recipes   import ppo

experiment small = ppo {
  base        = checkpoint(overthinker)
  data        = chain_train
  forcing     = chain_forcing
  reward      = reo(at: exp(from: 4 tokens, to: 128 tokens, n: 5))
  batch       { prompts = 8, rollouts = 4 }
  rollout     { max_tokens = 128 tokens }
  max_prompt  = 32 tokens
  minibatches = 2
  epochs      = 1
  steps       = 3 steps
  optim       { algorithm = adamw, lr = 1e-4 }
  eval        = chain_suite
}
"""
RESOLUTION = {"correct": 0.13, "tokens": 12.0}
"""What four standard errors may be at most, so that the test can tell a difference: of accuracies of 288 questions with
two responses each they are 4 x root(2 x 1/4 / 576) = 0.118 where every answer is as good as tossed, and less elsewhere."""


def test_one_checkpoint_answers_alike_on_both_engines_and_training_ends_in_a_report(
    python: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    spec = tmp_path / "small.reo"
    spec.write_text(SPEC)
    samples, forced = {}, {}
    for engine in ("embedded", "sglang"):
        loaded = reodsl.load(spec, amend={"small.engine": engine})
        run = loaded.run(tmp_path / engine, local=True)
        assert run.report.is_file()
        assert run.table("training").filter(pl.col("arm") == "small").height == 3
        samples[engine] = run.samples("base", 1)
        forced[engine] = pl.read_parquet(run.inputs["evaluate:base@1"] / "forced.parquet")
    # Both start from the very same checkpoint, which was trained once.
    assert reodsl.load(spec).plan()["overthinker.train.verbose.s1"] == "reuse"
    apart = gaps(samples["embedded"], samples["sglang"], ["correct", "tokens"])
    apart |= gaps(forced["embedded"], forced["sglang"], ["correct"], ["budget"])
    assert len(apart) > 20
    for name, gap in apart.items():
        print(f"{name}: {gap.mean:.4f} ± {gap.error:.4f}")
        assert gap.within_noise, f"{name}: {gap.mean:.4f} ± {gap.error:.4f}"
        assert DEVIATIONS * gap.error < RESOLUTION[name.split()[0]], name
    # Other random streams: were the texts the same, the second engine would not have run.
    assert (samples["embedded"]["response"] != samples["sglang"]["response"]).mean() > 0.5
