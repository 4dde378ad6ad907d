"""Build Vega-Lite charts: rows by name, channels, layers, a line for each arm, and the complete chart."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

import polars as pl

from reodsl.report import theme
from reodsl.report.material import Material

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


class Rows:
    """The data of a chart by name; equal frames have equal names in all charts."""

    def __init__(self) -> None:
        self.by_name: dict[str, list[Json]] = {}

    def add(self, frame: pl.DataFrame) -> str:
        """Store a frame's rows, with numbers rounded to six significant digits, and return a name for the rows."""
        rows = [{key: _round(value) for key, value in row.items()} for row in frame.to_dicts()]
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
    material: Material,
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
        material: results of the run.
        arms: arms of the chart.
        visible: arms in the legend; None for all.
        fade: opacity of a line while another arm is in focus.
        tooltip: encodings that are shown on hover.
        style: further properties of the mark.
    """
    more: Json = {} if tooltip is None else {"tooltip": tooltip}
    look: Json = {"color": colour(material, arms, visible), "opacity": faded(fade), **dash(material, arms)}
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


def colour(material: Material, arms: Sequence[str], visible: Sequence[str] | None = None) -> Json:
    """Return the encoding that colours arms, the same in every chart, with a legend.

    Args:
        material: results of the run.
        arms: arms of the chart.
        visible: arms in the legend; None for all.
    """
    chosen = material.colours
    legend: Json = {"title": None, "orient": "bottom", "columns": 4, "symbolOpacity": 1}
    if visible is not None:
        legend["values"] = list(visible)
    scale = {"domain": list(arms), "range": [chosen[arm] for arm in arms]}
    return channel("arm", "nominal", scale=scale, legend=legend)


def dash(material: Material, arms: Sequence[str]) -> Json:
    """Return the encoding that gives arms their dashes; empty if no two arms share a colour."""
    chosen = theme.dashes(material.colours)
    if not any(chosen.values()):
        return {}
    scale = {"domain": list(arms), "range": [list(theme.DASHES[chosen[arm]]) for arm in arms]}
    return {"strokeDash": channel("arm", "nominal", scale=scale, legend=None)}


def faded(to: float) -> Json:
    """Return an encoding of opacity that fades all arms but the arm in focus; without a focus no arm is faded.

    Args:
        to: opacity of arms that are not in focus, 0 to 1.
    """
    return {"condition": {"test": f"focus === '' || {IN_FOCUS}", "value": 1}, "value": to}


def ends(rows: pl.DataFrame, x: str, y: str, form: str) -> str:
    """Return the first and the last point of each arm's line in words, for screen readers.

    Args:
        rows: points of the lines, with the column `arm`.
        x: column of the horizontal axis.
        y: column of the vertical axis.
        form: format of the values of `y`, such as `.1%`.
    """
    parts = []
    for line_rows in rows.sort(x).partition_by("arm", maintain_order=True):
        points = line_rows.filter(pl.col(y).is_not_null())
        if points.height:
            first, last = points.row(0, named=True), points.row(-1, named=True)
            parts.append(
                f"{first['arm']} from {first[y]:{form}} at {first[x]:,} to {last[y]:{form}} at {last[x]:,}"
            )
    more = f", and {len(parts) - _MOST_DESCRIBED} more" if len(parts) > _MOST_DESCRIBED else ""
    return ", ".join(sorted(parts)[:_MOST_DESCRIBED]) + more


def _round(value: Any) -> Any:
    """Return a float rounded to six significant digits, and any other value unchanged."""
    return float(f"{value:.6g}") if isinstance(value, float) else value


def map_parts(value: Any, change: Callable[[Any], Any]) -> Any:
    """Return a chart with `change` applied to each of its values, dictionaries and lists, the innermost first."""
    if isinstance(value, list):
        return change([map_parts(item, change) for item in value])
    if isinstance(value, dict):
        return change({key: map_parts(item, change) for key, item in value.items()})
    return change(value)
