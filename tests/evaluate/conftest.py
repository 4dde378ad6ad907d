"""A miniature model with random weights, questions for it, and jobs to run on both."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from reodsl.graph.job import Job, Progress
from reodsl.graph.task import Kind, Task
from runners.models.folder import build, save
from runners.models.tokenizer import word_tokenizer
from tests.devices.fixture import plain_cpu as plain_cpu
from tests.worked import work_of

DIGITS = [str(d) for d in range(10)]
WORDS = [*DIGITS, *(f"+{d}" for d in DIGITS), "<q>", "?", "so", "wait", ".", "answer", "\\boxed{", "}"]
FORCING = "</think> answer \\boxed{"


@pytest.fixture(scope="session")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a `train` artifact: a two-layer model with random weights in `checkpoint/`."""
    folder = tmp_path_factory.mktemp("start")
    tokenizer = word_tokenizer(WORDS)
    sizes = {"layers": 2, "hidden": 32, "heads": 2, "kv_heads": 1, "head_dim": 16, "intermediate": 48}
    model = build(len(tokenizer), 3, eos=1, pad=0, family="qwen3", context=96, init_std=0.3, **sizes)
    save(model, tokenizer, folder / "checkpoint")
    return folder


@pytest.fixture(scope="session")
def questions(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a `data` artifact with seven questions."""
    folder = tmp_path_factory.mktemp("data")
    rows = [{"id": f"q{i}", "question": f"{i} +{i + 1}", "answer": str((2 * i + 1) % 10)} for i in range(7)]
    pl.DataFrame(rows).write_parquet(folder / "questions.parquet")
    return folder


MakeJob = Callable[..., Job]


@pytest.fixture
def job(tmp_path: Path) -> MakeJob:
    """Makes a job of a kind with a payload and inputs; its reports end up in `job.progress.told`."""

    def make(kind: Kind, payload: dict[str, Any], inputs: dict[str, Path], name: str = "one") -> Job:
        out, work = tmp_path / name / "out", tmp_path / name / "work"
        out.mkdir(parents=True, exist_ok=True)
        work.mkdir(exist_ok=True)
        return Job(Task(kind, kind, work_of(payload), {}), inputs, out, work, tmp_path, Told())

    return make


class Told:
    """Keeps what a runner reports."""

    def __init__(self) -> None:
        self.told: list[Progress] = []

    def __call__(self, progress: Progress) -> None:
        self.told.append(progress)


def payload(samples: int = 3, **changes: Any) -> dict[str, Any]:
    """The payload of an `evaluate` task on the benchmarks `one` and `two`."""
    data = {"name": "", "sources": [], "verifier": "exact", "duplicates": "error"}
    suite = {
        "name": "",
        "benchmarks": [{"name": name, "data": data} for name in ("one", "two")],
        "rollout": {"max_tokens": 20, "temperature": 1.0, "top_p": 1.0, "top_k": -1},
        "samples": samples,
        "grid": [0, 1, 4, 9, 20],
        "reg_to": 0,
        "forcing": {
            "name": "",
            "text": FORCING,
            "answer_tokens": 1,
            "close": "}",
            "temperature": 0.0,
            "top_p": 1.0,
        },
        "seed": 5,
    }
    model = {
        "name": "",
        "source": {"kind": "folder", "path": ""},
        "context": 96,
        "prompt": {"kind": "raw", "template": "<q> {question} ?", "system": None},
        "think_open": None,
        "think_close": None,
        "dimensions": None,
    }
    return {"suite": suite | changes, "model": model, "seed": 5}
