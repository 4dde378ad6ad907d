"""Convert an editor's places (from 0, in code units) to a source's (from 1, in characters), and back.

The protocol counts UTF-16 code units unless client and server agree on `utf-8` or `utf-32`.
"""

from __future__ import annotations

from dataclasses import dataclass

from reodsl.diagnostics.model import Span

UTF16 = "utf-16"


@dataclass(frozen=True, slots=True, order=True)
class Position:
    """A place in an editor: a line from 0, and the code units before it on that line."""

    line: int
    character: int


@dataclass(frozen=True, slots=True)
class Range:
    """From `start` up to and without `end`."""

    start: Position
    end: Position


def lines_of(text: str) -> list[str]:
    r"""Split a text into lines as editors and sources do: only `\n` and `\r` end one."""
    return text.replace("\r\n", "\n").replace("\r", "\n").split("\n")


def place(text: str, position: Position, encoding: str = UTF16) -> tuple[int, int]:
    """Line and column in the source, from 1.

    A place past the end of a line or of the text becomes that end, one before its start the start, and one in the middle
    of a character the place before it.
    """
    lines = lines_of(text)
    if position.line < 0:
        return 1, 1
    if position.line >= len(lines):
        return len(lines), len(lines[-1]) + 1
    line, left = lines[position.line], position.character
    for at, character in enumerate(line):
        left -= units(character, encoding)
        if left < 0:
            return position.line + 1, at + 1
    return position.line + 1, len(line) + 1


def range_of(text: str, span: Span | None, encoding: str = UTF16) -> Range:
    """Return the range of a span in its text; the start of the text without a span."""
    if span is None:
        return Range(Position(0, 0), Position(0, 0))
    lines = lines_of(text)
    return Range(
        _position(lines, span.line, span.column, encoding),
        _position(lines, span.end_line, span.end_column, encoding),
    )


def whole(text: str, encoding: str = UTF16) -> Range:
    """Return the range of a whole text."""
    lines = lines_of(text)
    return Range(Position(0, 0), Position(len(lines) - 1, units(lines[-1], encoding)))


def units(text: str, encoding: str = UTF16) -> int:
    """Count the code units of a text: in UTF-16 a character past U+FFFF has two, in UTF-8 each byte is one."""
    width = {UTF16: ("utf-16-le", 2), "utf-8": ("utf-8", 1), "utf-32": ("utf-32-le", 4)}[encoding]
    return len(text.encode(width[0], "surrogatepass")) // width[1]


def _position(lines: list[str], line: int, column: int, encoding: str) -> Position:
    if line > len(lines):
        return Position(len(lines) - 1, units(lines[-1], encoding))
    return Position(line - 1, units(lines[line - 1][: column - 1], encoding))
