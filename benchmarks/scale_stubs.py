"""Runners that leave the small files of each kind at once: what planning, scheduling and pricing read of finished work."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import polars as pl

from reodsl.graph.job import Job
from reodsl.graph.task import VERSIONS

RUNNERS = dict.fromkeys(VERSIONS, "benchmarks.scale_stubs:write")
STEPS = 24
CONFIG = {
    "hidden_size": 96,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 24,
    "intermediate_size": 256,
    "vocab_size": 64,
    "tie_word_embeddings": True,
}
TIMED = ("seconds_generate", "seconds_force", "seconds_grade", "seconds_update")


def write(job: Job) -> None:
    """The result of a task, with numbers that depend on its payload alone."""
    match job.task.kind:
        case "model":
            _json(job.out / "checkpoint" / "config.json", CONFIG)
        case "train":
            _json(job.out / "checkpoint" / "config.json", CONFIG)
            steps = list(range(1, STEPS + 1))
            metrics = {"step": steps, "length": [60.0] * STEPS, "tokens": [256 * 60] * STEPS}
            pl.DataFrame(metrics).write_parquet(job.out / "metrics.parquet")
            timings = {"step": steps, **{name: [0.5] * STEPS for name in TIMED}}
            pl.DataFrame(timings).write_parquet(job.out / "timings.parquet")
        case "evaluate":
            row = {"accuracy": 0.9, "length": 50.0, "questions": 128, "samples": 2, "unfinished": 0.0}
            names = [benchmark["name"] for benchmark in job.task.payload["suite"]["benchmarks"]]
            _json(job.out / "summary.json", dict.fromkeys((*names, "mean"), row))
        case _:
            _json(job.out / "result.json", {"task": job.task.id})


def _json(path: Path, value: Any) -> None:
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps(value))
