"""The chart of lengths: the share of each arm's responses by length."""

from __future__ import annotations

from pathlib import Path

import altair as alt
import polars as pl

from reodsl.report.artifacts import reading
from reodsl.report.chart_parts import ON, WIDTH, Cross, Rows, Width, colour, dash, faded, focus, switches
from reodsl.report.material import Material

HEIGHT = 210
BINS = 32
"""Stretches of equal size from 0 to the longest response of any arm."""


def lengths(material: Material, rows: pl.DataFrame, width: Width = WIDTH) -> alt.LayerChart:
    """The share of an arm's responses by length, seeds and benchmarks together; a line an arm, from `length_rows`."""
    arms = [arm for arm in material.arms if arm in set(rows["arm"])]
    datasets = Rows()
    data = datasets.add(rows)
    line = alt.Chart(data).transform_filter(ON).mark_line(strokeWidth=2, interpolate="step-after")
    tooltip = [
        alt.Tooltip("arm:N"),
        alt.Tooltip("tokens:Q", title="from tokens", format=","),
        alt.Tooltip("share:Q", title="responses", format=".1%"),
        alt.Tooltip("right:Q", title="of them right", format=".1%"),
    ]
    lined = line.encode(
        x=alt.X("tokens:Q", title="response length (tokens)"),
        y=alt.Y("share:Q", title="share of responses", axis=alt.Axis(format="%")),
        color=colour(material, arms),
        opacity=faded(0.12),
        tooltip=tooltip,
        **dash(material, arms),
    )
    peaks = rows.sort("share", descending=True).unique("arm", keep="first", maintain_order=True).sort("arm")
    said = ", ".join(
        f"{row['arm']} most often from {row['tokens']:g} tokens on ({row['share']:.0%})"
        for row in peaks.to_dicts()[:12]
    )
    chart = alt.layer(lined).add_params(focus(), switches())
    about = f"Share of responses by length in tokens: {said}."
    return datasets.put(
        chart.properties(width=width, height=HEIGHT, title="response lengths", description=about),
        Cross("tokens", "share", data.name, percent=True),
    )


def length_rows(material: Material) -> pl.DataFrame:
    """arm, tokens (where a stretch begins), share of the arm's responses in it, and right: the share of these."""
    counts: list[pl.DataFrame] = []
    longest = max(
        (_longest(folder / "samples.parquet") for folder in material.evaluations.values()), default=0
    )
    size = max(1, -(-(longest + 1) // BINS))
    for (arm, _), folder in material.evaluations.items():
        path = folder / "samples.parquet"
        if not path.is_file():
            continue
        with reading(path):
            counts.append(
                pl.scan_parquet(path, glob=False)
                .group_by((pl.col("tokens") // size * size).alias("tokens"))
                .agg(pl.len().alias("count"), pl.col("correct").sum().alias("hits"))
                .with_columns(pl.lit(arm).alias("arm"))
                .collect(engine="streaming")
            )
    if not counts:
        return pl.DataFrame(
            schema={"arm": pl.String, "tokens": pl.Int64, "share": pl.Float64, "right": pl.Float64}
        )
    bins = pl.concat(counts).group_by("arm", "tokens").agg(pl.col("count", "hits").sum())
    every = (
        bins.select("arm")
        .unique()
        .join(pl.DataFrame({"tokens": range(0, longest + size + 1, size)}), how="cross")
    )
    return (
        every.join(bins, on=["arm", "tokens"], how="left")
        .with_columns(pl.col("count", "hits").fill_null(0))
        .with_columns(
            (pl.col("count") / pl.col("count").sum().over("arm")).alias("share"),
            pl.when(pl.col("count") > 0).then(pl.col("hits") / pl.col("count")).alias("right"),
        )
        .select("arm", "tokens", "share", "right")
        .sort("arm", "tokens")
    )


def _longest(path: Path) -> int:
    """The most tokens of any response in a file; 0 where there is none."""
    if not path.is_file():
        return 0
    with reading(path):
        return int(pl.scan_parquet(path, glob=False).select(pl.col("tokens").max()).collect().item() or 0)
