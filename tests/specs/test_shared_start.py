"""`replicate_from` to its end: one base is trained, both seeds go on from it, and the report says so."""

from __future__ import annotations

import json
from pathlib import Path

import polars as pl
import pytest
from safetensors.numpy import load_file

from reodsl.store import Store
from reodsl.store.runs import records
from tests.called import call

SPEC = Path(__file__).with_name("shared_start.reo")


@pytest.mark.heavy
def test_two_seeds_go_on_from_one_training(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("REODSL_STORE", str(tmp_path / "store"))
    text = SPEC.read_text()
    Path("shared.reo").write_text(text)
    assert call("run", "shared.reo", "--local") == 0
    assert "All seeds go on from one training of base, with seed 3" in " ".join(
        capsys.readouterr().out.split()
    )

    store = Store(tmp_path / "store")
    (run,) = records(store)
    trained = {task for task in run.tasks if ".train" in task}
    assert trained == {
        "base.train.s3",
        *(f"{arm}.train.s{seed}" for arm in ("short", "long") for seed in (3, 4)),
    }

    def material(task: str) -> dict[str, dict[str, str]]:
        found: dict[str, dict[str, str]] = json.loads(
            (store.path(run.tasks[task]) / "material.json").read_text()
        )
        return found

    def weights(task: str) -> dict[str, object]:
        return load_file(next(store.path(run.tasks[task]).rglob("model.safetensors")))  # type: ignore[return-value]

    starts = {seed: material(f"short.train.s{seed}")["inputs"]["start"] for seed in (3, 4)}
    assert starts[3] == starts[4]
    one, two = weights("short.train.s3"), weights("short.train.s4")
    assert any((one[name] != two[name]).any() for name in one)  # type: ignore[attr-defined]
    for seed in (3, 4):
        metrics = pl.read_parquet(store.path(run.tasks[f"short.train.s{seed}"]) / "metrics.parquet")
        assert metrics.height == 2
        assert (metrics["grad_norm"] > 0).all()

    # A third seed trains what comes after the base, and nothing of it.
    Path("more.reo").write_text(text.replace("[3, 4]", "[3, 4, 5]"))
    call("plan", "more.reo", "--json")
    tasks = json.loads(capsys.readouterr().out)["tasks"]
    runs = {task["id"] for task in tasks if task["verdict"] == "run"}
    assert {"short.train.s5", "long.train.s5"} <= runs
    assert not any(task.startswith(("base", "tiny")) or task.endswith((".s3", ".s4")) for task in runs)

    assert call("run", "shared.reo", "--local") == 0
    assert "Nothing to do" in capsys.readouterr().out
