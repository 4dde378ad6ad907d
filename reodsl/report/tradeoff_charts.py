"""Draw arms as points: accuracy or REG over length, and REG with its intervals."""

from __future__ import annotations

from collections.abc import Sequence

import polars as pl

from reodsl.report import theme, vega
from reodsl.report.material import MEAN, Material, title
from reodsl.report.vega import Json, Rows, channel, layer

HEIGHT = 330
MARGIN = 0.08
"""The room beside the outermost points, as a share of the axis between them."""
SMALL_TO_LARGE = ("#b7d5ec", "#6baed6", "#2f7ebc", "#0b4a94")
"""Colours of REG: one hue, so that every eye sees their order."""
SHAPES = ("circle", "square", "triangle-up", "diamond")
"""Shapes of points: one for each of `theme.DASHES`."""


def scatter(
    material: Material,
    table: pl.DataFrame,
    benchmark: str = MEAN,
    measure: str = "accuracy",
    lines: Sequence[str] | None = None,
) -> Json:
    """Return a chart of accuracy, `reg` or a measure over response length, with a point for each arm.

    With a score, the colour of a point is the arm's REG, from light (small) to dark, and bars are intervals. Without a
    score, points have the arms' colours, and bars are one standard deviation over seeds.

    Args:
        material: results of the run.
        table: frame of `tables.main`.
        benchmark: name of a benchmark, or `mean`.
        measure: `accuracy`, `reg` or a measure of the study.
        lines: arms that are drawn; None for all.
    """
    arms = [name for name in material.arms if lines is None or name in lines]
    rows = table.filter((pl.col("benchmark") == benchmark) & pl.col("arm").is_in(arms))
    label = {"accuracy": "accuracy", "reg": "REG (tokens)"}.get(measure, measure)
    if measure not in ("accuracy", "reg"):
        # Vega reads dots and brackets in a column's name as a path.
        safe_names = {f"{measure}{end}": f"measure{end}" for end in ("", "_low", "_high")}
        rows, measure = rows.rename(safe_names), "measure"
    measures = [m for m in ("accuracy", "length", "reg", "measure") if m in rows.columns]
    rows = _add_ends(rows, measures).filter(pl.col("length").is_finite() & pl.col(measure).is_finite())
    datasets = Rows()
    data = datasets.add(rows)
    spans = {name: [*rows[f"{name}_low"], *rows[f"{name}_high"]] for name in ("length", measure)}
    x = channel("length", title="mean response length (tokens)", **vega.axis(spans["length"], margin=MARGIN))
    # The margin may extend the axis above 100%, so labels outside 0 to 100% are hidden.
    percent_axis = {"format": "%", "labelExpr": "datum.value > 1 || datum.value < 0 ? '' : datum.label"}
    ticks = percent_axis if measure == "accuracy" else {"format": "~s"}
    y = channel(measure, title=label, **vega.axis(spans[measure], ticks, margin=MARGIN))
    shapes = [SHAPES[theme.dashes(material.colours)[arm]] for arm in arms]
    forms = {"scale": {"domain": arms, "range": shapes}, "legend": None}
    tint = vega.colour(material.colours, arms) | {"legend": None}
    if "reg" in measures:
        key = {"orient": "bottom", "direction": "horizontal", "gradientLength": 180, "titleOrient": "left"}
        shade = {"range": list(SMALL_TO_LARGE), "interpolate": "lab"}
        tint = channel("reg", title="REG (tokens)", scale=shade, legend=key)
    dots = layer(
        data,
        "point",
        {"size": 150, "opacity": 1, "filled": True, "style": "outline"},
        switched=False,
        x=x,
        y=y,
        color=tint,
        shape=channel("arm", "nominal", **forms),
        tooltip=_tooltip(rows.columns),
    )
    height = max(HEIGHT, vega.NAME_GAP_PIXELS * rows.height)
    placed = vega.place_names(rows, measure, y["scale"]["domain"], height)
    names = vega.names(datasets.add(placed), x, y, {"datum": x["scale"]["domain"][1]})
    across = {"x": channel("length_low"), "x2": {"field": "length_high"}, "y": y}
    along = {"x": x, "y": channel(f"{measure}_low"), "y2": {"field": f"{measure}_high"}}
    bars = [
        layer(data, "rule", {"opacity": 0.6, "style": "rule"}, switched=False, **encoding)
        for encoding in (across, along)
    ]
    return vega.chart(
        datasets,
        [*bars, *names, dots],
        title=title(benchmark),
        about=f"{label} over mean response length, {title(benchmark)}: {_describe(rows, measure)}.",
        height=height,
    )


def gaps(material: Material, table: pl.DataFrame) -> Json:
    """Return a chart of each arm's mean REG: a dot with its interval, as ordered on the page; the frontier is the rule at 0.

    Args:
        material: results of the run.
        table: frame of `tables.main`.
    """
    means = table.filter((pl.col("benchmark") == MEAN) & pl.col("reg").is_not_null())
    rows = means.select("arm", "accuracy", "length", "^reg(_.*)?$").with_row_index("place")
    datasets = Rows()
    data = datasets.add(vega.name_rows(_add_ends(rows, ["reg"])))
    y = channel("name", "nominal", title=None, sort={"field": "place"}, axis={"labelFontSize": 12})
    about = ["REG (tokens): area between", "the frontier and the arm's curve"]
    x = channel("reg", title=about, scale={"padding": 24})
    tint = vega.colour(material.colours, list(rows["arm"])) | {"legend": None}
    zero = datasets.add(pl.DataFrame({"at": [0]}))
    interval = {"x": channel("reg_low"), "x2": {"field": "reg_high"}, "y": y, "color": tint}
    dot = {"x": x, "y": y, "color": tint, "tooltip": _tooltip(rows.columns)}
    # The number is beside the rule at 0, not across it.
    offset = {"dx": 5, "dy": -13, "align": "left", "style": "ink"}
    layers = [
        layer(zero, "rule", {"style": "frontier", "strokeDash": [6, 3]}, switched=False, x=channel("at")),
        layer(data, "rule", {"strokeWidth": 3, "opacity": 0.45}, switched=False, **interval),
        layer(data, "circle", {"size": 130, "opacity": 1}, switched=False, **dot),
        layer(data, "text", offset, switched=False, x=x, y=y, text=channel("reg", format=",.1f")),
    ]
    listed = ", ".join(f"{arm} {reg:.1f}" for arm, reg in rows.select("arm", "reg").iter_rows())
    return vega.chart(
        datasets,
        layers,
        title=title(MEAN),
        about=f"REG in tokens on average, smallest first: {listed}.",
        height=max(HEIGHT, 34 * rows.height),
        switches=False,
    )


def _tooltip(columns: Sequence[str]) -> list[Json]:
    """Return the encodings that are shown on hover: an arm's name, accuracy, length and, if scored, REG."""
    first = [channel("arm", "nominal"), channel("accuracy", format=".1%"), channel("length", format=",.1f")]
    return [*first, channel("reg", title="REG", format=",.1f")] if "reg" in columns else first


def _describe(rows: pl.DataFrame, measure: str) -> str:
    """Return each arm's point in words, for screen readers.

    Args:
        rows: rows of `tables.main` for one benchmark.
        measure: column of the vertical axis.
    """
    form = {"accuracy": ".1%", "measure": ".3g"}.get(measure, ".1f")
    points = rows.filter(pl.col(measure).is_not_null() & pl.col("length").is_not_null())
    return ", ".join(
        f"{row['arm']} {row[measure]:{form}} at {row['length']:.1f} tokens" for row in points.to_dicts()
    )


def _add_ends(rows: pl.DataFrame, measures: Sequence[str]) -> pl.DataFrame:
    """Return the rows with columns for the ends of bars: `<measure>_low` and `<measure>_high`.

    They are the ends of the interval if it is known, else one standard deviation over seeds below and above the value,
    else the value.

    Args:
        rows: rows of `tables.main`.
        measures: columns that get bars.
    """
    columns = []
    for measure in measures:
        sd = pl.col(f"{measure}_sd") if f"{measure}_sd" in rows.columns else pl.lit(0.0)
        for end, sign in (("low", -1), ("high", 1)):
            name = f"{measure}_{end}"
            interval_end = pl.col(name) if name in rows.columns else pl.lit(None, pl.Float64)
            columns.append(pl.coalesce(interval_end, pl.col(measure) + sign * sd.fill_null(0.0)).alias(name))
    return rows.with_columns(columns)
