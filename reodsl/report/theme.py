"""The look of charts: a colour for each arm, and Vega configurations for light and dark pages."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

FONT = "Inter, 'Helvetica Neue', Helvetica, Arial, 'Liberation Sans', sans-serif"

# Found by a search: at least 3:1 against white and near-black, and apart by 21 units of CIELAB or more, also under
# protanopia, deuteranopia and tritanopia (tests/report/test_theme.py). No ninth is as far; more arms differ in their dashes.
COLOURS = ("#0f99d3", "#8d9b04", "#a24496", "#de7569", "#047a24", "#7164e5", "#c71262", "#b584a1")
DASHES = ((1, 0), (7, 3), (2, 2), (9, 3, 2, 3))
"""Dashes of lines, the first whole: each colour with each of them is 32 arms."""
UNTRAINED_COLOUR = "#8d96a3"

_LIGHT = {"ink": "#1d2430", "muted": "#5d6675", "grid": "#e6e8ec", "paper": "#ffffff"}
_DARK = {"ink": "#eceff4", "muted": "#a3adbb", "grid": "#2d333c", "paper": "#171a1f"}


FRONTIER_KEY = _LIGHT["ink"]
"""The frontier's dash in a chart's own legend, which is drawn on light paper only."""


def colours(arms: Sequence[str], untrained: Sequence[str] = ()) -> dict[str, str]:
    """Return a colour for each arm, in order: grey for an untrained arm, then the palette, repeated if needed."""
    chosen: dict[str, str] = {}
    used = 0
    for arm in arms:
        if arm in untrained and UNTRAINED_COLOUR not in chosen.values():
            chosen[arm] = UNTRAINED_COLOUR
        else:
            chosen[arm] = COLOURS[used % len(COLOURS)]
            used += 1
    return chosen


def dashes(chosen: Mapping[str, str]) -> dict[str, int]:
    """Return the index in `DASHES` of each arm, which grows each time its colour is used again.

    Args:
        chosen: colour of each arm.
    """
    uses: dict[str, int] = {}
    kinds = {}
    for arm, colour in chosen.items():
        kinds[arm] = uses.get(colour, 0) % len(DASHES)
        uses[colour] = uses.get(colour, 0) + 1
    return kinds


def config(dark: bool = False) -> dict[str, Any]:
    """Return a Vega-Lite `config` with a clear background: axes, grid, titles, and and mark styles."""
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
