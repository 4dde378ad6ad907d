"""Charts of the report: material in, Altair charts out; each works alone in a notebook and together on the page.

Charts of one value a benchmark come as one chart each, so that a page can lay them out for its width.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import altair as alt
import polars as pl

from reodsl.report import theme
from reodsl.report.material import MEAN, Material, title

WIDTH, HEIGHT = 460, 280
MOST_POINTS = 400
Scale = Literal["linear", "log"]


def curves(
    material: Material,
    benchmark: str = MEAN,
    lines: Sequence[str] | None = None,
    scale: Scale = "linear",
    width: int | Literal["container"] = WIDTH,
) -> alt.LayerChart:
    """Accuracy of forced answers over budgets: a line an arm (mean over seeds, its range shaded) and the frontier.

    With the parameter `focus` set to an arm, the others fade and its gap to the frontier, which is its REG, is filled.
    """
    chosen = list(material.arms if lines is None else [name for name in lines if name in material.arms])
    data = _values(_curve_rows(material, benchmark, chosen))
    edge = _values(_edge_rows(material, benchmark))
    score = material.study.score
    x = alt.X("budget:Q", title="budget (tokens of the response)", scale=_scale(data, edge, scale))
    focus = alt.param(name="focus", value="")
    shown = "datum.arm === focus"
    strength = alt.condition(f"focus === '' || {shown}", alt.value(1.0), alt.value(0.15))
    colour = _colour(material, chosen)
    base = alt.Chart(data)
    gap = base.mark_area(opacity=0.22).encode(x=x, y="edge:Q", y2="accuracy:Q", color=colour)
    band = base.mark_area(opacity=0.14).encode(x=x, y="low:Q", y2="high:Q", color=colour)
    line = base.mark_line(strokeWidth=2, interpolate="linear").encode(
        x=x,
        y=alt.Y("accuracy:Q", title="accuracy", axis=alt.Axis(format="%")),
        color=colour,
        opacity=strength,
    )
    points = base.mark_point(filled=True, size=60, opacity=0).encode(
        x=x,
        y="accuracy:Q",
        color=colour,
        tooltip=[
            alt.Tooltip("arm:N"),
            alt.Tooltip("budget:Q", format=","),
            alt.Tooltip("accuracy:Q", format=".1%"),
            alt.Tooltip("edge:Q", title="frontier", format=".1%"),
        ],
    )
    frontier = (
        alt.Chart(edge)
        .mark_line(strokeWidth=2.5, strokeDash=[6, 3], style="frontier")
        .encode(
            x=x,
            y="accuracy:Q",
            tooltip=[
                alt.Tooltip("budget:Q", format=","),
                alt.Tooltip("accuracy:Q", title="frontier", format=".1%"),
                alt.Tooltip("arms:N", title="reached by"),
            ],
        )
    )
    filled = gap.transform_filter(f"{shown} && isValid(datum.edge)" + (f" && datum.budget <= {score.to}" if score else ""))
    layers = [band.transform_filter("datum.high > datum.low"), filled, line, frontier, points]
    return alt.layer(*layers).add_params(focus).properties(width=width, height=HEIGHT, title=title(benchmark))


def scatter(
    material: Material,
    table: pl.DataFrame,
    benchmark: str = MEAN,
    measure: Literal["accuracy", "reg"] = "accuracy",
    lines: Sequence[str] | None = None,
    width: int | Literal["container"] = WIDTH,
) -> alt.LayerChart:
    """Accuracy (or REG) over mean response length, an arm a point: its REG is the fill, green where the gap is small.

    `table` is `tables.main`. Bars are the intervals of the score with one seed, one standard deviation with several.
    """
    chosen = list(material.arms if lines is None else lines)
    rows = table.filter((pl.col("benchmark") == benchmark) & pl.col("arm").is_in(chosen))
    has_reg = "reg" in rows.columns
    data = _values(_with_ends(rows, ["accuracy", "length", *(["reg"] if has_reg else [])]))
    y_format = "%" if measure == "accuracy" else "~s"
    y_title = "accuracy" if measure == "accuracy" else "REG (tokens)"
    x = alt.X("length:Q", title="mean response length (tokens)", scale=alt.Scale(zero=False, padding=28))
    y = alt.Y(
        f"{measure}:Q", title=y_title, axis=alt.Axis(format=y_format), scale=alt.Scale(zero=False, padding=22)
    )
    fill = (
        alt.Color(
            "reg:Q",
            title="REG (tokens)",
            scale=alt.Scale(range=["#1a9850", "#a6d96a", "#fee08b", "#f46d43", "#a50026"], interpolate="lab"),
            legend=alt.Legend(orient="right", gradientLength=140),
        )
        if has_reg
        else _colour(material, chosen)
    )
    base = alt.Chart(data)
    point = base.mark_circle(size=190, opacity=1, strokeWidth=1.2).encode(
        x=x, y=y, color=fill, tooltip=_tooltips(rows.columns)
    )
    name = base.mark_text(dy=-15, fontWeight=600, style="ink").encode(x=x, y=y, text="arm:N")
    across = base.mark_rule(opacity=0.6, style="rule").encode(x=alt.X("length_low:Q"), x2="length_high:Q", y=y)
    along = base.mark_rule(opacity=0.6, style="rule").encode(x=x, y=f"{measure}_low:Q", y2=f"{measure}_high:Q")
    return alt.layer(across, along, point, name).properties(width=width, height=330, title=title(benchmark))


def gaps(material: Material, table: pl.DataFrame, width: int | Literal["container"] = WIDTH) -> alt.LayerChart:
    """REG of each arm on the mean over benchmarks: a dot with its interval, smallest first; 0 is the frontier."""
    rows = table.filter((pl.col("benchmark") == MEAN) & pl.col("reg").is_not_null())
    data = _values(_with_ends(rows, ["reg"]))
    y = alt.Y("arm:N", title=None, sort=alt.EncodingSortField("reg"), axis=alt.Axis(labelFontSize=12, labelLimit=220))
    colour = _colour(material, list(material.arms))
    base = alt.Chart(data)
    x = alt.X("reg:Q", title="REG (tokens): area between the frontier and the arm's curve")
    zero = alt.Chart(alt.InlineData(values=[{"at": 0}])).mark_rule(style="frontier", strokeDash=[6, 3]).encode(x="at:Q")
    bar = base.mark_rule(strokeWidth=3, opacity=0.45).encode(x=alt.X("reg_low:Q"), x2="reg_high:Q", y=y, color=colour)
    dot = base.mark_circle(size=130, opacity=1).encode(x=x, y=y, color=colour, tooltip=_tooltips(rows.columns))
    name = base.mark_text(dy=-13, style="ink").encode(x=x, y=y, text=alt.Text("reg:Q", format=",.1f"))
    height = max(140, 42 * rows.height)
    return alt.layer(zero, bar, dot, name).properties(width=width, height=height, title="Average")


LABELS = {
    "reward": "reward",
    "accuracy": "accuracy",
    "length": "response length (tokens)",
    "loss": "loss",
    "entropy": "entropy (nats a token)",
    "clip_fraction": "share of clipped tokens",
    "grad_norm": "gradient norm",
    "lr": "learning rate",
    "ratio_error": "log-probability mismatch",
    "seconds_update": "seconds for the update",
}


def training(
    material: Material,
    metric: str,
    method: str,
    lines: Sequence[str] | None = None,
    width: int | Literal["container"] = WIDTH,
) -> alt.LayerChart:
    """A metric over an arm's steps, stages one after another: its mean over seeds in bold, each seed thin.

    Only stages of `method` (ppo, sft, simpo) are drawn. Long runs are thinned to the mean of even stretches of steps.
    """
    rows = training_rows(material, metric, method)
    chosen = [arm for arm in material.arms if arm in set(rows["arm"]) and (lines is None or arm in lines)]
    rows = rows.filter(pl.col("arm").is_in(chosen))
    colour = _colour(material, chosen)
    focus = alt.param(name="focus", value="")
    faded = alt.condition("focus === '' || datum.arm === focus", alt.value(1.0), alt.value(0.12))
    x = alt.X("at:Q", title="step", axis=alt.Axis(tickMinStep=1))
    axis = alt.Axis(format="%") if metric in ("accuracy", "clip_fraction") else alt.Axis(format="~s")
    y = alt.Y(f"{metric}:Q", title=LABELS.get(metric, metric), axis=axis, scale=alt.Scale(zero=False))
    several = rows["seed"].n_unique() > 1
    mean = rows.group_by("arm", "at", maintain_order=True).agg(pl.col(metric).mean())
    line = (
        alt.Chart(_values(mean))
        .mark_line(strokeWidth=2, point=alt.OverlayMarkDef(size=14) if mean.height < 3 * len(chosen) else False)
        .encode(
            x=x,
            y=y,
            color=colour,
            opacity=faded,
            tooltip=[alt.Tooltip("arm:N"), alt.Tooltip("at:Q", title="step"), alt.Tooltip(f"{metric}:Q", format=".4~g")],
        )
    )
    layers = [line]
    if several:
        thin = alt.Chart(_values(rows)).mark_line(strokeWidth=0.8, opacity=0.35)
        layers.insert(0, thin.encode(x=x, y=y, color=colour, detail="seed:N"))
    return alt.layer(*layers).add_params(focus).properties(width=width, height=210, title=LABELS.get(metric, metric))


def training_rows(material: Material, metric: str, method: str) -> pl.DataFrame:
    """Rows arm, seed, at, and the metric, for the stages of a method; at most `MOST_POINTS` a line."""
    empty = pl.DataFrame(schema={"arm": pl.String, "seed": pl.Int64, "at": pl.Int64, metric: pl.Float64})
    if metric not in material.metrics.columns:
        return empty
    rows = (
        material.metrics.filter((pl.col("method") == method) & pl.col(metric).is_not_null() & pl.col(metric).is_finite())
        .select("arm", "seed", "at", pl.col(metric).cast(pl.Float64))
        .sort("arm", "seed", "at")
    )
    if not rows.height:
        return empty
    longest = int(rows["at"].max()) - int(rows["at"].min()) + 1  # type: ignore[arg-type]
    stretch = -(-longest // MOST_POINTS)
    if stretch == 1:
        return rows
    place = (pl.col("at") // stretch).alias("_place")
    return (
        rows.group_by("arm", "seed", place, maintain_order=True)
        .agg(pl.col("at").last(), pl.col(metric).mean())
        .drop("_place")
    )


def _curve_rows(material: Material, benchmark: str, arms: Sequence[str]) -> pl.DataFrame:
    rows = material.curves.filter((pl.col("benchmark") == benchmark) & pl.col("name").is_in(list(arms)))
    mean = rows.group_by("name", "budget").agg(
        pl.col("accuracy").mean(), pl.col("accuracy").min().alias("low"), pl.col("accuracy").max().alias("high")
    )
    edge = _edge_rows(material, benchmark).select("budget", pl.col("accuracy").alias("edge"))
    return mean.join(edge, on="budget", how="left").rename({"name": "arm"}).sort("arm", "budget")


def _edge_rows(material: Material, benchmark: str) -> pl.DataFrame:
    """The scored frontier, mean over seeds, with the arms that reach it in any of them."""
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


def _with_ends(rows: pl.DataFrame, measures: Sequence[str]) -> pl.DataFrame:
    """Ends of the bars: the interval where there is one, else one standard deviation, else the value itself."""
    columns = []
    for measure in measures:
        sd = pl.col(f"{measure}_sd") if f"{measure}_sd" in rows.columns else pl.lit(0.0)
        for end, sign in (("low", -1), ("high", 1)):
            name = f"{measure}_{end}"
            known = pl.col(name) if name in rows.columns else pl.lit(None, pl.Float64)
            columns.append(pl.coalesce(known, pl.col(measure) + sign * sd.fill_null(0.0)).alias(name))
    return rows.with_columns(columns)


def _tooltips(columns: Sequence[str]) -> list[alt.Tooltip]:
    shown = [
        alt.Tooltip("arm:N"),
        alt.Tooltip("accuracy:Q", format=".1%"),
        alt.Tooltip("length:Q", format=",.1f"),
    ]
    if "reg" in columns:
        shown.append(alt.Tooltip("reg:Q", title="REG", format=",.1f"))
    return shown


def _colour(material: Material, arms: Sequence[str]) -> alt.Color:
    chosen = theme.colours(material.arms, material.bases)
    scale = alt.Scale(domain=list(arms), range=[chosen[arm] for arm in arms])
    return alt.Color("arm:N", scale=scale, legend=alt.Legend(title=None, orient="bottom", columns=4))


def _scale(data: alt.InlineData, edge: alt.InlineData, scale: Scale) -> alt.Scale:
    """A linear axis, or one that is linear up to the smallest budget above 0 and logarithmic past it."""
    if scale == "linear":
        return alt.Scale(nice=False, zero=True)
    rows: list[Any] = [*data.values, *edge.values]
    return alt.Scale(type="symlog", constant=min((r["budget"] for r in rows if r["budget"] > 0), default=1), nice=False)


def _values(frame: pl.DataFrame) -> alt.InlineData:
    """Rows inline, rounded to six digits: what a page shows, at a fraction of the bytes."""
    return alt.InlineData(values=[{k: _short(v) for k, v in row.items()} for row in frame.to_dicts()])


def _short(value: Any) -> Any:
    return float(f"{value:.6g}") if isinstance(value, float) else value
