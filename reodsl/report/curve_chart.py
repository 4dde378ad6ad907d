"""Draw accuracy over budgets: arms' curves and the frontier on one benchmark, or curves of any models on each."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence

import polars as pl

from reodsl.numbers.curves import KINDS, Curves, common_kind, named_curves
from reodsl.report import theme, vega
from reodsl.report.drawing import Form, Picture, pictures
from reodsl.report.material import MEAN, Material, title
from reodsl.report.vega import Cross, Json, Rows, Width, channel, layer

HEIGHT = 280
MOST_NAMED = 12
"""The most arms whose names fit at the ends of their lines."""
LOGARITHMIC_SPAN = 16
"""The ratio of the largest to the smallest budget above which the axis is logarithmic."""
NAME_GAP_PIXELS = 15
"""The least distance between two names, in pixels."""


def curves(
    material: Material,
    benchmark: str = MEAN,
    lines: Sequence[str] | None = None,
    width: Width = vega.WIDTH,
    with_names: bool = False,
) -> Json:
    """Return a chart of accuracy over budgets: each arm's mean over seeds with its range shaded, and the frontier.

    The page sets the chart's parameter `focus` to the arm that is pointed at. All other arms then fade, and the gap of
    this arm to the plain frontier is filled.

    Args:
        material: results of the run.
        benchmark: name of a benchmark, or `mean`.
        lines: arms that are visible at first; the parameter `off` of the chart hides the others. None shows all.
        width: width in pixels, or `container` for the width of the page.
        with_names: whether each line has its arm's name at its end. Until an arm is in focus, the baseline's gap is
            then filled.
    """
    names = list(material.arms)
    visible = [name for name in names if lines is None or name in lines]
    rows, edges = curve_rows(material, benchmark, names), frontier_rows(material, benchmark)
    datasets = Rows()
    data = datasets.add(rows)
    x = _budget_axis([*rows["budget"], *edges["budget"]])
    columns = [name for name in ("kind", "inexact") if name in material.curves.columns]
    labels = ", ".join(str(material.curves[name].drop_nulls().first()) for name in columns)
    y = channel("accuracy", title=f"accuracy ({labels})" if labels else "accuracy", axis={"format": "%"})
    tint = vega.colour(material, names, visible)
    layers: list[Json] = []
    inside = rows.filter(pl.col("edge").is_not_null() & (pl.col("budget") <= _reach(material)))
    if inside.height:
        base = material.study.score.relative_to if with_names and material.study.score is not None else None
        test = (
            f"{vega.IN_FOCUS} || focus === '' && datum.arm === {json.dumps(base)}" if base else vega.IN_FOCUS
        )
        filled = {"condition": {"test": test, "value": 0.25}, "value": 0}
        gap: Json = {"x": x, "y": channel("edge"), "y2": {"field": "accuracy"}}
        layers.append(layer(datasets.add(inside), "area", {}, **gap, color=tint, opacity=filled))
    if rows.filter(pl.col("high") > pl.col("low")).height:
        band: Json = {"x": x, "y": channel("low"), "y2": {"field": "high"}}
        layers.append(layer(data, "area", {"opacity": 0.14}, **band, color=tint))
    lined = vega.lines(data, x, y, material, names, visible=visible, fade=0.15)
    tooltip = [
        channel("arm", "nominal"),
        channel("budget", format=","),
        channel("accuracy", format=".1%"),
        channel("edge", title="frontier", format=".1%"),
    ]
    dots = {"filled": True, "size": 60, "opacity": 0}
    pointed = layer(data, "point", dots, x=x, y=y, color=tint, tooltip=tooltip)
    edge = datasets.add(edges.with_columns(pl.lit("frontier").alias("line"))) if edges.height else None
    if edge is None:
        layers += [lined, pointed]
    else:
        layers += [*_frontier(edge, x, y, lined), pointed]
    if with_names and len(visible) <= MOST_NAMED:
        layers += _names(datasets.add(name_rows(rows, visible)), x, tint)
    about = (
        f"Accuracy by budget in tokens, {title(benchmark)}: {vega.ends(rows, 'budget', 'accuracy', '.1%')}."
    )
    spec = vega.chart(
        datasets,
        layers,
        title=title(benchmark),
        about=about,
        width=width,
        height=HEIGHT,
        off=[name for name in names if name not in visible],
        cross=Cross("budget", "accuracy", data, percent=True, edge=edge),
    )
    # The dashes of arms and the dashes of the frontier have separate scales.
    return (
        spec | {"resolve": {"scale": {"strokeDash": "independent"}}} if vega.dash(material, names) else spec
    )


def _frontier(data: str, x: Json, y: Json, arms: Json) -> list[Json]:
    """Return the layers of the frontier around the arms' lines: a halo below them and a dashed line above them.

    Args:
        data: name of the frontier's rows.
        x: encoding of the horizontal axis.
        y: encoding of the vertical axis.
        arms: layer of the arms' lines.
    """
    tooltip = [
        channel("budget", format=","),
        channel("accuracy", title="frontier", format=".1%"),
        channel("arms", "nominal", title="reached by"),
    ]
    halo = {"strokeWidth": 7, "opacity": 0.16, "style": "frontier"}
    # The frontier is not an arm: it has an entry of its own in the legend.
    legend = {"title": None, "orient": "bottom", "symbolStrokeColor": theme.FRONTIER_KEY, "symbolSize": 220}
    dashes = channel("line", "nominal", scale={"domain": ["frontier"], "range": [[5, 3]]}, legend=legend)
    style = {"strokeWidth": 1.6, "style": "frontier"}
    return [
        layer(data, "line", halo, switched=False, x=x, y=y),
        arms,
        layer(data, "line", style, switched=False, x=x, y=y, tooltip=tooltip, strokeDash=dashes),
    ]


def _names(data: str, x: Json, tint: Json) -> list[Json]:
    """Return the layers that write each arm's name at the end of its line, behind a dot of the arm's colour.

    Args:
        data: name of the rows of `name_rows`.
        x: encoding of the horizontal axis.
        tint: encoding of the arms' colours.
    """
    encoding: Json = {"x": x, "y": channel("at"), "opacity": vega.faded(0.15)}
    text: Json = {"align": "left", "baseline": "middle", "xOffset": 17, "limit": 130, "style": "ink"}
    dots = {"filled": True, "size": 45, "xOffset": 9}
    return [
        layer(data, "point", dots, **encoding, color=tint),
        layer(data, "text", text, **encoding, text=channel("arm", "nominal")),
    ]


def name_rows(rows: pl.DataFrame, arms: Sequence[str]) -> pl.DataFrame:
    """Return positions for the arms' names at the ends of their lines, where no two names overlap.

    Names are placed from the highest line down; a name that would overlap the one above it is moved down.

    Args:
        rows: rows of `curve_rows`.
        arms: arms that are named.

    Returns:
        Columns `arm`, `budget` (the last budget of the line, in tokens), and `at`, the height of the name as an
        accuracy.
    """
    last = rows.filter(pl.col("arm").is_in(list(arms))).sort("budget").group_by("arm").last()
    min_gap, free = NAME_GAP_PIXELS / HEIGHT, float("inf")
    places = []
    for row in last.sort("accuracy", "arm", descending=[True, False]).to_dicts():
        free = min(row["accuracy"], free - min_gap)
        places.append({"arm": row["arm"], "budget": row["budget"], "at": free})
    return pl.DataFrame(places, schema={"arm": pl.String, "budget": pl.Int64, "at": pl.Float64})


def curve_rows(material: Material, benchmark: str, arms: Sequence[str]) -> pl.DataFrame:
    """Return the curves of some arms on a benchmark.

    Returns:
        Columns `arm`, `budget` (tokens), `accuracy` (share, mean over seeds), `low` and `high` (the range over
        seeds), and `edge`, the frontier's accuracy at that budget.
    """
    rows = material.curves.filter((pl.col("benchmark") == benchmark) & pl.col("name").is_in(list(arms)))
    mean = rows.group_by("name", "budget").agg(
        pl.col("accuracy").mean(),
        pl.col("accuracy").min().alias("low"),
        pl.col("accuracy").max().alias("high"),
    )
    edge = frontier_rows(material, benchmark).select("budget", pl.col("accuracy").alias("edge"))
    return mean.join(edge, on="budget", how="left").rename({"name": "arm"}).sort("arm", "budget")


def frontier_rows(material: Material, benchmark: str) -> pl.DataFrame:
    """Return the scored frontier on a benchmark.

    Returns:
        Columns `budget` (tokens), `accuracy` (share, mean over seeds), and `arms`, the names of the arms that reach
        the frontier in any seed.
    """
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


def is_logarithmic(budgets: Iterable[int]) -> bool:
    """Return whether budgets span so much that their axis is logarithmic."""
    least, most = _span(budgets)
    return most > LOGARITHMIC_SPAN * least


def _span(budgets: Iterable[int]) -> tuple[int, int]:
    """Return the smallest budget above 0 and the largest."""
    values = list(budgets)
    return min((value for value in values if value > 0), default=1), max(values, default=0)


def _budget_axis(budgets: Sequence[int]) -> Json:
    """Return the encoding of the axis of budgets: linear, or logarithmic if `is_logarithmic`.

    A logarithmic axis is linear from 0 to the smallest positive budget, so it can show a budget of 0.
    """
    name = "budget (tokens of the response)"
    least, most = _span(budgets)
    if not is_logarithmic(budgets):
        linear = {"nice": False, "zero": True}
        return channel("budget", title=name, scale=linear, axis={"labelOverlap": "greedy"})
    ticks = [0, *(2**k for k in range(most.bit_length() + 1) if least <= 2**k <= most)]
    symlog = {"type": "symlog", "constant": least, "nice": False}
    axis = {"values": ticks, "labelOverlap": "greedy", "format": ",d"}
    return channel("budget", title=f"{name}, logarithmic", scale=symlog, axis=axis)


def _reach(material: Material) -> int:
    """Return the last budget that REG integrates to, in tokens; without a score, the largest of the curves."""
    score = material.study.score
    return score.to if score is not None else int(material.curves["budget"].max() or 0)  # type: ignore[arg-type]


FRONTIER_LINE = "frontier"
_FACET_COLUMNS = 3


def draw_picture(
    models: Mapping[str, Curves], frontier: Curves | None, end: int, form: Form = "png"
) -> Picture:
    """Return accuracy over budgets as a picture, a chart for each benchmark.

    Args:
        models: curves by model and benchmark.
        frontier: frontier by benchmark, or None.
        end: last budget that is drawn, in tokens.
        form: format of the picture beside SVG.

    Raises:
        Problem: E0435 if the models have curves of two kinds.
    """
    kind = common_kind(named_curves(models))
    lines = {**models, **({} if frontier is None else {FRONTIER_LINE: frontier})}
    rows = [
        {"model": model, "benchmark": benchmark, "budget": budget, "accuracy": accuracy}
        for model, curves in lines.items()
        for benchmark, curve in curves.items()
        for budget, accuracy in zip(curve.budgets, curve.accuracy, strict=True)
        if budget <= end
    ]
    tint = theme.colours(list(models)) | {FRONTIER_LINE: theme.FRONTIER_KEY}
    scale = {"domain": list(lines), "range": [tint[name] for name in lines]}
    dash = {"condition": {"test": f"datum.model === '{FRONTIER_LINE}'", "value": [5, 3]}, "value": [1, 0]}
    chart: Json = {
        "$schema": "https://vega.github.io/schema/vega-lite/v6.json",
        "config": theme.config(),
        "data": {"values": rows},
        "title": {"text": f"accuracy by budget, of the kind {kind}", "subtitle": KINDS[kind]},
        "facet": channel("benchmark", "nominal", title=None),
        "columns": _FACET_COLUMNS,
        "spec": {
            "width": 280,
            "height": 200,
            "mark": {"type": "line"},
            "encoding": {
                "x": channel("budget", title="budget (tokens of the response)", scale={"nice": False}),
                "y": channel("accuracy", title=f"accuracy ({kind})", axis={"format": "%"}),
                "color": channel("model", "nominal", title=None, scale=scale, legend={"orient": "bottom"}),
                "strokeDash": dash if frontier is not None else {"value": [1, 0]},
            },
        },
    }
    return next(iter(pictures([chart], form)))
