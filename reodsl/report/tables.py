"""Tables of the report: material in, tidy polars frames out (a row for each arm and benchmark, numbers unrounded)."""

from __future__ import annotations

import polars as pl

from reodsl.report.material import MEAN, Material

MEASURES = ("accuracy", "length", "reg")


def per_seed(material: Material) -> pl.DataFrame:
    """A row for each arm, seed and benchmark (`mean` last): accuracy (share), length and REG (tokens), with the
    score's intervals and changes where there is a score; arms in the order of the study."""
    if material.scores.height:
        frame = material.scores
        known = frame.select("arm").unique()
        rest = material.summary.join(known, on="arm", how="anti")
        frame = pl.concat(
            [frame, rest.select("arm", "seed", "benchmark", "accuracy", "length")], how="diagonal_relaxed"
        )
    else:
        frame = material.summary.select("arm", "seed", "benchmark", "accuracy", "length")
    extra = material.summary.select(
        "arm", pl.col("seed").alias("own"), "benchmark", "questions", "samples", "unfinished"
    )
    # An arm without a seed of its own is scored once a seed, against each seed's frontier.
    joined = (
        frame.join(extra, on=["arm", "benchmark"], how="left")
        .filter(pl.col("own").is_null() | pl.col("seed").is_null() | (pl.col("own") == pl.col("seed")))
        .drop("own")
    )
    return _ordered(joined, material, "seed")


def main(material: Material) -> pl.DataFrame:
    """The paper's table, long: a row for each arm and benchmark, means over seeds.

    `seeds` counts them. `<measure>_sd` is the standard deviation over seeds (n - 1), null with one. `<measure>_low`
    and `_high` are the score's bootstrap interval with one seed, null with several. `change_pct` compares mean REG
    with the arm `relative_to`; `change_low` and `change_high` are its interval with one seed, and the smallest
    and largest seed with several. `accuracy_change` is a difference of shares, `length_pct` a relative change.
    """
    frame = per_seed(material)
    measures = [m for m in MEASURES if m in frame.columns]
    single = pl.len() == 1
    bounds = [f"{m}_{end}" for m in measures for end in ("low", "high") if f"{m}_{end}" in frame.columns]
    spread: list[pl.Expr] = []
    for change, stem in (("change_pct", "change"), ("accuracy_change", "accuracy_change")):
        if change in frame.columns:
            column = pl.col(change)
            for end, edge in (("low", column.min()), ("high", column.max())):
                bound = pl.col(f"{stem}_{end}").first() if f"{stem}_{end}" in frame.columns else None
                spread.append(pl.when(single).then(bound).otherwise(edge).alias(f"{stem}_{end}"))
    table = frame.group_by("arm", "benchmark", maintain_order=True).agg(
        pl.len().alias("seeds"),
        *[pl.col(m).mean() for m in measures],
        *[pl.when(~single).then(pl.col(m).std()).alias(f"{m}_sd") for m in measures],
        *[pl.when(single).then(pl.col(bound).first()).alias(bound) for bound in bounds],
        *spread,
    )
    return _ordered(_changes(table, material), material)


def _changes(table: pl.DataFrame, material: Material) -> pl.DataFrame:
    score = material.study.score
    baseline = score.relative_to if score is not None else None
    if baseline is None or baseline not in set(table["arm"]):
        return table
    measures = [m for m in MEASURES if m in table.columns]
    reference = table.filter(pl.col("arm") == baseline).select(
        "benchmark", *[pl.col(m).alias(f"{m}_of_baseline") for m in measures]
    )
    other = pl.col("arm") != baseline
    columns = {
        "accuracy_change": pl.col("accuracy") - pl.col("accuracy_of_baseline"),
        "length_pct": _percent("length"),
    }
    if "reg" in measures:
        columns["change_pct"] = _percent("reg")
    columns |= {
        name: pl.col(name) for name in table.columns if name.startswith(("change_", "accuracy_change_"))
    }
    return (
        table.join(reference, on="benchmark", how="left", maintain_order="left")
        .with_columns(pl.when(other).then(value).alias(name) for name, value in columns.items())
        .drop([f"{m}_of_baseline" for m in measures])
    )


def _percent(measure: str) -> pl.Expr:
    """The change from the baseline in percent of its size; null where that is 0."""
    base = pl.col(f"{measure}_of_baseline")
    return pl.when(base != 0).then(100 * (pl.col(measure) - base) / base.abs())


def _ordered(frame: pl.DataFrame, material: Material, *more: str) -> pl.DataFrame:
    """Rows by arm as in the study, benchmark as evaluated with `mean` last, then by the columns in `more`."""
    arms = {name: i for i, name in enumerate(material.arms)}
    places = {name: i for i, name in enumerate([*material.benchmarks, MEAN])}
    return (
        frame.filter(pl.col("arm").is_in(list(arms)))
        .with_columns(
            pl.col("arm").replace_strict(arms, return_dtype=pl.Int64).alias("_arm"),
            pl.col("benchmark")
            .replace_strict(places, default=len(places), return_dtype=pl.Int64)
            .alias("_place"),
        )
        .sort("_arm", "_place", *more, nulls_last=False)
        .drop("_arm", "_place")
    )


def frontier(material: Material) -> pl.DataFrame:
    """The scored frontier with the arms that reach it: seed, benchmark, budget, accuracy, and `arms` (joined names)."""
    edge = material.frontier()
    if not material.winners.height or not edge.height:
        return edge.drop("name")
    winners = (
        material.winners.filter(pl.col("winner"))
        .join(edge.select("name").unique(), on="name", how="semi")
        .group_by("seed", "benchmark", "budget")
        .agg(pl.col("arm").sort().str.join(", ").alias("arms"))
    )
    return edge.drop("name").join(
        winners, on=["seed", "benchmark", "budget"], how="left", nulls_equal=True, maintain_order="left"
    )


def winning_shares(material: Material) -> pl.DataFrame:
    """How often each arm makes the frontier: arm, benchmark, share of its budgets (mean over seeds)."""
    table = frontier(material)
    if "arms" not in table.columns:
        return pl.DataFrame(schema={"arm": pl.String, "benchmark": pl.String, "share": pl.Float64})
    rows = table.filter(pl.col("arms").is_not_null())
    total = rows.group_by("benchmark").len("total")
    return (
        rows.group_by(pl.col("arms").alias("arm"), "benchmark")
        .len("count")
        .join(total, on="benchmark")
        .select("arm", "benchmark", (pl.col("count") / pl.col("total")).alias("share"))
        .sort("benchmark", "share", "arm", descending=[False, True, False])
    )
