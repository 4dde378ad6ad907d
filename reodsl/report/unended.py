"""Warn of arms whose responses never end."""

from __future__ import annotations

import json
from pathlib import Path

from reodsl.diagnostics import Diagnostic, warning

_NAMED = 12


def unended(folder: Path) -> list[Diagnostic]:
    """A warning (W0801) of the arms of which each response was cut at the longest length. Unreadable ones are none."""
    lengths: dict[str, float] = {}
    for summary in sorted((folder / "arms").glob("*/summary.json")):
        try:
            mean = json.loads(summary.read_bytes())["mean"]
            cut, length = float(mean["unfinished"]), float(mean["length"])
        except (OSError, ValueError, KeyError, TypeError):
            continue
        if cut >= 1:
            lengths[summary.parent.name] = length
    if not lengths:
        return []
    names = [f"`{name}`" for name in lengths]
    listed = ", ".join(names[:_NAMED]) + (f" and {len(names) - _NAMED} more" if len(names) > _NAMED else "")
    length = sum(lengths.values()) / len(lengths)
    return [
        warning(
            "W0801",
            f"no response of {listed} ended: all were cut, at {length:g} tokens on average",
            where=str(folder / "arms" / next(iter(lengths))) if len(lengths) == 1 else str(folder / "arms"),
            help="raise the suite's `max_tokens`, or train longer; what a response answered before it was cut counts, "
            "in its thinking too unless its data say `thinking = skip`",
        )
    ]
