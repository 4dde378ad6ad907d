"""Charts of arms as points: accuracy or REG over length, and REG with its intervals."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import altair as alt
import polars as pl

from reodsl.report.chart_parts import WIDTH, Rows, Width, colour, tooltips
from reodsl.report.labels import EDGE, sides
from reodsl.report.material import MEAN, Material, title

HEIGHT = 330
GOOD_TO_BAD = ("#1a9850", "#a6d96a", "#fee08b", "#f46d43", "#a50026")


def scatter(
    material: Material,
    table: pl.DataFrame,
    benchmark: str = MEAN,
    measure: Literal["accuracy", "reg"] = "accuracy",
    lines: Sequence[str] | None = None,
    width: Width = WIDTH,
) -> alt.LayerChart:
    """Accuracy (or REG) over mean response length, an arm a point: its REG is the fill, green where the gap is small.

    `table` is `tables.main`. Bars are the intervals of the score, and one standard deviation over seeds where there is none.
    """
    arms = [name for name in material.arms if lines is None or name in lines]
    rows = table.filter((pl.col("benchmark") == benchmark) & pl.col("arm").is_in(arms))
    measures = [m for m in ("accuracy", "length", "reg") if m in rows.columns]
    datasets = Rows()
    data = datasets.add(_with_ends(rows, measures))
    x = alt.X("length:Q", title="mean response length (tokens)", scale=alt.Scale(zero=False, padding=EDGE))
    y = alt.Y(
        f"{measure}:Q",
        title="accuracy" if measure == "accuracy" else "REG (tokens)",
        # Room for names may reach past 100%, which no accuracy does.
        axis=alt.Axis(format="%", labelExpr="datum.value > 1 || datum.value < 0 ? '' : datum.label")
        if measure == "accuracy"
        else alt.Axis(format="~s"),
        scale=alt.Scale(zero=False, padding=EDGE),
    )
    legend = alt.Legend(orient="bottom", direction="horizontal", gradientLength=180, titleOrient="left")
    shade = alt.Scale(range=list(GOOD_TO_BAD), interpolate="lab")
    fill = alt.Color("reg:Q", title="REG (tokens)", scale=shade, legend=legend)
    point = (
        alt.Chart(data)
        .mark_circle(size=190, opacity=1)
        .encode(
            x=x,
            y=y,
            color=fill if "reg" in measures else colour(material, arms),
            tooltip=tooltips(rows.columns),
        )
    )
    names = [
        alt.Chart(datasets.add(part))
        .mark_text(dx=dx, dy=dy, align=align, fontWeight=600, style="ink")
        .encode(x=x, y=y, text="arm:N")
        for (dx, dy, align), part in sides(rows, "length", measure, HEIGHT)
    ]
    rule = alt.Chart(data).mark_rule(opacity=0.6, style="rule")
    across = rule.encode(x="length_low:Q", x2="length_high:Q", y=y)
    along = rule.encode(x=x, y=f"{measure}_low:Q", y2=f"{measure}_high:Q")
    chart = alt.layer(across, along, point, *names)
    about = f"{measure} over mean response length, {title(benchmark)}: {_said(rows, measure)}."
    return datasets.put(
        chart.properties(width=width, height=HEIGHT, title=title(benchmark), description=about)
    )


def gaps(material: Material, table: pl.DataFrame, width: Width = WIDTH) -> alt.LayerChart:
    """REG of each arm on the mean over benchmarks: a dot with its interval, smallest first; 0 is the frontier."""
    rows = table.filter((pl.col("benchmark") == MEAN) & pl.col("reg").is_not_null())
    datasets = Rows()
    data = datasets.add(_with_ends(rows, ["reg"]))
    names = alt.Axis(labelFontSize=12, labelLimit=220)
    y = alt.Y("arm:N", title=None, sort=alt.EncodingSortField("reg"), axis=names)
    x = alt.X("reg:Q", title="REG (tokens): area between the frontier and the arm's curve")
    tint = colour(material, list(rows["arm"]))
    zero = alt.Chart(datasets.add(pl.DataFrame({"at": [0]}))).mark_rule(style="frontier", strokeDash=[6, 3])
    bar = alt.Chart(data).mark_rule(strokeWidth=3, opacity=0.45)
    dot = alt.Chart(data).mark_circle(size=130, opacity=1)
    # Beside the rule at 0, not across it.
    name = alt.Chart(data).mark_text(dx=5, dy=-13, align="left", style="ink")
    chart = alt.layer(
        zero.encode(x="at:Q"),
        bar.encode(x="reg_low:Q", x2="reg_high:Q", y=y, color=tint),
        dot.encode(x=x, y=y, color=tint, tooltip=tooltips(rows.columns)),
        name.encode(x=x, y=y, text=alt.Text("reg:Q", format=",.1f")),
    )
    height = max(HEIGHT, 34 * rows.height)
    ordered = rows.sort("reg")
    listed = ", ".join(f"{arm} {reg:.1f}" for arm, reg in zip(ordered["arm"], ordered["reg"], strict=True))
    about = f"REG in tokens on average, smallest first: {listed}."
    return datasets.put(chart.properties(width=width, height=height, title=title(MEAN), description=about))


def _said(rows: pl.DataFrame, measure: str) -> str:
    """Each arm's point in words."""
    form = ".1%" if measure == "accuracy" else ".1f"
    known = rows.filter(pl.col(measure).is_not_null() & pl.col("length").is_not_null())
    return ", ".join(
        f"{row['arm']} {row[measure]:{form}} at {row['length']:.1f} tokens" for row in known.to_dicts()
    )


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
