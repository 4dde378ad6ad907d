"""Parts of Vega-Lite charts: rows by name, channels, layers, a line for each arm, and the whole chart."""

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
"""A chart, or a part of one, as Vega-Lite has it."""

WIDTH = 460
Width = int | Literal["container"]
ON = "indexof(off, datum.arm) < 0"
"""The condition that the arm of a row is switched on."""
FOCUSED = "datum.arm === focus"
"""The condition that a mark belongs to the arm in focus."""
_SCHEMA = "https://vega.github.io/schema/vega-lite/v6.json"
_NAMED = 12


@dataclass(frozen=True, slots=True)
class Cross:
    """The columns that a page's crosshair reads: `x` and `y` of `data`, which has a row for each arm and `x`.

    `percent` means that `y` is a share, and `share` that `x` is. `edge` names the frontier's rows, and `stages` those of
    changes of a stage, by the same `x`.
    """

    x: str
    y: str
    data: str
    percent: bool = False
    share: bool = False
    edge: str | None = None
    stages: str | None = None


class Rows:
    """The data of one chart by name. Equal frames have equal names, in any chart."""

    def __init__(self) -> None:
        self.by_name: dict[str, list[Json]] = {}

    def add(self, frame: pl.DataFrame) -> str:
        """Keep a frame's rows and return their name. Numbers have six digits, which is more than a screen shows."""
        rows = [{key: _round(value) for key, value in row.items()} for row in frame.to_dicts()]
        name = "rows-" + hashlib.sha256(json.dumps(rows).encode()).hexdigest()[:16]
        self.by_name[name] = rows
        return name


def channel(field: str, kind: str = "quantitative", **options: Any) -> Json:
    """Return the encoding of a column, a number unless another `kind` is given; `title=None` shows no title."""
    return {"field": field, "type": kind, **options}


def layer(data: str, mark: str, style: Json, *, switched: bool = True, **encoding: Any) -> Json:
    """Return marks of one kind for the rows of that name; arms can be switched off unless `switched` is false."""
    part = {"data": {"name": data}, "mark": {"type": mark, **style}, "encoding": encoding}
    return part | {"transform": [{"filter": ON}]} if switched else part


def lines(
    data: str,
    x: Json,
    y: Json,
    material: Material,
    arms: Sequence[str],
    *,
    shown: Sequence[str] | None = None,
    fade: float = 0.12,
    tooltip: list[Json] | None = None,
    **style: Any,
) -> Json:
    """Return a line for each arm, in its colour and dashes; while another arm is in focus its opacity is `fade`."""
    more: Json = {} if tooltip is None else {"tooltip": tooltip}
    look: Json = {"color": colour(material, arms, shown), "opacity": faded(fade), **dash(material, arms)}
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
    """Return a chart with its data in it, so that it can be drawn by itself.

    With `switches` it has two parameters: `focus`, the arm that is pointed at (empty for all), and `off`, the arms that
    are switched off. `about` describes it to those who hear it, and `cross` is for the page's crosshair.
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


def colour(material: Material, arms: Sequence[str], shown: Sequence[str] | None = None) -> Json:
    """Return each arm's colour, the same in every chart; the legend names those of `shown`, or all."""
    chosen = material.colours
    legend: Json = {"title": None, "orient": "bottom", "columns": 4, "symbolOpacity": 1}
    if shown is not None:
        legend["values"] = list(shown)
    scale = {"domain": list(arms), "range": [chosen[arm] for arm in arms]}
    return channel("arm", "nominal", scale=scale, legend=legend)


def dash(material: Material, arms: Sequence[str]) -> Json:
    """Return the dashes of arms as an encoding, empty where each arm has a colour of its own."""
    chosen = theme.dashes(material.colours)
    if not any(chosen.values()):
        return {}
    scale = {"domain": list(arms), "range": [list(theme.DASHES[chosen[arm]]) for arm in arms]}
    return {"strokeDash": channel("arm", "nominal", scale=scale, legend=None)}


def faded(to: float) -> Json:
    """Return an opacity: full for the arm in focus or where there is none, else `to`."""
    return {"condition": {"test": f"focus === '' || {FOCUSED}", "value": 1}, "value": to}


def ends(rows: pl.DataFrame, x: str, y: str, form: str) -> str:
    """Describe how each arm's line begins and ends, for those who hear a chart."""
    parts = []
    for part in rows.sort(x).partition_by("arm", maintain_order=True):
        known = part.filter(pl.col(y).is_not_null())
        if known.height:
            first, last = known.row(0, named=True), known.row(-1, named=True)
            parts.append(
                f"{first['arm']} from {first[y]:{form}} at {first[x]:,} to {last[y]:{form}} at {last[x]:,}"
            )
    more = f", and {len(parts) - _NAMED} more" if len(parts) > _NAMED else ""
    return ", ".join(sorted(parts)[:_NAMED]) + more


def _round(value: Any) -> Any:
    return float(f"{value:.6g}") if isinstance(value, float) else value


def map_parts(value: Any, change: Callable[[Any], Any]) -> Any:
    """Return a chart each of whose parts was changed, the innermost first."""
    if isinstance(value, list):
        return change([map_parts(item, change) for item in value])
    if isinstance(value, dict):
        return change({key: map_parts(item, change) for key, item in value.items()})
    return change(value)
