"""Place names beside the points of a scatter chart where they cover least."""

from __future__ import annotations

import polars as pl

EDGE = 44
"""Pixels kept free around the points, so that names stay inside."""

NARROW = 400
"""The width in pixels for which names are placed: a wider chart only has more room."""

Side = tuple[int, int, str]
"""An offset in pixels to the right and down, and the text's alignment there."""

_SIDES: tuple[Side, ...] = ((0, -16, "center"), (0, 18, "center"), (13, 1, "left"), (-13, 1, "right"))
_Box = tuple[float, float, float, float]


def sides(rows: pl.DataFrame, x: str, y: str, height: int) -> list[tuple[Side, pl.DataFrame]]:
    """Return the rows (with column `arm`) by the side where their names go; sides without a name are left out.

    From left to right, each name takes the first side where it overlaps least with points and the names before it.
    """
    points = rows.filter(pl.col(x).is_not_null() & pl.col(y).is_not_null())
    if not points.height:
        return []
    across, up = _pixels(points[x], NARROW), _pixels(points[y], height)
    at = {arm: (a, height - u) for arm, a, u in zip(points["arm"], across, up, strict=True)}
    taken = [(px - 8, py - 8, px + 8, py + 8) for px, py in at.values()]
    chosen: dict[str, Side] = {}
    for arm, place in sorted(at.items(), key=lambda item: item[1]):
        boxes = [(side, _box(place, side, 3.3 * len(arm))) for side in _SIDES]
        side, box = min(boxes, key=lambda item: sum(_overlap(item[1], other) for other in taken))
        chosen[arm] = side
        taken.append(box)
    parts = ((side, [arm for arm, at_side in chosen.items() if at_side == side]) for side in _SIDES)
    return [(side, points.filter(pl.col("arm").is_in(arms))) for side, arms in parts if arms]


def _box(place: tuple[float, float], side: Side, half: float) -> _Box:
    """Return where a name of width `2 half` stands: left, top, right, bottom."""
    dx, dy, align = side
    middle = place[0] + dx + {"center": 0.0, "left": half, "right": -half}[align]
    return (middle - half, place[1] + dy - 7, middle + half, place[1] + dy + 7)


def _pixels(values: pl.Series, size: float) -> list[float]:
    numbers = [float(value) for value in values]
    low, high = min(numbers), max(numbers)
    return [EDGE + (size - 2 * EDGE) * ((n - low) / (high - low) if high > low else 0.5) for n in numbers]


def _overlap(a: _Box, b: _Box) -> float:
    return max(0.0, min(a[2], b[2]) - max(a[0], b[0])) * max(0.0, min(a[3], b[3]) - max(a[1], b[1]))
