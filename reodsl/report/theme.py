"""The look of charts: a colour for each arm, and Vega configurations for light and dark pages."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

FONT = "Inter, 'Helvetica Neue', Helvetica, Arial, 'Liberation Sans', sans-serif"

# Distinct in hue and lightness, legible on white and on near-black, and apart under the common colour blindnesses.
COLOURS = (
    "#4269d0",
    "#f58518",
    "#2a9d74",
    "#e4576b",
    "#a463f2",
    "#c9a227",
    "#38a3c5",
    "#9c6b4e",
    "#e377c2",
    "#6b8e23",
    "#7f86a8",
    "#b5495b",
)
UNTRAINED = "#8d96a3"

_LIGHT = {"ink": "#1d2430", "muted": "#5d6675", "grid": "#e6e8ec", "paper": "#ffffff"}
_DARK = {"ink": "#eceff4", "muted": "#a3adbb", "grid": "#2d333c", "paper": "#171a1f"}


FRONTIER_KEY = _LIGHT["ink"]
"""The frontier's dash in a chart's own legend, which is drawn on light paper only."""


def colours(arms: Sequence[str], untrained: Sequence[str] = ()) -> dict[str, str]:
    """A colour for each arm, in order: grey where nothing was trained, then the palette, repeated if it must be."""
    chosen: dict[str, str] = {}
    used = 0
    for arm in arms:
        if arm in untrained and UNTRAINED not in chosen.values():
            chosen[arm] = UNTRAINED
        else:
            chosen[arm] = COLOURS[used % len(COLOURS)]
            used += 1
    return chosen


def config(dark: bool = False) -> dict[str, Any]:
    """A Vega-Lite `config`: axes, grid, titles, and the `frontier` and `ink` mark styles, on a clear background."""
    c = _DARK if dark else _LIGHT
    return {
        "background": "transparent",
        "font": FONT,
        "view": {"stroke": None},
        "axis": {
            "domain": False,
            "ticks": False,
            "gridColor": c["grid"],
            "labelColor": c["muted"],
            "titleColor": c["muted"],
            "labelFontSize": 11,
            "titleFontSize": 11,
            "titleFontWeight": "normal",
            "labelPadding": 6,
            "titlePadding": 8,
        },
        "title": {
            "color": c["ink"],
            "fontSize": 13,
            "fontWeight": 600,
            "anchor": "start",
            "offset": 10,
            "limit": 300,
        },
        "legend": {
            "labelColor": c["ink"],
            "titleColor": c["muted"],
            "labelFontSize": 11,
            "titleFontSize": 11,
            "titleFontWeight": "normal",
            "labelLimit": 240,
        },
        "header": {"labelColor": c["ink"], "titleColor": c["muted"]},
        "text": {"color": c["ink"], "fontSize": 11},
        "style": {
            "frontier": {"color": c["ink"]},
            "ink": {"color": c["ink"], "fill": c["ink"]},
            "rule": {"color": c["muted"]},
            "halo": {"stroke": c["paper"]},
        },
    }
