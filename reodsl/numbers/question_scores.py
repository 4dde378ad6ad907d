"""Read an evaluation's scores as matrices over questions and budgets, in one order for all arms."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import combinations
from pathlib import Path

import numpy as np
import polars as pl
from numpy.typing import NDArray

from reodsl.diagnostics import problem
from reodsl.numbers.arm_scores import ArmScores
from reodsl.numbers.verdict import Common, common_responses

LOT = 1 << 21
"""Rows of forced answers that are aggregated at once."""


def common_of(folders: Mapping[tuple[str, int | None], Path]) -> dict[frozenset[str], Common]:
    """Return how many responses every two arms have in common, by the evaluations of arms and seeds."""
    parts: dict[str, list[pl.DataFrame]] = {}
    for (arm, seed), folder in folders.items():
        rows = pl.scan_parquet(folder / "samples.parquet", glob=False).select(
            "benchmark", "question", "sample", pl.col("response").hash()
        )
        of_seed = rows if seed is None else rows.with_columns(pl.lit(seed).alias("seed"))
        parts.setdefault(arm, []).append(of_seed.collect(engine="streaming"))
    arms = {arm: pl.concat(frames) for arm, frames in parts.items()}
    return {
        frozenset((one, two)): common_responses(arms[one], arms[two]) for one, two in combinations(arms, 2)
    }


def arm_scores(folder: Path, arm: str, lot: int = LOT) -> tuple[ArmScores, tuple[int, ...]]:
    """An arm's scores by benchmark, questions sorted by their ids, and the budgets that its answers were forced at.

    Files of any size are aggregated as they are read, `lot` rows at a time: what is held are the scores, eight bytes for
    each question and budget. A Problem (E0431) where a question lacks a budget, or its budgets differ between benchmarks.
    """
    whole = (
        pl.scan_parquet(folder / "samples.parquet", glob=False)
        .group_by("benchmark", "question")
        .agg(pl.col("correct").cast(pl.Float64).mean(), pl.col("tokens").cast(pl.Float64).mean())
        .sort("benchmark", "question")
        .collect(engine="streaming")
        .with_row_index("row")
    )
    forced = pl.scan_parquet(folder / "forced.parquet", glob=False)
    column = forced.select(pl.col("budget").unique().sort()).collect(engine="streaming")["budget"]
    budgets = tuple(int(budget) for budget in column)
    rows = forced.select(pl.len()).collect(engine="streaming").item()
    right = np.zeros((whole.height, len(budgets)))
    counts = np.zeros((whole.height, len(budgets)), dtype=np.int32)
    places = whole.select("benchmark", "question", "row")
    for first in range(0, rows, lot):
        cells = (
            forced.slice(first, lot)
            .group_by("benchmark", "question", "budget")
            .agg(pl.col("correct").cast(pl.Float64).sum(), pl.len())
            .collect(engine="streaming")
            .join(places, on=["benchmark", "question"])
        )
        at = cells["row"].to_numpy(), np.searchsorted(budgets, cells["budget"].to_numpy())
        right[at] += cells["correct"].to_numpy()
        counts[at] += cells["len"].to_numpy().astype(np.int32)
    matrices: dict[str, NDArray[np.float64]] = {}
    accuracy: dict[str, NDArray[np.float64]] = {}
    length: dict[str, NDArray[np.float64]] = {}
    for name in whole["benchmark"].unique(maintain_order=True):
        of_benchmark = whole.filter(pl.col("benchmark") == name)
        mine = slice(of_benchmark["row"][0], of_benchmark["row"][-1] + 1)
        there = np.count_nonzero(counts[mine])
        if there != of_benchmark.height * len(budgets):
            raise problem(
                "E0431",
                f"`{arm}` has {there} forced scores for {of_benchmark.height} questions at {len(budgets)} budgets",
                where=str(name),
                help="evaluate every benchmark on one grid",
            )
        matrices[name] = right[mine] / counts[mine]
        accuracy[name], length[name] = of_benchmark["correct"].to_numpy(), of_benchmark["tokens"].to_numpy()
    return ArmScores(matrices, accuracy, length), budgets
