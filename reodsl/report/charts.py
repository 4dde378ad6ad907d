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
    rows = _curve_rows(material, benchmark, chosen)
    data, edge = _values(rows), _values(_edge_rows(material, benchmark))
    reach = _reach(material)
    x = _budget_axis(rows["budget"].to_list() + [row["budget"] for row in edge.values], scale)
    focus = alt.param(name="focus", value="")
    shown = "datum.arm === focus"
    strength = alt.condition(f"focus === '' || {shown}", alt.value(1.0), alt.value(0.15))
    colour = _colour(material, chosen)
    base = alt.Chart(data)
    gap = (
        alt.Chart(_values(rows.filter(pl.col("edge").is_not_null() & (pl.col("budget") <= reach))))
        .mark_area()
        .encode(
            x=x,
            y="edge:Q",
            y2="accuracy:Q",
            color=colour,
            opacity=alt.condition(shown, alt.value(0.25), alt.value(0)),
        )
    )
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
        .mark_line(strokeWidth=1.6, strokeDash=[5, 3], style="frontier")
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
    halo = (
        alt.Chart(edge).mark_line(strokeWidth=7, opacity=0.16, style="frontier").encode(x=x, y="accuracy:Q")
    )
    several = rows.filter(pl.col("high") > pl.col("low")).height > 0
    layers = [gap, *([band] if several else []), *([halo] if edge.values else []), line]
    layers += [*([frontier] if edge.values else []), points]
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
    names = [
        alt.Chart(_values(part))
        .mark_text(dx=dx, dy=dy, align=align, fontWeight=600, style="ink")
        .encode(x=x, y=y, text="arm:N")
        for (dx, dy, align), part in _labelled(rows, "length", measure)
    ]
    across = base.mark_rule(opacity=0.6, style="rule").encode(
        x=alt.X("length_low:Q"), x2="length_high:Q", y=y
    )
    along = base.mark_rule(opacity=0.6, style="rule").encode(
        x=x, y=f"{measure}_low:Q", y2=f"{measure}_high:Q"
    )
    return alt.layer(across, along, point, *names).properties(width=width, height=330, title=title(benchmark))


def gaps(
    material: Material, table: pl.DataFrame, width: int | Literal["container"] = WIDTH
) -> alt.LayerChart:
    """REG of each arm on the mean over benchmarks: a dot with its interval, smallest first; 0 is the frontier."""
    rows = table.filter((pl.col("benchmark") == MEAN) & pl.col("reg").is_not_null())
    data = _values(_with_ends(rows, ["reg"]))
    y = alt.Y(
        "arm:N",
        title=None,
        sort=alt.EncodingSortField("reg"),
        axis=alt.Axis(labelFontSize=12, labelLimit=220),
    )
    colour = _colour(material, list(material.arms))
    base = alt.Chart(data)
    x = alt.X("reg:Q", title="REG (tokens): area between the frontier and the arm's curve")
    zero = (
        alt.Chart(alt.InlineData(values=[{"at": 0}]))
        .mark_rule(style="frontier", strokeDash=[6, 3])
        .encode(x="at:Q")
    )
    bar = base.mark_rule(strokeWidth=3, opacity=0.45).encode(
        x=alt.X("reg_low:Q"), x2="reg_high:Q", y=y, color=colour
    )
    dot = base.mark_circle(size=130, opacity=1).encode(
        x=x, y=y, color=colour, tooltip=_tooltips(rows.columns)
    )
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
        .mark_line(
            strokeWidth=2, point=alt.OverlayMarkDef(size=14) if mean.height < 3 * len(chosen) else False
        )
        .encode(
            x=x,
            y=y,
            color=colour,
            opacity=faded,
            tooltip=[
                alt.Tooltip("arm:N"),
                alt.Tooltip("at:Q", title="step"),
                alt.Tooltip(f"{metric}:Q", format=".4~g"),
            ],
        )
    )
    layers = [line]
    if several:
        thin = alt.Chart(_values(rows)).mark_line(strokeWidth=0.8, opacity=0.35)
        layers.insert(0, thin.encode(x=x, y=y, color=colour, detail="seed:N"))
    return (
        alt.layer(*layers)
        .add_params(focus)
        .properties(width=width, height=210, title=LABELS.get(metric, metric))
    )


def training_rows(material: Material, metric: str, method: str) -> pl.DataFrame:
    """Rows arm, seed, at, and the metric, for the stages of a method; at most `MOST_POINTS` a line."""
    empty = pl.DataFrame(schema={"arm": pl.String, "seed": pl.Int64, "at": pl.Int64, metric: pl.Float64})
    if metric not in material.metrics.columns:
        return empty
    rows = (
        material.metrics.filter(
            (pl.col("method") == method) & pl.col(metric).is_not_null() & pl.col(metric).is_finite()
        )
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
        pl.col("accuracy").mean(),
        pl.col("accuracy").min().alias("low"),
        pl.col("accuracy").max().alias("high"),
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


_SIDES = ((0, -16, "center"), (0, 18, "center"), (13, 1, "left"), (-13, 1, "right"))


def _labelled(rows: pl.DataFrame, x: str, y: str) -> list[tuple[tuple[int, int, str], pl.DataFrame]]:
    """Points by the side on which their name stands: the first side where it covers no point and no other name."""
    points = rows.filter(pl.col(x).is_not_null() & pl.col(y).is_not_null())
    if not points.height:
        return []
    at = {
        row["arm"]: (_place(points[x], row[x], WIDTH), 330 - _place(points[y], row[y], 330))
        for row in points.to_dicts()
    }
    taken = [(px - 8, py - 8, px + 8, py + 8) for px, py in at.values()]
    sides: dict[str, tuple[int, int, str]] = {}
    for arm, (px, py) in sorted(at.items(), key=lambda item: item[1]):
        half = 3.4 * len(arm)
        boxes = []
        for side in _SIDES:
            dx, dy, align = side
            middle = px + dx + {"center": 0.0, "left": half, "right": -half}[align]
            boxes.append((side, (middle - half, py + dy - 7, middle + half, py + dy + 7)))
        side, box = min(boxes, key=lambda item: sum(_overlap(item[1], other) for other in taken))
        sides[arm] = side
        taken.append(box)
    return [
        (side, points.filter(pl.col("arm").is_in([a for a, s in sides.items() if s == side])))
        for side in _SIDES
    ]


def _place(values: pl.Series, value: float, size: float) -> float:
    low, high = float(values.min()), float(values.max())  # type: ignore[arg-type]
    return 28 + (size - 56) * ((value - low) / (high - low) if high > low else 0.5)


def _overlap(a: tuple[float, float, float, float], b: tuple[float, float, float, float]) -> float:
    return max(0.0, min(a[2], b[2]) - max(a[0], b[0])) * max(0.0, min(a[3], b[3]) - max(a[1], b[1]))


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


def _budget_axis(budgets: Sequence[int], scale: Scale) -> alt.X:
    """Budgets on a linear axis, or on one that is linear up to the smallest budget above 0 and logarithmic past it."""
    name = "budget (tokens of the response)"
    if scale == "linear" or not budgets:
        return alt.X(
            "budget:Q",
            title=name,
            scale=alt.Scale(nice=False, zero=True),
            axis=alt.Axis(labelOverlap="greedy"),
        )
    least, most = min((b for b in budgets if b > 0), default=1), max(budgets)
    ticks = [0, *(2**k for k in range(most.bit_length() + 1) if least <= 2**k <= most)]
    return alt.X(
        "budget:Q",
        title=f"{name}, logarithmic",
        scale=alt.Scale(type="symlog", constant=least, nice=False),
        axis=alt.Axis(values=ticks, labelOverlap="greedy", format="~s" if most >= 10_000 else ""),
    )


def _reach(material: Material) -> int:
    """How far REG integrates, in tokens; without a score, as far as curves go."""
    score = material.study.score
    return score.to if score is not None else int(material.curves["budget"].max() or 0)  # type: ignore[arg-type]


def _values(frame: pl.DataFrame) -> alt.InlineData:
    """Rows inline, rounded to six digits: what a page shows, at a fraction of the bytes."""
    return alt.InlineData(values=[{k: _short(v) for k, v in row.items()} for row in frame.to_dicts()])


def _short(value: Any) -> Any:
    return float(f"{value:.6g}") if isinstance(value, float) else value
