"""Arms whose responses never end: a run's folder in, a warning for each out."""

from __future__ import annotations

import json
from pathlib import Path

from reodsl.diagnostics import Diagnostic, warning


def unended(folder: Path) -> list[Diagnostic]:
    """A warning (W0801) for every arm of which each response was cut at the longest length. Unreadable ones are none."""
    found = []
    for summary in sorted((folder / "arms").glob("*/summary.json")):
        try:
            mean = json.loads(summary.read_bytes())["mean"]
            cut, length = float(mean["unfinished"]), float(mean["length"])
        except (OSError, ValueError, KeyError, TypeError):
            continue
        if cut >= 1:
            found.append(
                warning(
                    "W0801",
                    f"no response of `{summary.parent.name}` ended: all were cut, at {length:g} tokens on average",
                    where=str(summary.parent),
                    help="raise the suite's `max_tokens`, or train longer; a response that was cut has no answer of its own",
                )
            )
    return found
