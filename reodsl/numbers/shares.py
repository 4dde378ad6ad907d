"""Write shares in percent: only a share of exactly 0 or 1 becomes 0 or 100."""

from __future__ import annotations

ROUNDING = 1e-9
"""The distance within which a share counts as exactly 0 or 1, since sums are rounded."""


def in_percent(share: float, digits: int = 0) -> str:
    """Return a share in percent without a percent sign, never rounded to `0` or `100`: .996 is `99`.

    Args:
        share: 0 to 1.
        digits: Digits after the point.

    Returns:
        The text; `0` or `100` only for a share of exactly 0 or 1.
    """
    least = 10.0**-digits
    value = 100 * share
    if ROUNDING < share < 1 - ROUNDING:
        value = min(max(value, least), 100 - least)
    return f"{value:.{digits}f}"
