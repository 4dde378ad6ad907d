"""Numbers of an evaluation as logs of others have them: means over questions and their standard errors."""

from __future__ import annotations

import math
from typing import Any

import polars as pl

from reodsl.report.material import Material
from reodsl.share.evaluated import Evaluated


def benchmarks(material: Material, one: Evaluated) -> list[str]:
    """The names of what an arm was evaluated on, in the order of the study."""
    there = set(material.summary.filter(pl.col("arm") == one.arm.name)["benchmark"])
    return [name for name in material.benchmarks if name in there]


def mean_and_error(samples: pl.DataFrame, column: str) -> tuple[float, float]:
    """The mean of a column over samples and then questions, and the standard error of that mean over questions.

    The error is the standard deviation (n - 1) of the questions' means over the root of their number; 0 for one question.
    """
    means = samples.group_by("question").agg(pl.col(column).cast(pl.Float64).mean())[column]
    error = float(means.std() or 0.0) / math.sqrt(len(means)) if len(means) > 1 else 0.0  # type: ignore[arg-type]
    return float(means.mean() or 0.0), error  # type: ignore[arg-type]


def curve(material: Material, one: Evaluated, benchmark: str) -> dict[str, float]:
    """Accuracy of forced answers by budget in tokens, which is text here as keys of JSON are."""
    seed = pl.col("seed").is_null() if one.seed is None else pl.col("seed") == one.seed
    rows = material.curves.filter(
        (pl.col("name") == one.arm.name) & seed & (pl.col("benchmark") == benchmark)
    )
    return {str(row["budget"]): row["accuracy"] for row in rows.sort("budget").iter_rows(named=True)}


def score(material: Material, one: Evaluated, benchmark: str) -> dict[str, Any]:
    """The row of the study's score, in tokens: `reg`, `difference` and the like; empty where nothing is scored.

    It is of the evaluation's seed where the score has rows by seed, else over all seeds.
    """
    scores = material.scores
    if not scores.height:
        return {}
    rows = scores.filter((pl.col("arm") == one.arm.name) & (pl.col("benchmark") == benchmark))
    mine = rows.filter(pl.col("seed") == one.seed) if one.seed is not None else rows
    row = next((mine if mine.height else rows.filter(pl.col("seed").is_null())).iter_rows(named=True), {})
    kept = ("reg", "reg_low", "reg_high", "reg_plain", "difference", "difference_low", "difference_high")
    return {name: row[name] for name in kept if row.get(name) is not None and math.isfinite(row[name])}
