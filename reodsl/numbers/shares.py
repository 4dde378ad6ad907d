"""Write shares in percent: one that is neither nothing nor all is never 0 or 100."""

from __future__ import annotations

ROUNDING = 1e-9
"""The distance from 0 or 1 within which a share is that, up to the rounding of sums."""


def in_percent(share: float, digits: int = 0) -> str:
    """Return a share in percent without its sign: .996 is `99`, since `100` would say that it is all.

    Args:
        share: 0 to 1.
        digits: Digits after the point.

    Returns:
        The text, `0` or `100` only for exactly nothing or all.
    """
    least = 10.0**-digits
    value = 100 * share
    if ROUNDING < share < 1 - ROUNDING:
        value = min(max(value, least), 100 - least)
    return f"{value:.{digits}f}"
