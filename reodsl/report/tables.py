"""Tables of the report as tidy polars frames: a row for each arm and benchmark, numbers unrounded."""

from __future__ import annotations

import polars as pl

from reodsl.report.material import MEAN, Material

MEASURES = ("accuracy", "length", "reg", "reg_plain")
CHANGES = ("difference", "accuracy_change", "length_change")


def per_seed(material: Material) -> pl.DataFrame:
    """Return the results of each seed, in the order of the page.

    Returns:
        A row for each arm, seed and benchmark (`mean` last): accuracy (share), length (tokens), and the numbers of
        questions, samples and unfinished responses. With a score also REG and plain REG (tokens) and the differences
        from the baseline.
    """
    values = ("arm", "seed", "benchmark", *MEASURES, *CHANGES, "change_pct")
    scores = material.scores
    if scores.height:
        seeded = scores.filter(pl.col("seed").is_not_null())
        seeds = material.summary["seed"].drop_nulls().unique()
        # A score of a single seed has no rows by seed, so its rows over all seeds get this seed.
        only_seed = pl.lit(seeds[0] if len(seeds) == 1 else None, pl.Int64).alias("seed")
        frame = seeded if seeded.height else scores.with_columns(only_seed)
        frame = frame.select(name for name in values if name in frame.columns)
        scored_arms = frame.select("arm").unique()
        unscored = material.summary.join(scored_arms, on="arm", how="anti")
        frame = pl.concat(
            [frame, unscored.select("arm", "seed", "benchmark", "accuracy", "length")], how="diagonal_relaxed"
        )
    else:
        frame = material.summary.select("arm", "seed", "benchmark", "accuracy", "length")
    extra = material.summary.select(
        "arm", pl.col("seed").alias("own"), "benchmark", "questions", "samples", "unfinished"
    )
    # An arm without a seed, such as an untrained model, has the same row in every seed.
    joined = (
        frame.join(extra, on=["arm", "benchmark"], how="left")
        .filter(pl.col("own").is_null() | pl.col("seed").is_null() | (pl.col("own") == pl.col("seed")))
        .drop("own")
    )
    return _sort_rows(joined, material, "seed")


def main(material: Material) -> pl.DataFrame:
    """Return the paper's table in long form: a row for each arm and benchmark, means over seeds.

    Returns:
        `seeds` is the number of seeds, and `<measure>_sd` the standard deviation over seeds (n - 1), null with one
        seed. `difference` (REG, tokens), `accuracy_change` (shares) and `length_change` (tokens) are differences from
        the arm `relative_to`, paired by seed and question, and null for that arm itself. `<name>_low` and `_high` are
        intervals over seeds and questions. `change_pct` is `difference` in percent of that arm's REG, if the interval
        of that REG excludes 0; `length_pct` is the change of length in percent of that arm's length. The study's
        measures have columns by their names.
    """
    frame = per_seed(material)
    measures = [m for m in MEASURES if m in frame.columns]
    table = frame.group_by("arm", "benchmark", maintain_order=True).agg(
        pl.len().alias("seeds"),
        *[pl.col(m).mean() for m in measures],
        *[pl.when(pl.len() > 1).then(pl.col(m).std()).alias(f"{m}_sd") for m in measures],
    )
    return _sort_rows(_measures(_changes(_intervals(table, material), material), material), material)


def _intervals(table: pl.DataFrame, material: Material) -> pl.DataFrame:
    """Return the table with the score's intervals and its differences from the baseline as further columns."""
    scores = material.scores
    if not scores.height:
        return table
    scores = scores.filter(pl.col("seed").is_null())
    added = [
        name
        for name in scores.columns
        if name not in ("arm", "benchmark", "seed") and name not in table.columns
    ]
    return table.join(
        scores.select("arm", "benchmark", *added), on=["arm", "benchmark"], how="left", maintain_order="left"
    )


def _changes(table: pl.DataFrame, material: Material) -> pl.DataFrame:
    """Return the table with the changes of accuracy and length from the baseline; null for the baseline itself.

    The change of accuracy is added if the score does not have it, and `length_pct` always. All other columns of
    differences also become null for the baseline. Without a baseline in the table, it is returned unchanged.
    """
    score = material.study.score
    baseline = score.relative_to if score is not None else None
    if baseline is None or baseline not in set(table["arm"]):
        return table
    reference = table.filter(pl.col("arm") == baseline).select(
        "benchmark", *[pl.col(m).alias(f"{m}_of_baseline") for m in ("accuracy", "length")]
    )
    is_compared = pl.col("arm") != baseline
    columns = {name: pl.col(name) for name in table.columns if name.startswith((*CHANGES, "change_"))}
    columns["length_pct"] = _percent("length")
    if "accuracy_change" not in columns:
        columns["accuracy_change"] = pl.col("accuracy") - pl.col("accuracy_of_baseline")
    return (
        table.join(reference, on="benchmark", how="left", maintain_order="left")
        .with_columns(pl.when(is_compared).then(value).alias(name) for name, value in columns.items())
        .drop("accuracy_of_baseline", "length_of_baseline")
    )


def _measures(table: pl.DataFrame, material: Material) -> pl.DataFrame:
    """Return the table with columns for each measure of the study: value, interval, and change from the baseline."""
    for number, measure in enumerate(material.study.measures):
        name = measure.name
        if name in table.columns or not material.measures.height:
            continue
        ends = {"value": name} | {
            end: f"{name}_{end}" for end in ("low", "high", "change", "change_low", "change_high")
        }
        measure_rows = material.measures.filter(measure=number).select("arm", "benchmark", *ends).rename(ends)
        table = table.join(measure_rows, on=["arm", "benchmark"], how="left", maintain_order="left")
    return table


def _percent(measure: str) -> pl.Expr:
    """Return the change from the baseline in percent of the baseline's size, as a column; null if the baseline is 0.

    Args:
        measure: column that is compared with the column `<measure>_of_baseline`.
    """
    base = pl.col(f"{measure}_of_baseline")
    return pl.when(base != 0).then(100 * (pl.col(measure) - base) / base.abs())


def _sort_rows(frame: pl.DataFrame, material: Material, *columns: str) -> pl.DataFrame:
    """Return the rows of evaluated arms, sorted by arm as on the page, then by benchmark with `mean` last.

    Args:
        frame: rows with the columns `arm` and `benchmark`.
        material: results of the run.
        columns: further columns to sort by.
    """
    benchmarks = {name: i for i, name in enumerate([*material.benchmarks, MEAN])}
    order = pl.col("benchmark").replace_strict(benchmarks, default=len(benchmarks), return_dtype=pl.Int64)
    evaluated = frame.filter(pl.col("arm").is_in(list(material.arms)))
    return material.sort_arms(evaluated.sort(order, *columns, maintain_order=True))


def frontier(material: Material) -> pl.DataFrame:
    """Return the frontier that the study is scored against.

    Returns:
        Columns `seed`, `benchmark`, `budget` (tokens), `accuracy` (share), and `arms`: the names of the arms that reach
        the frontier at that budget, joined by commas in the order of the page, if they were stored.
    """
    edge = material.frontier()
    if not material.winners.height or not edge.height:
        return edge.drop("name")
    won = material.winners.filter(pl.col("winner"))
    winners = (
        material.sort_arms(won.join(edge.select("name").unique(), on="name", how="semi"))
        .group_by("seed", "benchmark", "budget")
        .agg(pl.col("arm").str.join(", ").alias("arms"))
    )
    return edge.drop("name").join(
        winners, on=["seed", "benchmark", "budget"], how="left", nulls_equal=True, maintain_order="left"
    )


def winning_shares(material: Material) -> pl.DataFrame:
    """Return the share of a frontier's budgets at which each arm, or each set of tied arms, is best.

    Returns:
        Columns `arm` (tied arms are joined by commas), `benchmark` and `share`, over the budgets of all seeds.
    """
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
