"""Build Vega-Lite charts: rows by name, channels, layers, a line for each arm, and the complete chart."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from statistics import fmean
from typing import Any, Literal

import polars as pl

from reodsl.report import theme
from reodsl.report.formats import finite, shorten

Json = dict[str, Any]
"""A Vega-Lite chart, or an element of a chart, as JSON data."""

WIDTH = 460
Width = int | Literal["container"]
SWITCHED_ON = "indexof(off, datum.arm) < 0"
"""The condition that the arm of a row is switched on."""
IN_FOCUS = "datum.arm === focus"
"""The condition that a mark belongs to the arm in focus."""
_SCHEMA = "https://vega.github.io/schema/vega-lite/v6.json"
_MOST_DESCRIBED = 12
NAME_GAP_PIXELS = 14
"""The least distance between two names, in pixels."""
MOST_LETTERS = 18
"""The most letters of an arm's name in a chart; longer names are cut in the middle."""


@dataclass(frozen=True, slots=True)
class Cross:
    """The columns that a page's crosshair reads."""

    x: str
    """Column of the horizontal axis."""
    y: str
    """Column of the vertical axis."""
    data: str
    """Name of the rows, with a row for each arm and `x`."""
    percent: bool = False
    """True if `y` is a share."""
    share: bool = False
    """True if `x` is a share."""
    edge: str | None = None
    """Name of the frontier's rows, with the same `x`."""
    stages: str | None = None
    """Name of the rows at which a stage changes, with the same `x`."""
    axes: Mapping[str, Json] | None = None
    """Encodings of `x` by name that the page switches between, the one of the chart first."""
    baseline: str | None = None
    """Arm that savings of tokens are relative to."""


class Rows:
    """The data of a chart by name; equal frames have equal names in all charts."""

    def __init__(self) -> None:
        self.by_name: dict[str, list[Json]] = {}

    def add(self, frame: pl.DataFrame) -> str:
        """Store a frame's rows and return a name for them.

        Numbers are rounded to six significant digits, and None if they are not finite.
        """
        rows = [
            {key: finite(float(f"{v:.6g}")) if isinstance(v, float) else v for key, v in row.items()}
            for row in frame.to_dicts()
        ]
        name = "rows-" + hashlib.sha256(json.dumps(rows).encode()).hexdigest()[:16]
        self.by_name[name] = rows
        return name


def channel(field: str, kind: str = "quantitative", **options: Any) -> Json:
    """Return a Vega-Lite encoding of a column.

    Args:
        field: name of the column.
        kind: Vega-Lite type: `quantitative` for numbers, `nominal` for texts.
        options: further properties; `title=None` shows no title.
    """
    return {"field": field, "type": kind, **options}


def layer(data: str, mark: str, style: Json, *, switched: bool = True, **encoding: Any) -> Json:
    """Return a layer of marks in a chart.

    Args:
        data: name of the rows.
        mark: type of the mark, such as `line`.
        style: properties of the mark.
        switched: whether rows of arms that are switched off are hidden.
        encoding: encodings by channel, such as `x` and `color`.
    """
    marks = {"data": {"name": data}, "mark": {"type": mark, **style}, "encoding": encoding}
    return marks | {"transform": [{"filter": SWITCHED_ON}]} if switched else marks


def lines(
    data: str,
    x: Json,
    y: Json,
    colours: Mapping[str, str],
    arms: Sequence[str],
    *,
    visible: Sequence[str] | None = None,
    fade: float = 0.12,
    tooltip: list[Json] | None = None,
    **style: Any,
) -> Json:
    """Return a layer with a line for each arm, in the arm's colour and dashes.

    Args:
        data: name of the rows.
        x: encoding of the horizontal axis.
        y: encoding of the vertical axis.
        colours: colour of each arm, in order.
        arms: arms of the chart.
        visible: arms in the legend; None for all.
        fade: opacity of a line while another arm is in focus.
        tooltip: encodings that are shown on hover.
        style: further properties of the mark.
    """
    more: Json = {} if tooltip is None else {"tooltip": tooltip}
    look: Json = {
        "color": colour(colours, arms, visible),
        "opacity": faded(fade),
        **dash(colours, arms, visible),
    }
    return layer(data, "line", {"strokeWidth": 2, **style}, x=x, y=y, **look, **more)


def chart(
    rows: Rows,
    layers: Sequence[Json],
    *,
    title: str,
    about: str,
    height: int,
    width: Width = WIDTH,
    switches: bool = True,
    off: Sequence[str] = (),
    cross: Cross | None = None,
) -> Json:
    """Return a Vega-Lite chart of some layers that contains its data.

    With `switches` it has two parameters, which the page's script sets: `focus`, the arm that the user points at (empty
    for no arm), and `off`, the arms that the user switched off.

    Args:
        rows: data of the layers.
        layers: layers from the lowest up.
        title: title of the chart.
        about: description for screen readers.
        height: height in pixels.
        width: width in pixels, or `container`.
        switches: whether the chart has the two parameters.
        off: arms that are switched off at first.
        cross: columns of the page's crosshair.
    """
    signals: list[Json] = [{"name": "focus", "value": ""}, {"name": "off", "value": list(off)}]
    return {
        "$schema": _SCHEMA,
        "title": title,
        "description": about,
        "width": width,
        "height": height,
        "layer": list(layers),
        "datasets": rows.by_name,
        **({"params": signals} if switches else {}),
        **({"usermeta": {"cross": asdict(cross)}} if cross is not None else {}),
    }


def axis(values: Iterable[float | None], ticks: Json | None = None, margin: float = 0.0) -> Json:
    """Return the scale and the ticks of an axis that need not include 0; equal values have one tick, in the middle.

    Args:
        values: values on the axis; those that are no numbers are left out.
        ticks: properties of the ticks, such as their `format`.
        margin: room at both ends, as a share of the values' range, or of a quarter of the largest value if that is more.
    """
    numbers = [value for value in values if value is not None and math.isfinite(value)]
    least, most = min(numbers, default=0.0), max(numbers, default=0.0)
    ticks = ticks or {}
    if least == most:
        ticks |= {"values": [least], "format": ".4~%" if ticks.get("format") == "%" else ".4~g"}
    # Values that are nearly equal are drawn near one another.
    room = margin * max(most - least, abs(most) / 4) if least < most else abs(least) / 10 or 1.0
    domain = {"domain": [least - room, most + room], "nice": False, "zero": False}
    return {"scale": domain if room else {"zero": False}, "axis": ticks}


def place_names(points: pl.DataFrame, y: str, axis: Sequence[float], height: int) -> pl.DataFrame:
    """Return points with places for the names of their arms, one below the other at a distance of `NAME_GAP_PIXELS`.

    Names keep the order of the points. Names that are too near form a block, centred on its points.

    Args:
        points: points, with the column `arm`.
        y: column of the vertical axis.
        axis: ends of the vertical axis.
        height: height of the axis in pixels.

    Returns:
        The points with the columns `name` (cut in the middle if it is long) and `at`, the height of the name on the axis.
    """
    points = points.sort(y, "arm", descending=[True, False])
    (low, high), gaps = axis, NAME_GAP_PIXELS / height
    # Isotonic regression: neighbours whose distance is too small are pooled, each pool at its mean.
    pools: list[list[float]] = []
    for index, value in enumerate(points[y]):
        pool = [(high - value) / (high - low) - index * gaps]
        while pools and fmean(pools[-1]) > fmean(pool):
            pool = pools.pop() + pool
        pools.append(pool)
    room = max(0.0, 1 - (points.height - 1) * gaps)
    depths = [min(max(fmean(pool), 0.0), room) for pool in pools for _ in pool]
    heights = [high - (high - low) * (depth + i * gaps) for i, depth in enumerate(depths)]
    return name_rows(points).with_columns(pl.Series("at", heights, pl.Float64))


def name_rows(rows: pl.DataFrame) -> pl.DataFrame:
    """Return rows with the column `name`: the name of their arm, cut in the middle if it is long."""
    names = shorten(rows["arm"].unique(maintain_order=True).to_list(), MOST_LETTERS)
    return rows.with_columns(name=pl.col("arm").replace(names))


def names(data: str, x: Json, y: Json, end: Json, sample: Json | None = None) -> list[Json]:
    """Return the layers that write names to the right of a chart, each led to by a thin rule from its point.

    Args:
        data: name of the rows of `place_names`.
        x: encoding of the points' horizontal axis.
        y: encoding of the points' vertical axis.
        end: field or value of the right end of the horizontal axis.
        sample: encodings of a sample of the arm's line before the name; None for no sample.
    """
    x2, y2, opacity = end, {"field": "at"}, faded(0.15)
    # The axis keeps its scale where a layer has another field or a value.
    right = {key: value for key, value in x.items() if key != "field"} | end
    margin: Json = {"x": right, "y": y | y2, "opacity": opacity}
    text: Json = {"align": "left", "baseline": "middle", "xOffset": 39 if sample else 14, "style": "ink"}
    leader: Json = {"style": "rule", "strokeWidth": 0.6, "x2Offset": 12}
    words: Json = {"text": channel("name", "nominal"), "tooltip": channel("arm", "nominal")}
    layers = [
        layer(data, "rule", leader, x=x, x2=x2, y=y, y2=y2, opacity=opacity),
        layer(data, "text", text, **margin, **words),
    ]
    if sample is not None:
        layers.append(
            layer(data, "rule", {"xOffset": 12, "x2Offset": 35, "strokeWidth": 2}, **margin, x2=x2, **sample)
        )
    return layers


def colour(colours: Mapping[str, str], arms: Sequence[str], visible: Sequence[str] | None = None) -> Json:
    """Return the encoding that colours arms, the same in every chart, with a legend.

    Args:
        colours: colour of each arm, in order.
        arms: arms of the chart.
        visible: arms in the legend; None for all.
    """
    legend: Json = {"title": None, "orient": "bottom", "columns": 4, "symbolOpacity": 1, "symbolSize": 220}
    legend |= {
        "symbolType": "stroke",
        "symbolStrokeWidth": 2,
        "values": list(arms if visible is None else visible),
    }
    scale = {"domain": list(arms), "range": [colours[arm] for arm in arms]}
    return channel("arm", "nominal", scale=scale, legend=legend)


def dash(colours: Mapping[str, str], arms: Sequence[str], visible: Sequence[str] | None = None) -> Json:
    """Return the encoding that gives arms their dashes; empty if no two arms share a colour.

    Vega joins its legend with that of `colour`, since the two are equal.
    """
    chosen = theme.dashes(colours)
    if not any(chosen.values()):
        return {}
    scale = {"domain": list(arms), "range": [list(theme.DASHES[chosen[arm]]) for arm in arms]}
    return {"strokeDash": colour(colours, arms, visible) | {"scale": scale}}


def faded(to: float) -> Json:
    """Return an encoding of opacity that fades all arms but the arm in focus; without a focus no arm is faded.

    Args:
        to: opacity of arms that are not in focus, 0 to 1.
    """
    return {"condition": {"test": f"focus === '' || {IN_FOCUS}", "value": 1}, "value": to}


def ends(rows: pl.DataFrame, x: str, y: str, form: str) -> str:
    """Return the first and the last point of each arm's line in words, as the rows are ordered, for screen readers.

    Args:
        rows: points of the lines, with the column `arm`.
        x: column of the horizontal axis.
        y: column of the vertical axis.
        form: format of the values of `y`, such as `.1%`.
    """
    parts = []
    for points in rows.drop_nulls(y).partition_by("arm", maintain_order=True):
        first, last = (points.sort(x).row(end, named=True) for end in (0, -1))
        parts.append(
            f"{first['arm']} from {first[y]:{form}} at {first[x]:,} to {last[y]:{form}} at {last[x]:,}"
        )
    more = f", and {len(parts) - _MOST_DESCRIBED} more" if len(parts) > _MOST_DESCRIBED else ""
    return ", ".join(parts[:_MOST_DESCRIBED]) + more


def map_parts(value: Any, change: Callable[[Any], Any]) -> Any:
    """Return a chart with `change` applied to each of its values, dictionaries and lists, the innermost first."""
    if isinstance(value, list):
        return change([map_parts(item, change) for item in value])
    if isinstance(value, dict):
        return change({key: map_parts(item, change) for key, item in value.items()})
    return change(value)


def shorten_names(chart: Json, arms: Sequence[str]) -> Json:
    """Return a chart for paper, in which each long name of an arm is cut in the middle, in rows and legends."""
    forms = shorten(arms, MOST_LETTERS)
    return map_parts(chart, lambda node: forms.get(node, node) if isinstance(node, str) else node)  # type: ignore[no-any-return]
