"""The look of charts: a colour for each arm, and Vega configurations for light and dark pages."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import cycle
from typing import Any

FONT = "Inter, 'Helvetica Neue', Helvetica, Arial, 'Liberation Sans', sans-serif"

# Found by a search: at least 3:1 against white and near-black, and 21 units of CIELAB or more between colours (15 from the
# grey), also under protanopia, deuteranopia and tritanopia (tests/report/test_theme.py). More arms differ in dashes.
COLOURS = ("#0f99d3", "#8d9b04", "#a24496", "#de7569", "#047a24", "#7164e5", "#c71262", "#b584a1")
DASHES = ((1, 0), (7, 3), (2, 2), (9, 3, 2, 3))
"""Dash patterns of lines in pixels (drawn, gap, …), the first solid: 8 colours with 4 patterns tell 32 arms apart."""
UNTRAINED_COLOUR = "#676f72"

LIGHT = {"ink": "#1d2430", "muted": "#5d6675", "grid": "#e6e8ec", "paper": "#ffffff"}
DARK = {"ink": "#eceff4", "muted": "#a3adbb", "grid": "#2d333c", "paper": "#171a1f"}


FRONTIER_KEY = LIGHT["ink"]
"""The frontier's dash in a chart's own legend, which is drawn on light paper only."""


def colours(arms: Sequence[str], untrained: Sequence[str] = ()) -> dict[str, str]:
    """Return each arm's colour: grey for the first untrained arm, for all others the palette in order.

    The palette starts again after its last colour.

    Args:
        arms: names of arms, in order.
        untrained: names of arms whose models are not trained.
    """
    first_untrained = next((arm for arm in arms if arm in untrained), None)
    palette = cycle(COLOURS)
    return {arm: UNTRAINED_COLOUR if arm == first_untrained else next(palette) for arm in arms}


def dashes(chosen: Mapping[str, str]) -> dict[str, int]:
    """Return the index in `DASHES` of each arm's line: 0 for the first arm of a colour, 1 for the second, and so on.

    Args:
        chosen: colour of each arm, in order.
    """
    palette = list(chosen.values())
    return {arm: palette[:i].count(palette[i]) % len(DASHES) for i, arm in enumerate(chosen)}


def config(dark: bool = False) -> dict[str, Any]:
    """Return a Vega-Lite `config` with a transparent background: axes, grid, titles and mark styles.

    Args:
        dark: whether the page behind the chart is dark.
    """
    shades = DARK if dark else LIGHT
    return {
        "background": "transparent",
        "font": FONT,
        "view": {"stroke": None},
        "axis": {
            "domain": False,
            "ticks": False,
            "gridColor": shades["grid"],
            "labelColor": shades["muted"],
            "titleColor": shades["muted"],
            "labelFontSize": 11,
            "titleFontSize": 11,
            "titleFontWeight": "normal",
            "labelPadding": 6,
            "titlePadding": 8,
        },
        "title": {
            "color": shades["ink"],
            "fontSize": 13,
            "fontWeight": 600,
            "anchor": "start",
            "offset": 10,
            "limit": 300,
        },
        "legend": {
            "labelColor": shades["ink"],
            "titleColor": shades["muted"],
            "labelFontSize": 11,
            "titleFontSize": 11,
            "titleFontWeight": "normal",
            "labelLimit": 240,
        },
        "header": {"labelColor": shades["ink"], "titleColor": shades["muted"]},
        "text": {"color": shades["ink"], "fontSize": 11},
        "style": {
            "frontier": {"color": shades["ink"]},
            "ink": {"color": shades["ink"], "fill": shades["ink"]},
            "rule": {"color": shades["muted"]},
            "outline": {"stroke": shades["muted"], "strokeWidth": 0.8},
            "halo": {"stroke": shades["paper"]},
        },
    }
