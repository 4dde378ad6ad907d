"""Per-question scores: the folder of an evaluation in; matrices over questions and budgets out, one order for all arms."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import polars as pl
from numpy.typing import NDArray

from reodsl.diagnostics import problem
from reodsl.numbers.bootstrap import ArmScores


def arm_scores(folder: Path, arm: str) -> tuple[ArmScores, tuple[int, ...]]:
    """An arm's scores by benchmark, questions sorted by their ids, and the budgets that its answers were forced at.

    Files of any size are aggregated as they are read. A Problem (E0431) where a question lacks a budget, or its
    budgets differ between benchmarks.
    """
    forced = (
        pl.scan_parquet(folder / "forced.parquet")
        .group_by("benchmark", "question", "budget")
        .agg(pl.col("correct").cast(pl.Float64).mean())
        .sort("benchmark", "question", "budget")
        .collect(engine="streaming")
    )
    whole = (
        pl.scan_parquet(folder / "samples.parquet")
        .group_by("benchmark", "question")
        .agg(pl.col("correct").cast(pl.Float64).mean(), pl.col("tokens").cast(pl.Float64).mean())
        .sort("benchmark", "question")
        .collect(engine="streaming")
    )
    budgets = tuple(int(b) for b in forced["budget"].unique().sort())
    matrices: dict[str, NDArray[np.float64]] = {}
    accuracy: dict[str, NDArray[np.float64]] = {}
    length: dict[str, NDArray[np.float64]] = {}
    for name in whole["benchmark"].unique(maintain_order=True):
        own = whole.filter(pl.col("benchmark") == name)
        cells = forced.filter(pl.col("benchmark") == name)
        if cells.height != own.height * len(budgets):
            raise problem(
                "E0431",
                f"`{arm}` has {cells.height} forced scores for {own.height} questions at {len(budgets)} budgets",
                where=str(name),
                help="evaluate every benchmark on one grid",
            )
        matrices[name] = cells["correct"].to_numpy().reshape(own.height, len(budgets))
        accuracy[name], length[name] = own["correct"].to_numpy(), own["tokens"].to_numpy()
    return ArmScores(matrices, accuracy, length), budgets
