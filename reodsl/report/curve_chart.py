"""Draw accuracy over budgets: arms' curves and the frontier on one benchmark, or curves of any models on each."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence

import numpy as np
import polars as pl

from reodsl.diagnostics import Problem
from reodsl.numbers.arm_scores import arm_scores, check_arms
from reodsl.numbers.curves import KINDS, Curves, common_kind, named_curves
from reodsl.numbers.intervals import share_interval
from reodsl.report import tables, theme, vega
from reodsl.report.drawing import Form, Picture, pictures
from reodsl.report.material import MEAN, Material, reading, title
from reodsl.report.vega import Cross, Json, Rows, Width, channel, layer

HEIGHT = 280
MOST_NAMED = 32
"""The most arms whose names are written beside their lines."""
LOGARITHMIC_SPAN = 16
"""The ratio of the largest to the smallest budget above which the axis is logarithmic."""
_FRONTIER_DASH = [5, 3]


def curves(
    material: Material,
    benchmark: str = MEAN,
    lines: Sequence[str] | None = None,
    width: Width = vega.WIDTH,
    with_names: bool = False,
) -> Json:
    """Return a chart of accuracy over budgets: each arm's mean over seeds with its interval shaded, and the frontier.

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
    names, score = list(material.arms), material.study.score
    columns = [name for name in ("kind", "inexact") if name in material.curves.columns]
    labels = ", ".join(str(material.curves[name].drop_nulls().first()) for name in columns)
    return _draw_curves(
        curve_rows(material, benchmark, names),
        frontier_rows(material, benchmark),
        {arm: colour for arm, colour in material.colours.items() if arm in names},
        [name for name in names if lines is None or name in lines],
        heading=title(benchmark),
        label=f"accuracy ({labels})" if labels else "accuracy",
        reach=score.to if score is not None else int(material.curves["budget"].max() or 0),  # type: ignore[arg-type]
        filled=score.relative_to if with_names and score is not None else None,
        with_names=with_names,
        width=width,
    )


def _draw_curves(
    rows: pl.DataFrame,
    edges: pl.DataFrame,
    colours: Mapping[str, str],
    visible: Sequence[str],
    *,
    heading: str,
    label: str,
    reach: int,
    filled: str | None = None,
    with_names: bool = False,
    width: Width = vega.WIDTH,
) -> Json:
    """Return a chart of some curves and their frontier.

    Args:
        rows: frame of `curve_rows`.
        edges: frame of `frontier_rows`.
        colours: colour of each arm, in order.
        visible: arms that are visible at first.
        heading: title of the chart.
        label: title of the vertical axis.
        reach: last budget of a filled gap, in tokens.
        filled: arm whose gap is filled until an arm is in focus, or None.
        with_names: whether each line has its arm's name at its end.
        width: width in pixels, or `container` for the width of the page.
    """
    names = list(colours)
    datasets = Rows()
    data = datasets.add(rows)
    named = visible if with_names and len(visible) <= MOST_NAMED else []
    height = max(HEIGHT, vega.NAME_GAP_PIXELS * len(named))
    highest = max([0.0, *rows["accuracy"], *rows["high"].drop_nulls(), *edges["accuracy"].drop_nulls()])
    # The axis ends at a multiple of 10%, so that names are placed in its pixels.
    top = max(1, math.ceil(10 * highest - 1e-9)) / 10
    axes = _budget_axes([*rows["budget"], *edges["budget"]])
    x = next(iter(axes.values()))
    y = channel("accuracy", title=label, axis={"format": "%"}, scale={"domain": [0, top]})
    tint = vega.colour(colours, names, visible)
    layers: list[Json] = []
    inside = rows.filter(pl.col("edge").is_not_null() & (pl.col("budget") <= reach))
    if inside.height:
        # The row says whether it is filled, since a name might break an expression.
        inside = inside.with_columns(filled=pl.col("arm") == pl.lit(filled))
        test = f"{vega.IN_FOCUS} || focus === '' && datum.filled"
        opacity = {"condition": {"test": test, "value": 0.25}, "value": 0}
        gap: Json = {"x": x, "y": channel("edge"), "y2": {"field": "accuracy"}}
        layers.append(layer(datasets.add(inside), "area", {}, **gap, color=tint, opacity=opacity))
    if rows.filter(pl.col("high") > pl.col("low")).height:
        band: Json = {"x": x, "y": channel("low"), "y2": {"field": "high"}}
        layers.append(layer(data, "area", {"opacity": 0.14}, **band, color=tint))
    # A line of one budget is a point.
    point = {"size": 40} if rows.height < 3 * len(names) else False
    lined = vega.lines(data, x, y, colours, names, visible=visible, fade=0.15, point=point)
    tooltip = [
        channel("arm", "nominal"),
        channel("budget", format=","),
        channel("accuracy", format=".1%"),
        channel("edge", title="frontier", format=".1%"),
    ]
    dots = {"filled": True, "size": 60, "opacity": 0}
    edge = datasets.add(edges.with_columns(pl.lit("frontier").alias("line"))) if edges.height else None
    layers += [lined] if edge is None else _frontier(edge, x, y, lined)
    layers.append(layer(data, "point", dots, x=x, y=y, color=tint, tooltip=tooltip))
    if named:
        last = rows.filter(pl.col("arm").is_in(named)).sort("budget").group_by("arm").last()
        last = vega.place_names(last, "accuracy", (0, top), height).with_columns(end=pl.col("budget").max())
        sample: Json = {"color": vega.colour(colours, names, visible), **vega.dash(colours, names, visible)}
        layers += vega.names(datasets.add(last), x, channel("accuracy"), {"field": "end"}, sample)
    return vega.chart(
        datasets,
        layers,
        title=heading,
        about=f"Accuracy by budget in tokens, {heading}: {vega.ends(rows, 'budget', 'accuracy', '.1%')}.",
        width=width,
        height=height,
        off=[name for name in names if name not in visible],
        cross=Cross("budget", "accuracy", data, percent=True, edge=edge, axes=axes, baseline=filled),
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
    legend: Json = {
        "title": None,
        "orient": "bottom",
        "symbolStrokeColor": theme.FRONTIER_KEY,
        "symbolSize": 220,
    }
    legend |= {"symbolType": "stroke", "symbolDash": _FRONTIER_DASH}
    entry = channel("line", "nominal", scale={"domain": ["frontier"], "range": [1]}, legend=legend)
    style = {"strokeDash": _FRONTIER_DASH, "strokeWidth": 1.6, "style": "frontier"}
    return [
        layer(data, "line", halo, switched=False, x=x, y=y),
        arms,
        layer(data, "line", style, switched=False, x=x, y=y, tooltip=tooltip, opacity=entry),
    ]


def curve_rows(material: Material, benchmark: str, arms: Sequence[str]) -> pl.DataFrame:
    """Return the curves of some arms on a benchmark.

    Returns:
        Columns `arm`, `budget` (tokens), `accuracy` (share, mean over seeds), `low` and `high`, the ends of its interval
        (null without `add_intervals`), and `edge`, the frontier's accuracy at that budget.
    """
    rows = material.curves.filter((pl.col("benchmark") == benchmark) & pl.col("name").is_in(list(arms)))
    ends = [
        pl.col(end).first() if end in rows.columns else pl.lit(None).alias(end) for end in ("low", "high")
    ]
    mean = rows.group_by("name", "budget").agg(pl.col("accuracy").mean(), *ends)
    edge = frontier_rows(material, benchmark).select("budget", pl.col("accuracy").alias("edge"))
    return material.sort_arms(mean.join(edge, on="budget", how="left").rename({"name": "arm"}).sort("budget"))


def add_intervals(material: Material) -> pl.DataFrame:
    """Return the curves of arms with the ends of their intervals over seeds and questions, as accuracies have them.

    Returns:
        `material.curves` with the columns `low` and `high` (shares, the same for all seeds). They are null where an arm's
        forced answers are missing or cannot be paired, and for curves of another kind than `J`.
    """
    rows: list[tuple[str, str, int, float | None, float | None]] = []
    for arm in material.arms if "kind" not in material.curves.columns else ():
        if not (folders := material.forced_folders(arm)):
            continue
        with reading(folders[0]):
            try:
                scored, (budgets, *_) = zip(*(arm_scores(folder, arm) for folder in folders), strict=True)
                check_arms({arm: scored}, budgets, len(scored))
            except Problem:  # other budgets or questions on a benchmark or in a seed
                continue
        for column, budget in enumerate(budgets):
            forced = {
                name: np.stack([scores.forced[name][:, column] for scores in scored])
                for name in scored[0].forced
            }
            for benchmark in dict.fromkeys((*forced, MEAN)):
                cells = forced if benchmark == MEAN else {benchmark: forced[benchmark]}
                share = share_interval(cells, material.study.confidence)
                rows.append((arm, benchmark, budget, share.low, share.high))
    keys = {"name": pl.String, "benchmark": pl.String, "budget": pl.Int64}
    ends = pl.DataFrame(rows, schema=dict(keys, low=pl.Float64, high=pl.Float64), orient="row")
    return material.curves.join(ends, on=list(keys), how="left", maintain_order="left")


def frontier_rows(material: Material, benchmark: str) -> pl.DataFrame:
    """Return the scored frontier on a benchmark.

    Returns:
        Columns `budget` (tokens), `accuracy` (share, mean over seeds), and `arms`, the names of the arms that reach
        the frontier in any seed.
    """
    rows = tables.frontier(material).filter(benchmark=benchmark)
    arms = pl.col("arms").drop_nulls().str.split(", ").explode() if "arms" in rows.columns else pl.lit("")
    arms = arms.unique(maintain_order=True)
    names = arms.sort_by(material.rank(arms)).str.join(", ").replace("", None).alias("arms")
    return rows.group_by("budget").agg(pl.col("accuracy").mean(), names).sort("budget")


def is_logarithmic(budgets: Iterable[int]) -> bool:
    """Return whether budgets span so much that their axis is logarithmic."""
    least, most = _span(budgets)
    return most > LOGARITHMIC_SPAN * least


def _span(budgets: Iterable[int]) -> tuple[int, int]:
    """Return the smallest budget above 0 and the largest."""
    values = list(budgets)
    return min((value for value in values if value > 0), default=1), max(values, default=0)


def _budget_axes(budgets: Sequence[int]) -> dict[str, Json]:
    """Return the encodings of the axis of budgets, `linear` and `logarithmic`, first the one that `is_logarithmic` picks.

    A logarithmic axis is linear from 0 to the smallest positive budget, so it can show a budget of 0.
    """
    name = "budget (tokens of the response)"
    least, most = _span(budgets)
    ticks = [0, *(2**k for k in range(most.bit_length() + 1) if least <= 2**k <= most)]
    linear = channel(
        "budget", title=name, scale={"nice": False, "zero": True}, axis={"labelOverlap": "greedy"}
    )
    logarithmic = channel(
        "budget",
        title=f"{name}, logarithmic",
        scale={"type": "symlog", "constant": least, "nice": False},
        axis={"values": ticks, "labelOverlap": "greedy", "format": ",d"},
    )
    axes = {"linear": linear, "logarithmic": logarithmic}
    return dict(reversed(axes.items())) if is_logarithmic(budgets) else axes


_COLUMNS = 3


def draw_picture(
    models: Mapping[str, Curves], frontier: Curves | None, end: int, ranked: Sequence[str], form: Form = "png"
) -> Picture:
    """Return accuracy over budgets as a picture, a chart for each benchmark.

    Args:
        models: curves by model and benchmark.
        frontier: frontier by benchmark, or None.
        end: last budget that is drawn, in tokens.
        ranked: models in the order of the legend.
        form: format of the picture beside SVG.

    Raises:
        Problem: E0435 if the models have curves of two kinds.
    """
    kind = common_kind(named_curves(models))
    points = pl.DataFrame(
        [
            (name, benchmark, budget, accuracy)
            for name, curves_of in [*models.items(), ("", frontier or {})]
            for benchmark, curve in curves_of.items()
            for budget, accuracy in zip(curve.budgets, curve.accuracy, strict=True)
            if budget <= end
        ],
        schema={"arm": pl.String, "benchmark": pl.String, "budget": pl.Int64, "accuracy": pl.Float64},
        orient="row",
    )
    charts = []
    for (benchmark,), of_benchmark in points.group_by("benchmark", maintain_order=True):
        edges = of_benchmark.filter(arm="").select(
            "budget", "accuracy", pl.lit(None, pl.String).alias("arms")
        )
        rows = of_benchmark.filter(pl.col("arm") != "").join(
            edges.select("budget", edge="accuracy"), on="budget", how="left"
        )
        rows = rows.with_columns(low=pl.lit(None), high=pl.lit(None)).sort("budget", maintain_order=True)
        charts.append(
            _draw_curves(
                rows,
                edges,
                theme.colours(list(models)),
                ranked,
                heading=str(benchmark),
                label=f"accuracy ({kind})",
                reach=end,
                with_names=True,
                width=280,
            )
        )
    picture: Json = {
        "$schema": charts[0]["$schema"],
        "config": theme.config() | {"background": "white", "padding": 8},
        "title": {"text": f"accuracy by budget, of the kind {kind}", "subtitle": KINDS[kind]},
        "params": charts[0]["params"],
        "datasets": {name: rows for chart in charts for name, rows in chart["datasets"].items()},
        "concat": [{key: chart[key] for key in ("title", "width", "height", "layer")} for chart in charts],
        "columns": _COLUMNS,
    }
    return next(iter(pictures([vega.shorten_names(picture, list(models))], form)))
