"""What other people's code says of its failure: an exception in, one short line for a diagnostic out."""

from __future__ import annotations


def first_line(fault: BaseException, otherwise: str | None = None, most: int = 200) -> str:
    """The first line that says anything, `most` characters of it; without one `otherwise`, or the exception's own name."""
    lines = str(fault).strip().splitlines()
    return lines[0][:most] if lines else type(fault).__name__ if otherwise is None else otherwise
