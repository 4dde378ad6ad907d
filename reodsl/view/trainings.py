"""Read the rollouts of a training: those of a step or a question, and how lengths and rewards are spread at every step."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars as pl

from reodsl.store.store import Store

STEPS, LEVELS = 60, 24
"""Stretches of steps, and of lengths or rewards, in which rollouts are counted."""
LONGEST = 20_000
"""Characters of a response that are shown; a longer one loses its middle."""
_SHOWN = [
    "step",
    "question",
    "rollout",
    "tokens",
    "finish",
    "correct",
    "reward",
    "parts",
    "advantages",
    "cuts",
    "forced",
    "thinking",
    "thinking_ended",
    "mode",
    "budget",
]


@dataclass(frozen=True, slots=True)
class Training:
    """The rollouts of a stage: one table where it ended, one a step while it goes. `data` has its questions' texts.

    `wordings` are the names of those that its questions were asked in.
    """

    arm: str
    task: str
    key: str
    files: tuple[Path, ...]
    data: Path | None
    whole: bool
    wordings: tuple[str, ...] = ()

    def scan(self) -> pl.LazyFrame:
        """Return the rollouts, unread."""
        # Steps before an interruption may be of a version that kept less.
        return pl.scan_parquet(list(self.files), glob=False, missing_columns="insert", extra_columns="ignore")


def find_training(
    store: Store, arm: str, task: str, key: str, inputs: Mapping[str, str], wordings: tuple[str, ...] = ()
) -> Training | None:
    """Return a training with rollouts, ended or under way; None where it has none. `inputs` are keys of results by role."""
    table = store.path(key) / "rollouts.parquet"
    whole = table.is_file()
    files = (table,) if whole else tuple(sorted((store.root / "work" / key / "rollouts").glob("*.parquet")))
    data = store.path(inputs["data"]) / "questions.parquet" if "data" in inputs else None
    known = data is not None and data.is_file()
    return Training(arm, task, key, files, data if known else None, whole, wordings) if files else None


def count_rollouts(training: Training) -> dict[str, Any]:
    """Return how many rollouts of each stretch of steps have each length and reward: `counts[stretch][level]`."""
    table = training.scan()
    last = int(table.select(pl.col("step").max()).collect().item() or 0)
    stretch = max(1, -(-last // STEPS))
    found: dict[str, Any] = {"steps": last, "stretch": stretch}
    for name in ("tokens", "reward"):
        value = pl.col(name).cast(pl.Float64)
        finite = table.filter(value.is_finite())
        low, high = finite.select(value.min().alias("low"), value.max().alias("high")).collect().row(0)
        if low is None:
            continue
        low = min(low, 0.0)
        level = ((value - low) / (high - low or 1.0) * LEVELS).floor().clip(0, LEVELS - 1).cast(pl.Int64)
        places = ((pl.col("step") - 1) // stretch).alias("at"), level.alias("level")
        counts = [[0] * LEVELS for _ in range(-(-last // stretch))]
        for at, place, count in finite.group_by(places).len().collect(engine="streaming").iter_rows():
            counts[at][place] = count
        found[name] = {"low": low, "high": high, "counts": counts}
    return found


def list_rollouts(
    training: Training, step: int | None, question: str | None, offset: int, limit: int
) -> dict[str, Any]:
    """Return the rollouts of a step, or of a question over the steps: how many, and `limit` of them from `offset` on."""
    table = training.scan()
    if step is not None:
        table = table.filter(pl.col("step") == step)
    if question is not None:
        table = table.filter(pl.col("question") == question)
    there = table.collect_schema().names()
    rows = table.select([name for name in _SHOWN if name in there]).collect()
    means = rows.select(pl.col("reward", "tokens", "correct").cast(pl.Float64).mean()).row(0, named=True)
    page = rows.slice(offset, limit).to_dicts()
    texts = table.slice(offset, limit).select("text").collect()["text"] if "text" in there else [None] * limit
    for row, text in zip(page, texts, strict=False):
        over = len(text or "") - LONGEST
        row["text"] = f"{text[: LONGEST // 2]} … {text[-LONGEST // 2 :]}" if over > 0 else text
        row["left_out"] = max(0, over)
        mode = row.pop("mode", None)
        if mode is not None and 0 <= mode < len(training.wordings):
            row["wording"] = training.wordings[mode]
    asked = {row["question"] for row in page}
    return {
        "total": rows.height,
        "offset": offset,
        "means": means,
        "rollouts": page,
        "questions": _texts(training.data, asked),
    }


def _texts(data: Path | None, questions: set[str]) -> dict[str, str]:
    if data is None:
        return {}
    known = pl.scan_parquet(data, glob=False).filter(pl.col("id").is_in(list(questions)))
    return dict(known.select("id", pl.col("question").str.slice(0, LONGEST)).collect().iter_rows())
