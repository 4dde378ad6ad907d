"""Tiny stages of every kind give the files that they gave before, to the last bit, on processors that are listed.

On another processor, or with other packages, sums may round otherwise: there each stage is compared with itself.
`--update-goldens` lists the processor, and is for changes that are meant to change results.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable
from pathlib import Path

import polars as pl
import pytest
import torch
import transformers

from reodsl.graph.job import Resources
from reodsl.ir.training import Dpo
from reodsl.price.machine import processor
from tests.conftest import GOLDENS
from tests.train.conftest import Bench, Stopped
from tests.train.test_lag import lagging
from tests.train.test_preference import pairs as pairs
from tests.train.test_train import ppo, sft

LISTED = GOLDENS / "train" / "unchanged.json"
# Libraries of products look at the processor itself, also where torch is told to compute as an older one does.
AS_OLDER = (
    torch.backends.cpu.get_cpu_capability() == "AVX2" and "avx512f" in Path("/proc/cpuinfo").read_text()
)
PROCESSOR = (
    f"{processor()} with {torch.backends.cpu.get_cpu_capability()}{' as an older one' if AS_OLDER else ''}"
)
CHOSEN = f", products of {named}" if (named := os.environ.get("REODSL_PRODUCTS")) else ""
HERE = f"{PROCESSOR}{CHOSEN}, torch {torch.__version__}, transformers {transformers.__version__}"
PREFERENCE = sft(steps=4, algorithm="adamw").model_copy(
    update={"method": Dpo(batch=2, max_tokens=64, beta=0.3)}
)
STAGES = {
    "plain": (ppo(steps=3), "questions"),
    "lag": (lagging(steps=3), "questions"),
    "sft": (sft(steps=3), "traces"),
    "dpo": (PREFERENCE, "pairs"),
    "resumed": (ppo(steps=3, save_every=1), "questions"),
    "sharded": (sft(steps=3, algorithm="adamw"), "traces"),
}


def content(path: Path) -> bytes:
    """What a file says: of a table its rows, since other versions of polars write them otherwise.

    Three columns of rollouts came later, for readers alone; tests/train/test_gather.py has them.
    """
    if path.suffix != ".parquet":
        return path.read_bytes()
    return pl.read_parquet(path).drop("parts", "advantages", "group", strict=False).write_json().encode()


def digest(folder: Path) -> str:
    """One of all files with their names, timings excepted."""
    whole = hashlib.sha256()
    for path in sorted(folder.rglob("*")):
        if path.is_file() and path.name != "timings.parquet":
            whole.update(str(path.relative_to(folder)).encode() + b"\0" + content(path))
    return whole.hexdigest()[:16]


@pytest.mark.parametrize(
    "kind", [pytest.param(kind, marks=pytest.mark.heavy) if kind == "sharded" else kind for kind in STAGES]
)
def test_a_stage_gives_what_it_gave_before(
    kind: str, bench: Bench, pairs: str, request: pytest.FixtureRequest
) -> None:
    stage, data = STAGES[kind]
    if kind == "resumed":
        with pytest.raises(Stopped):
            bench.train(stage, "unchanged_resumed", start="base", data=data, stop_at=2)
    more = {"resources": Resources(trainers=2)} if kind == "sharded" else {}
    train: Callable[[], Path] = lambda: bench.train(  # noqa: E731
        stage, f"unchanged_{kind}", start="base", data=pairs if kind == "dpo" else data, **more
    )
    found = digest(train())
    listed = json.loads(LISTED.read_text()) if LISTED.is_file() else {}
    if request.config.getoption("--update-goldens"):
        listed.setdefault(HERE, {})[kind] = found
        LISTED.parent.mkdir(parents=True, exist_ok=True)
        LISTED.write_text(json.dumps(listed, indent=2, sort_keys=True) + "\n")
    elif HERE in listed:
        assert found == listed[HERE][kind]
    else:
        assert found == digest(train())
