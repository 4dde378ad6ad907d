"""Cut a source line around a span for a terminal, with tabs and control characters made visible."""

from __future__ import annotations

import unicodedata
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

from reodsl.diagnostics.model import Span

_TAB = 4
_MOST_MARKS = 4
"""The most combining marks on one letter that count as 0 columns wide; further ones count as 1."""


@dataclass(frozen=True, slots=True)
class Excerpt:
    """The text to print, and where its mark goes: `before` columns in, `marked` wide; `start` is the cut's column."""

    text: str
    before: int
    marked: int
    start: int

    @classmethod
    def around(cls, line: str, span: Span, width: int) -> Excerpt:
        """Return the part of `line` around `span` that fits into `width` columns; a span over lines is marked to the end."""
        cells, columns = _cells(line)
        start = min(max(span.column - 1, 0), len(line))
        end = len(line) if span.end_line > span.line else min(max(span.end_column - 1, start), len(line))
        left, right = columns[start], columns[end]
        total = columns[-1]
        right = max(right, left + 1)
        if total <= width:
            return cls("".join(cells), left, right - left, 0)
        # A third of the room before the mark, and never more empty room behind the line than needed.
        room = width - 2
        first = max(0, min(left - room // 3, max(total, right) - room))
        low = bisect_left(columns, first)
        high = bisect_right(columns, columns[low] + room) - 1
        head, tail = ("…" if low else ""), ("…" if high < len(line) else "")
        shown = "".join(cells[low:high])
        before = left - columns[low] + len(head)
        marked = min(right, columns[low] + room + 1) - left
        return cls(f"{head}{shown}{tail}", before, max(marked, 1), low)


def visible(text: str) -> str:
    r"""Spell control, invisible and direction-changing characters of a text as `\u{1b}`."""
    return text if text.isprintable() else "".join(map(_visible, text))


def _visible(character: str) -> str:
    if character.isprintable():
        return character
    # No-break and other wide spaces are harmless, and lines read better with them.
    return " " if unicodedata.category(character) == "Zs" else f"\\u{{{ord(character):x}}}"


# Labels come file by file and line by line, so the last few lines are those that are asked for again.
@lru_cache(maxsize=4)
def _cells(line: str) -> tuple[Sequence[str], Sequence[int]]:
    """List each character as shown, and the terminal column at which it begins (and the last one ends)."""
    if line.isascii() and line.isprintable():
        return line, range(len(line) + 1)
    cells: list[str] = []
    columns = [0]
    marks = 0
    for character in line:
        column = columns[-1]
        cell = " " * (_TAB - column % _TAB) if character == "\t" else _visible(character)
        width = sum(map(_width, cell))
        marks = 0 if width else marks + 1
        cells.append(cell)
        columns.append(column + (width or (marks > _MOST_MARKS)))
    return cells, columns


def _width(character: str) -> int:
    if unicodedata.combining(character):
        return 0
    return 2 if unicodedata.east_asian_width(character) in "WF" else 1
