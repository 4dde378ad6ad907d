"""Format percentages, tokens, changes and intervals for the report and the terminal."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from reodsl.diagnostics import in_percent

MINUS = "−"
NONE = "–"
APPROXIMATE_MARK = "~"
"""The mark of numbers against a frontier that is not of these arms."""
STAR = "*"
"""The star of a difference that is significant after correcting for all comparisons of its study (Holm)."""


def number(value: float | None, digits: int = 1) -> str:
    """Return a number as `12,875.9`; a dash for None or a number that is not finite.

    A number that rounds to 0 has no minus.

    Args:
        value: the number, or None.
        digits: digits after the point.
    """
    if value is None or not math.isfinite(value):
        return NONE
    text = f"{abs(value):,.{digits}f}"
    return MINUS + text if value < 0 and any(c in "123456789" for c in text) else text


def percent(share: float | None, digits: int = 1) -> str:
    """Return a share in percent without a percent sign, as in the paper's tables: 0.954 is `95.4`.

    Args:
        share: number from 0 to 1, or None.
        digits: digits after the point.
    """
    return number(None if share is None else float(in_percent(share, digits)), digits)


def format_signed(value: float | None, digits: int = 1) -> str:
    """Return a number with its sign: `+0.7`, `−94.3`, `0.0`.

    Args:
        value: the number, or None.
        digits: digits after the point.
    """
    text = number(value, digits)
    positive = value is not None and value > 0 and any(c in "123456789" for c in text)
    return f"+{text}" if positive else text


def format_change(value: float | None, unit: str = "") -> str:
    """Return a change as `−57.6%`, `+0.7` or `0.0`, and an empty text for a missing value.

    Args:
        value: the change, or None.
        unit: text that follows the number.
    """
    return "" if value is None or not math.isfinite(value) else format_signed(value) + unit


def interval(low: float | None, high: float | None, digits: int = 1) -> str:
    """Return an interval as `[0.9, 1.4]`; empty if a bound is missing.

    Args:
        low: lower bound.
        high: upper bound.
        digits: digits after the point.
    """
    return "" if low is None or high is None else f"[{number(low, digits)}, {number(high, digits)}]"


def difference(row: Mapping[str, Any], name: str = "difference", digits: int = 1) -> str:
    """Return a difference with its sign, and a star if it is significant: `−18.4*`, `−0.4`.

    Args:
        row: row of a table.
        name: column of the difference.
        digits: digits after the point.
    """
    return format_signed(row.get(name), digits) + (STAR if row.get(f"{name}_star") else "")


def spread(sd: float | None, digits: int = 1) -> str:
    """Return a standard deviation as `±0.6`; empty if it is None.

    Args:
        sd: standard deviation over seeds, or None with one seed.
        digits: digits after the point.
    """
    return "" if sd is None else f"±{number(sd, digits)}"


def shorten(names: Sequence[str], most: int) -> dict[str, str]:
    """Return short forms of names, cut in the middle: `group_normal…alpha020`.

    Short forms differ where names differ, so some may have more than `most` letters.

    Args:
        names: names, by which the short forms are found.
        most: the most letters of a short form.
    """
    forms: dict[str, str] = {}
    for name in dict.fromkeys(names):
        lengths = range(most, len(name), 4)
        cuts = (f"{name[: length - length // 2]}…{name[1 - length // 2 :]}" for length in lengths)
        forms[name] = next((form for form in cuts if form not in {*forms.values(), *names}), name)
    return forms


def finite(value: Any) -> Any:
    """Return data with None in place of numbers that are not finite, which JSON cannot hold."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {str(key): finite(item) for key, item in value.items()}
    return [finite(item) for item in value] if isinstance(value, (list, tuple)) else value
