"""Parts that charts share: rows by name, a colour for each arm, the focus on one arm, axes' sizes, tooltips."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

import altair as alt
import polars as pl

from reodsl.report import theme
from reodsl.report.material import Material

WIDTH = 460
Width = int | Literal["container"]
_SAID = 12
SHOWN = "datum.arm === focus"
"""Whether a mark belongs to the arm in focus."""


@dataclass(frozen=True, slots=True)
class Cross:
    """What a page's crosshair reads of a chart: the columns `x` and `y` of its `data`, a row for each arm and `x`.

    `percent` says that `y` is a share, `share` that `x` is. `edge` is the frontier's data and `stages` that of changes
    of a stage, by the same `x`.
    """

    x: str
    y: str
    data: Any
    percent: bool = False
    share: bool = False
    edge: Any = None
    stages: Any = None


class Rows:
    """The data of one chart: frames in, named references out. Equal frames have equal names, in any chart."""

    def __init__(self) -> None:
        self._datasets: dict[str, list[dict[str, Any]]] = {}

    def add(self, frame: pl.DataFrame) -> alt.NamedData:
        """A frame's rows under a name of their own; numbers at six digits, which is more than a screen shows."""
        rows = [{key: _short(value) for key, value in row.items()} for row in frame.to_dicts()]
        name = "rows-" + hashlib.sha256(json.dumps(rows).encode()).hexdigest()[:16]
        self._datasets[name] = rows
        return alt.NamedData(name=name)

    def put(self, chart: alt.LayerChart, cross: Cross | None = None) -> alt.LayerChart:
        """The chart with its data in it, so that it can be drawn by itself; `cross` is for the page's crosshair."""
        # Set last and in place: every other way of changing a chart copies the rows.
        chart.datasets = self._datasets
        if cross is not None:
            chart.usermeta = {"cross": asdict(cross)}
        return chart


def focus() -> alt.Parameter:
    """The parameter that names the arm in focus; empty for all."""
    return alt.param(name="focus", value="")


def switches(hidden: Sequence[str] = ()) -> alt.Parameter:
    """The parameter that lists the arms that are switched off."""
    return alt.param(name="off", value=list(hidden))


ON = "indexof(off, datum.arm) < 0"
"""Whether the arm of a row is switched on."""


def dash(material: Material, arms: Sequence[str]) -> dict[str, alt.StrokeDash]:
    """The dashes of arms, as an encoding; nothing where each has a colour of its own."""
    chosen = theme.dashes(material.colours)
    if not any(chosen.values()):
        return {}
    scale = alt.Scale(domain=list(arms), range=[list(theme.DASHES[chosen[arm]]) for arm in arms])
    return {"strokeDash": alt.StrokeDash("arm:N", scale=scale, legend=None)}


def ends(rows: pl.DataFrame, x: str, y: str, form: str) -> str:
    """How each arm's line begins and ends, in words: for those who hear a chart."""
    said = []
    for part in rows.sort(x).partition_by("arm", maintain_order=True):
        known = part.filter(pl.col(y).is_not_null())
        if known.height:
            first, last = known.row(0, named=True), known.row(-1, named=True)
            said.append(
                f"{first['arm']} from {first[y]:{form}} at {first[x]:,} to {last[y]:{form}} at {last[x]:,}"
            )
    more = f", and {len(said) - _SAID} more" if len(said) > _SAID else ""
    return ", ".join(sorted(said)[:_SAID]) + more


def faded(to: float) -> Any:
    """Opacity: full for the arm in focus or where there is none, else `to`."""
    return alt.condition(f"focus === '' || {SHOWN}", alt.value(1.0), alt.value(to))


def colour(material: Material, arms: Sequence[str], shown: Sequence[str] | None = None) -> alt.Color:
    """Each arm in its colour, the same in every chart; the legend names those of `shown`, or all."""
    chosen = material.colours
    scale = alt.Scale(domain=list(arms), range=[chosen[arm] for arm in arms])
    legend = alt.Legend(title=None, orient="bottom", columns=4, symbolOpacity=1)
    if shown is not None:
        legend = alt.Legend(title=None, orient="bottom", columns=4, symbolOpacity=1, values=list(shown))
    return alt.Color("arm:N", scale=scale, legend=legend)


def tooltips(columns: Sequence[str]) -> list[alt.Tooltip]:
    """An arm's name, accuracy, length and, where it is known, REG."""
    shown = [
        alt.Tooltip("arm:N"),
        alt.Tooltip("accuracy:Q", format=".1%"),
        alt.Tooltip("length:Q", format=",.1f"),
    ]
    return [*shown, alt.Tooltip("reg:Q", title="REG", format=",.1f")] if "reg" in columns else shown


def _short(value: Any) -> Any:
    return float(f"{value:.6g}") if isinstance(value, float) else value
