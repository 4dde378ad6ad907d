"""The miniature on both engines: curves of one checkpoint agree within sampling noise, and training ends in a report."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import polars as pl
import pytest

import reodsl

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
DEVIATIONS = 4.0
"""Standard errors that a mean difference may be away from 0: 23 budgets and two means, each at 1 in 16,000 by chance."""


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
    apart = differences(samples, ["correct", "tokens"], []) | differences(forced, ["correct"], ["budget"])
    assert len(apart) > 20
    for name, values in apart.items():
        mean, error = values.mean(), values.std(ddof=1) / np.sqrt(len(values))
        assert abs(mean) <= DEVIATIONS * error + 1e-12, f"{name}: {mean:.4f} ± {error:.4f}"
    # Other random streams: were the texts the same, the second engine would not have run.
    assert (samples["embedded"]["response"] != samples["sglang"]["response"]).mean() > 0.5


def differences(
    frames: dict[str, pl.DataFrame], columns: list[str], by: list[str]
) -> dict[str, np.ndarray[tuple[int], np.dtype[np.float64]]]:
    """By column (and budget): each question's mean on one engine less that on the other."""
    keys = ["benchmark", "question", *by]
    means = [frame.group_by(keys).agg(pl.col(columns).cast(pl.Float64).mean()) for frame in frames.values()]
    both = means[0].join(means[1], on=keys, suffix="_other")
    assert both.height == means[0].height == means[1].height
    found = {}
    for (*group,), part in both.group_by(by or [pl.lit(0)]):
        for column in columns:
            name = f"{column} {' '.join(map(str, group))}" if by else column
            found[name] = (part[column] - part[f"{column}_other"]).to_numpy()
    return found
