"""One source line and a span in it to what a terminal can show: cut to a width, tabs and controls made visible."""

from __future__ import annotations

import unicodedata
from dataclasses import dataclass

from reodsl.diagnostics.model import Span

_TAB = 4


@dataclass(frozen=True, slots=True)
class Excerpt:
    """The text to print, and where its mark goes: `before` columns in, `marked` wide; `start` is the cut's column."""

    text: str
    before: int
    marked: int
    start: int

    @classmethod
    def around(cls, line: str, span: Span, width: int) -> Excerpt:
        """The part of `line` around `span` that fits into `width` columns; a span over lines is marked to the end."""
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
        low = next(at for at, column in enumerate(columns) if column >= first)
        high = max(at for at, column in enumerate(columns) if column <= columns[low] + room)
        head, tail = ("…" if low else ""), ("…" if high < len(line) else "")
        shown = "".join(cells[low:high])
        before = left - columns[low] + len(head)
        marked = min(right, columns[low] + room + 1) - left
        return cls(f"{head}{shown}{tail}", before, max(marked, 1), low)


def visible(text: str) -> str:
    """The text with control, invisible and direction-changing characters spelled as `\\u{1b}`."""
    return text if text.isprintable() else "".join(map(_visible, text))


def _visible(character: str) -> str:
    if character.isprintable():
        return character
    # No-break and other wide spaces are harmless, and lines read better with them.
    return " " if unicodedata.category(character) == "Zs" else f"\\u{{{ord(character):x}}}"


def _cells(line: str) -> tuple[list[str], list[int]]:
    """Each character as shown, and the terminal column at which each begins (and the last ends)."""
    cells: list[str] = []
    columns = [0]
    for character in line:
        column = columns[-1]
        cell = " " * (_TAB - column % _TAB) if character == "\t" else _visible(character)
        cells.append(cell)
        columns.append(column + sum(map(_width, cell)))
    return cells, columns


def _width(character: str) -> int:
    if unicodedata.combining(character):
        return 0
    return 2 if unicodedata.east_asian_width(character) in "WF" else 1
