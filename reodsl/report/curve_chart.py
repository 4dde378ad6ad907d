"""The budget-accuracy chart: arms' curves and the frontier on one benchmark."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import altair as alt
import polars as pl

from reodsl.report import theme
from reodsl.report.chart_parts import (
    ON,
    SHOWN,
    WIDTH,
    Cross,
    Rows,
    Width,
    colour,
    dash,
    ends,
    faded,
    focus,
    switches,
)
from reodsl.report.material import MEAN, Material, title

HEIGHT = 280
Scale = Literal["linear", "log"]


def curves(
    material: Material,
    benchmark: str = MEAN,
    lines: Sequence[str] | None = None,
    scale: Scale = "linear",
    width: Width = WIDTH,
) -> alt.LayerChart:
    """Accuracy of forced answers over budgets: a line an arm (mean over seeds, its range shaded) and the frontier.

    Every arm is in the chart; those not among `lines` are switched off, by the parameter `off`.
    With the parameter `focus` set to an arm, the others fade and its gap to the frontier, which is its REG, is filled.
    """
    arms = list(material.arms)
    shown = [name for name in arms if lines is None or name in lines]
    rows, edges = curve_rows(material, benchmark, arms), frontier_rows(material, benchmark)
    datasets = Rows()
    data = datasets.add(rows)
    x = _budget_axis([*rows["budget"], *edges["budget"]], scale)
    y = alt.Y("accuracy:Q", title="accuracy", axis=alt.Axis(format="%"))
    tint = colour(material, arms, shown)
    dashed = dash(material, arms)
    layers: list[alt.Chart] = []
    inside = rows.filter(pl.col("edge").is_not_null() & (pl.col("budget") <= _reach(material)))
    if inside.height:
        filled = alt.condition(SHOWN, alt.value(0.25), alt.value(0))
        gap = alt.Chart(datasets.add(inside)).transform_filter(ON).mark_area()
        layers.append(gap.encode(x=x, y="edge:Q", y2="accuracy:Q", color=tint, opacity=filled))
    if rows.filter(pl.col("high") > pl.col("low")).height:
        band = alt.Chart(data).transform_filter(ON).mark_area(opacity=0.14)
        layers.append(band.encode(x=x, y="low:Q", y2="high:Q", color=tint))
    line = alt.Chart(data).transform_filter(ON).mark_line(strokeWidth=2)
    lined = line.encode(x=x, y=y, color=tint, opacity=faded(0.15), **dashed)
    tooltip = [
        alt.Tooltip("arm:N"),
        alt.Tooltip("budget:Q", format=","),
        alt.Tooltip("accuracy:Q", format=".1%"),
        alt.Tooltip("edge:Q", title="frontier", format=".1%"),
    ]
    points = alt.Chart(data).transform_filter(ON).mark_point(filled=True, size=60, opacity=0)
    pointed = points.encode(x=x, y=y, color=tint, tooltip=tooltip)
    edge_data = datasets.add(edges.with_columns(pl.lit("frontier").alias("line"))) if edges.height else None
    if edge_data is not None:
        edge = alt.Chart(edge_data)
        tooltip = [
            alt.Tooltip("budget:Q", format=","),
            alt.Tooltip("accuracy:Q", title="frontier", format=".1%"),
            alt.Tooltip("arms:N", title="reached by"),
        ]
        halo = edge.mark_line(strokeWidth=7, opacity=0.16, style="frontier").encode(x=x, y=y)
        dashes = edge.mark_line(strokeWidth=1.6, style="frontier")
        layers += [halo, lined, dashes.encode(x=x, y=y, tooltip=tooltip, strokeDash=_dashed()), pointed]
    else:
        layers += [lined, pointed]
    chart = alt.layer(*layers).add_params(focus(), switches([name for name in arms if name not in shown]))
    if dashed:
        chart = chart.resolve_scale(strokeDash="independent")
    about = f"Accuracy by budget in tokens, {title(benchmark)}: {ends(rows, 'budget', 'accuracy', '.1%')}."
    return datasets.put(
        chart.properties(width=width, height=HEIGHT, title=title(benchmark), description=about),
        Cross(
            "budget",
            "accuracy",
            data.name,
            percent=True,
            edge=edge_data.name if edge_data is not None else None,
        ),
    )


def curve_rows(material: Material, benchmark: str, arms: Sequence[str]) -> pl.DataFrame:
    """arm, budget, accuracy (mean over seeds), low and high (over seeds), and the frontier there as `edge`."""
    rows = material.curves.filter((pl.col("benchmark") == benchmark) & pl.col("name").is_in(list(arms)))
    mean = rows.group_by("name", "budget").agg(
        pl.col("accuracy").mean(),
        pl.col("accuracy").min().alias("low"),
        pl.col("accuracy").max().alias("high"),
    )
    edge = frontier_rows(material, benchmark).select("budget", pl.col("accuracy").alias("edge"))
    return mean.join(edge, on="budget", how="left").rename({"name": "arm"}).sort("arm", "budget")


def frontier_rows(material: Material, benchmark: str) -> pl.DataFrame:
    """budget, accuracy of the scored frontier (mean over seeds), and `arms`, those that reach it in any of them."""
    rows = material.frontier().filter(pl.col("benchmark") == benchmark)
    mean = rows.group_by("budget").agg(pl.col("accuracy").mean()).sort("budget")
    if not material.winners.height or not rows.height:
        return mean.with_columns(pl.lit(None, pl.String).alias("arms"))
    winners = (
        material.winners.filter(pl.col("winner") & (pl.col("benchmark") == benchmark))
        .join(rows.select("name").unique(), on="name", how="semi")
        .group_by("budget")
        .agg(pl.col("arm").unique().sort().str.join(", ").alias("arms"))
    )
    return mean.join(winners, on="budget", how="left", maintain_order="left")


def _dashed() -> alt.StrokeDash:
    """The frontier's dashes, with an entry of their own in the legend: it is not an arm and has none of their colours."""
    scale = alt.Scale(domain=["frontier"], range=[[5, 3]])
    legend = alt.Legend(title=None, orient="bottom", symbolStrokeColor=theme.FRONTIER_KEY, symbolSize=220)
    return alt.StrokeDash("line:N", scale=scale, legend=legend)


def _budget_axis(budgets: Sequence[int], scale: Scale) -> alt.X:
    """Budgets on a linear axis, or on one that is linear up to the smallest budget above 0 and logarithmic past it."""
    name = "budget (tokens of the response)"
    if scale == "linear" or not budgets:
        linear = alt.Scale(nice=False, zero=True)
        return alt.X("budget:Q", title=name, scale=linear, axis=alt.Axis(labelOverlap="greedy"))
    least, most = min((b for b in budgets if b > 0), default=1), max(budgets)
    ticks = [0, *(2**k for k in range(most.bit_length() + 1) if least <= 2**k <= most)]
    symlog = alt.Scale(type="symlog", constant=least, nice=False)
    axis = alt.Axis(values=ticks, labelOverlap="greedy", format=",d")
    return alt.X("budget:Q", title=f"{name}, logarithmic", scale=symlog, axis=axis)


def _reach(material: Material) -> int:
    """How far REG integrates, in tokens; without a score, as far as curves go."""
    score = material.study.score
    return score.to if score is not None else int(material.curves["budget"].max() or 0)  # type: ignore[arg-type]
