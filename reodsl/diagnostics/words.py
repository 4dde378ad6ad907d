"""Put names and texts into a sentence of bounded length."""

from __future__ import annotations

from collections.abc import Sequence


def listed(names: Sequence[str], most: int, joint: str = ", ", total: int | None = None) -> str:
    """Return the first `most` names, and how many more there are of all or of `total`: `a, b and 3 more`."""
    rest = (len(names) if total is None else total) - min(len(names), most)
    return joint.join(names[:most]) + (f" and {rest} more" if rest > 0 else "")


def shorten_text(text: str, most: int = 60) -> str:
    """Return a text on one line of at most so many characters, the last of which is `…` where some are missing."""
    line = " ".join(text.split())
    return line if len(line) <= most else line[: most - 1] + "…"
