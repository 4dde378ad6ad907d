"""Draw arms as points: accuracy or REG over length, and REG with its intervals."""

from __future__ import annotations

from collections.abc import Sequence

import polars as pl

from reodsl.report import vega
from reodsl.report.material import MEAN, Material, title
from reodsl.report.vega import Json, Rows, channel, layer

HEIGHT = 330
GOOD_TO_BAD = ("#1a9850", "#a6d96a", "#fee08b", "#f46d43", "#a50026")


def scatter(
    material: Material,
    table: pl.DataFrame,
    benchmark: str = MEAN,
    measure: str = "accuracy",
    lines: Sequence[str] | None = None,
) -> Json:
    """Return a chart of accuracy, `reg` or a measure over response length, with a point for each arm.

    With a score, the colour of a point is the arm's REG, from green (small) to red, and bars are intervals. Without a
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
    datasets = Rows()
    data = datasets.add(_add_ends(rows, measures))
    padded_scale = {"zero": False, "padding": EDGE}
    x = channel("length", title="mean response length (tokens)", scale=padded_scale)
    # The margin for names may extend the axis above 100%, so labels outside 0 to 100% are hidden.
    percent_axis = {"format": "%", "labelExpr": "datum.value > 1 || datum.value < 0 ? '' : datum.label"}
    y = (
        channel(measure, title=label, axis=percent_axis, scale=padded_scale)
        if measure == "accuracy"
        else channel(measure, title=label, axis={"format": "~s"}, scale=padded_scale)
    )
    dots = layer(
        data,
        "circle",
        {"size": 190, "opacity": 1},
        switched=False,
        x=x,
        y=y,
        color=_fill() if "reg" in measures else vega.colour(material, arms),
        tooltip=_tooltip(rows.columns),
    )
    names = [
        layer(
            datasets.add(points),
            "text",
            {"dx": dx, "dy": dy, "align": align, "fontWeight": 600, "style": "ink"},
            switched=False,
            x=x,
            y=y,
            text=channel("arm", "nominal"),
        )
        for (dx, dy, align), points in sides(rows, "length", measure, HEIGHT)
    ]
    across = {"x": channel("length_low"), "x2": {"field": "length_high"}, "y": y}
    along = {"x": x, "y": channel(f"{measure}_low"), "y2": {"field": f"{measure}_high"}}
    bars = [
        layer(data, "rule", {"opacity": 0.6, "style": "rule"}, switched=False, **encoding)
        for encoding in (across, along)
    ]
    return vega.chart(
        datasets,
        [*bars, dots, *names],
        title=title(benchmark),
        about=f"{label} over mean response length, {title(benchmark)}: {_describe(rows, measure)}.",
        height=HEIGHT,
        switches=False,
    )


def gaps(material: Material, table: pl.DataFrame) -> Json:
    """Return a chart of each arm's mean REG: a dot with its interval, smallest first; the rule at 0 is the frontier.

    Args:
        material: results of the run.
        table: frame of `tables.main`.
    """
    rows = table.filter((pl.col("benchmark") == MEAN) & pl.col("reg").is_not_null())
    datasets = Rows()
    data = datasets.add(_add_ends(rows, ["reg"]))
    names = {"labelFontSize": 12, "labelLimit": 220}
    y = channel("arm", "nominal", title=None, sort={"field": "reg"}, axis=names)
    x = channel("reg", title="REG (tokens): area between the frontier and the arm's curve")
    tint = vega.colour(material, list(rows["arm"]))
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
    ordered = rows.sort("reg")
    listed = ", ".join(f"{arm} {reg:.1f}" for arm, reg in zip(ordered["arm"], ordered["reg"], strict=True))
    return vega.chart(
        datasets,
        layers,
        title=title(MEAN),
        about=f"REG in tokens on average, smallest first: {listed}.",
        height=max(HEIGHT, 34 * rows.height),
        switches=False,
    )


def _fill() -> Json:
    """Return the encoding that colours points by REG, green for a small REG and red for a large one, with a legend."""
    legend = {"orient": "bottom", "direction": "horizontal", "gradientLength": 180, "titleOrient": "left"}
    shade = {"range": list(GOOD_TO_BAD), "interpolate": "lab"}
    return channel("reg", title="REG (tokens)", scale=shade, legend=legend)


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


EDGE = 44
"""Pixels kept free around the points, so that names stay inside."""

NARROW_PIXELS = 400
"""The assumed width of a chart in pixels when names are placed: a wider chart only has more room."""

Side = tuple[int, int, str]
"""The offset of a name from its point in pixels, to the right and down, and the name's alignment."""

_SIDES: tuple[Side, ...] = ((0, -16, "center"), (0, 18, "center"), (13, 1, "left"), (-13, 1, "right"))
_Box = tuple[float, float, float, float]


def sides(rows: pl.DataFrame, x: str, y: str, height: int) -> list[tuple[Side, pl.DataFrame]]:
    """Choose on which side of its point each arm's name is written.

    From left to right, each name takes the side where it overlaps least with points and with the names already
    placed. A point is assumed to be 16 pixels wide and high, and a letter 6.6 pixels wide.

    Args:
        rows: points, with the columns `arm`, `x` and `y`.
        x: column of the horizontal axis.
        y: column of the vertical axis.
        height: height of the chart in pixels.

    Returns:
        Each side that is used, with the rows of the arms whose names go there.
    """
    points = rows.filter(pl.col(x).is_not_null() & pl.col(y).is_not_null())
    if not points.height:
        return []
    across, up = _pixels(points[x], NARROW_PIXELS), _pixels(points[y], height)
    positions = {arm: (a, height - u) for arm, a, u in zip(points["arm"], across, up, strict=True)}
    occupied = [(px - 8, py - 8, px + 8, py + 8) for px, py in positions.values()]
    chosen: dict[str, Side] = {}
    for arm, position in sorted(positions.items(), key=lambda item: item[1]):
        boxes = [(side, _box(position, side, 3.3 * len(arm))) for side in _SIDES]
        side, box = min(boxes, key=lambda item: sum(_overlap(item[1], other) for other in occupied))
        chosen[arm] = side
        occupied.append(box)
    parts = ((side, [arm for arm, at_side in chosen.items() if at_side == side]) for side in _SIDES)
    return [(side, points.filter(pl.col("arm").is_in(arms))) for side, arms in parts if arms]


def _box(position: tuple[float, float], side: Side, half_width: float) -> _Box:
    """Return the box around a name: left, top, right and bottom, in pixels.

    Args:
        position: the arm's point, in pixels to the right and down.
        side: offset and alignment of the name.
        half_width: half the width of the name, in pixels.
    """
    dx, dy, align = side
    middle = position[0] + dx + {"center": 0.0, "left": half_width, "right": -half_width}[align]
    return (middle - half_width, position[1] + dy - 7, middle + half_width, position[1] + dy + 7)


def _pixels(values: pl.Series, size: float) -> list[float]:
    """Return the positions of values on an axis of `size` pixels, with a margin of `EDGE` pixels at its ends."""
    numbers = [float(value) for value in values]
    low, high = min(numbers), max(numbers)
    return [EDGE + (size - 2 * EDGE) * ((n - low) / (high - low) if high > low else 0.5) for n in numbers]


def _overlap(a: _Box, b: _Box) -> float:
    """Return the area that two boxes share, in square pixels."""
    return max(0.0, min(a[2], b[2]) - max(a[0], b[0])) * max(0.0, min(a[3], b[3]) - max(a[1], b[1]))
