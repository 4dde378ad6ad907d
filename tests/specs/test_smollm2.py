"""The spec of the real language model: compiled and priced everywhere, and run where its model is."""

from __future__ import annotations

import json
from pathlib import Path

import polars as pl
import pytest

import reodsl
from reodsl.graph.lower import lower
from reodsl.language import compile_file
from reodsl.price import price
from reodsl.store.external import package_version

ROOT = Path(__file__).resolve().parents[2]
SPEC = ROOT / "specs" / "smollm2_reo_exp.reo"
MADE = (ROOT / "models" / "smollm2-135m-instruct").is_dir() and package_version("reasoning-gym")

SHORT = {
    "start_steps": "2 steps", "rl_steps": "2 steps", "prompts": "2", "rollouts": "2",
    "longest": "64 tokens", "questions": "2", "samples": "1", "n": "1",
}  # fmt: skip
"""Two steps of everything, on few questions and with short responses."""


@pytest.mark.parametrize("short", [False, True])
def test_it_compiles_and_is_priced(short: bool) -> None:
    compiled = compile_file(SPEC, sets=SHORT if short else {})
    assert [found for found in compiled.diagnostics if found.severity == "error"] == []
    assert compiled.spec is not None
    graph = lower(compiled.spec)
    prices = price(graph, compiled.spec)
    assert not prices.unpriced(task.id for task in graph.tasks)
    assert {task.id for task in graph.tasks if task.kind == "train"} == {
        "start.train.s1",
        "vanilla.train.s1",
        "reo_exp.train.s1",
        "group_norm.train.s1",
    }
    assert {
        task.payload["model"]["precision"] for task in graph.tasks if task.kind in ("train", "evaluate")
    } == {"bfloat16"}


def test_the_whole_study_is_a_night_on_two_cores() -> None:
    """Priced before anything is measured: 8 hours at most."""
    compiled = compile_file(SPEC)
    assert compiled.spec is not None
    prices = price(lower(compiled.spec), compiled.spec)
    cores = 2
    assert sum(one.total_seconds for one in prices.tasks.values() if one is not None) / cores < 8 * 3600


@pytest.mark.heavy
@pytest.mark.skipif(not MADE, reason="make smollm2")
def test_two_steps_from_weights_to_report(tmp_path: Path) -> None:
    study = reodsl.load(SPEC, store=tmp_path / "store", **SHORT)
    run = study.run(tmp_path / "out", local=True)
    table = run.table("main")
    assert set(table["arm"]) == {"base", "vanilla", "reo_exp", "group_norm"}
    samples = run.samples("reo_exp", 1)
    assert samples.height == 3 * 2
    assert samples["tokens"].max() <= 64
    assert set(study.plan().values()) == {"reuse"}
    assert json.loads((tmp_path / "out" / "spec.reo.json").read_text())
    assert pl.read_parquet(tmp_path / "out" / "tables" / "main.parquet").height == table.height
