"""Say why a spec's regular expression cannot be used.

Checking a spec reads this without waiting for pydantic.
"""

from __future__ import annotations

import re

LARGEST_PATTERN = 2_000
"""Characters of a regular expression, times how often its counted repetitions repeat. Its time grows with this."""
_GOES_BACK = re.compile(r"(?<!\\)(?:\\\\)*(\(\?<?[=!]|\(\?P=|\\[1-9])")
_REPEATED = re.compile(r"\{(\d+)(?:,(\d*))?\}")


def pattern_fault(pattern: str) -> str | None:
    """Return why a regular expression cannot be used, or None. The engine is Rust's, as polars has it: it never goes back.

    Without polars Python's engine says what it can; a run has polars, and checks once more.
    """
    times = len(pattern)
    for least, most in _REPEATED.findall(pattern):
        times *= max(1, int(least[:9]), int((most or "0")[:9]))
    if times > LARGEST_PATTERN:
        return f"it is too large: its characters times its repetitions are {times:,}, and {LARGEST_PATTERN:,} is the most"
    try:
        import polars as pl
    except ModuleNotFoundError:
        return _fault_in_python(pattern)
    try:
        pl.Series([""]).str.contains(pattern)
    except pl.exceptions.PolarsError as failure:
        lines = [
            line.strip() for line in str(failure).split("This error occurred")[0].splitlines() if line.strip()
        ]
        return lines[-1].removeprefix("error: ") if lines else "it is not a regular expression"
    return None


def _fault_in_python(pattern: str) -> str | None:
    """Return what Python's engine cannot read either, or what goes back, which Rust's refuses."""
    back = _GOES_BACK.search(pattern)
    if back is not None:
        return f"`{back[1]}` looks around or back, which is not supported"
    try:
        re.compile(pattern)
    except re.error as failure:
        return str(failure)
    return None
