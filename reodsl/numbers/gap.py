"""Split what an arm loses below full accuracy by its causes: docs/SCIENCE.md derives it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from reodsl.numbers.intervals import column_weights
from reodsl.numbers.reg import integration_grid

if TYPE_CHECKING:
    import polars as pl

CAUSES = {
    "before": "before an answer was right",
    "after": "after it was right",
    "given_up": "given up too early",
    "unsolved": "never solved",
}
"""The causes of budgets at which an answer is wrong, in the order of a response, with words for them."""
KEYS = ("benchmark", "question", "sample")


def weigh(budgets: Sequence[int], to: int | None = None) -> dict[int, float]:
    """Return the tokens that each budget stands for in the integral up to `to`, or up to the last budget."""
    points = integration_grid(to or budgets[-1], budgets)
    weights = column_weights(budgets, points)
    return {b: float(w) for b, w in zip(budgets, weights, strict=True) if b <= points[-1] or w > 0}


def split_losses(forced: pl.LazyFrame, weights: Mapping[int, float]) -> pl.LazyFrame:
    """Return the tokens that each response loses to each of `CAUSES`, from rows of `forced.parquet`.

    Together they are the integral of 1 less whether its answer is right.
    """
    import polars as pl

    weight, budget, wrong = pl.col("weight"), pl.col("budget"), ~pl.col("correct")
    first = budget.filter(pl.col("correct")).min()
    schema = {"budget": pl.Int64, "weight": pl.Float64}
    table = pl.LazyFrame(list(weights.items()), schema=schema, orient="row")
    rows = (
        forced.join(table, on="budget")
        .group_by(KEYS)
        .agg(
            first.is_not_null().alias("solved"),
            weight.filter(wrong).sum().alias("whole"),
            weight.filter(wrong & (budget > first)).sum().alias("after"),
            weight.filter(wrong & ~pl.col("forced") & first.is_null()).sum().alias("given_up"),
        )
        .with_columns(pl.col("solved").any().over("benchmark", "question"))
    )
    known = pl.when("solved")
    return rows.select(
        *KEYS,
        known.then(pl.col("whole") - pl.col("after") - pl.col("given_up")).otherwise(0.0).alias("before"),
        known.then("after").otherwise(0.0).alias("after"),
        known.then("given_up").otherwise(0.0).alias("given_up"),
        known.then(0.0).otherwise("whole").alias("unsolved"),
    ).sort(KEYS)
