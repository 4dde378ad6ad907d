"""Rows of a formatted file, joined and to its text: blank lines, columns aligned in runs of like rows, comments behind."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass


@dataclass(slots=True)
class Row:
    """One line to be. A `text` with newlines holds a triple-quoted text, whose further lines stand as they are.

    Rows with one `key`, in direct succession, get what begins at `split` (a `=` or a `{`) into one column.
    """

    indent: int
    text: str
    comment: str = ""
    blank: bool = False
    key: str = ""
    split: int = 0

    def width(self) -> int:
        """The columns taken by its last line."""
        last = self.text.rpartition("\n")
        return len(last[2]) if last[1] else 2 * self.indent + len(self.text)


def join(first: list[Row], between: str, second: list[Row]) -> list[Row]:
    """`second` begun on the last row of `first`."""
    if not first:
        return second
    last, head = first[-1], second[0]
    last.text += between + head.text
    last.comment = last.comment or head.comment
    return first + second[1:]


def behind(rows: list[Row], text: str) -> list[Row]:
    """`text` at the end of the last row."""
    rows[-1].text += text
    return rows


def around(rows: list[Row]) -> list[Row]:
    """The rows in ( )."""
    rows[0].text = "(" + rows[0].text
    rows[-1].text += ")"
    return rows


def printed(rows: list[Row]) -> str:
    """The file, ending in one newline; empty for no rows."""
    for run in _runs(rows, lambda row: bool(row.key), lambda row: row.split, 8):
        column = max(row.split for row in run)
        for row in run:
            row.text = row.text[: row.split].ljust(column) + row.text[row.split :]
    for run in _runs(rows, lambda row: bool(row.comment and row.text), Row.width, 40):
        column = max(row.width() for row in run)
        for row in run:
            row.text += " " * (column - row.width() + 2) + row.comment
    lines: list[str] = []
    for row in rows:
        if row.blank and lines:
            lines.append("")
        text = row.text or row.comment
        lines.append("  " * row.indent + text if text else "")
    return "\n".join(lines) + "\n" if lines else ""


def _runs(
    rows: Iterable[Row], belongs: Callable[[Row], bool], extent: Callable[[Row], int], spread: int
) -> Iterator[list[Row]]:
    """Runs of rows that belong: in direct succession, of one indent and key, one line high, of like extents.

    A row much longer than its neighbours starts a run of its own, lest it push all of them apart.
    """
    run: list[Row] = []
    least = most = 0
    for row in rows:
        fits = belongs(row) and "\n" not in row.text
        extended = extent(row)
        if run and not (
            fits
            and not row.blank
            and (row.indent, row.key) == (run[-1].indent, run[-1].key)
            and max(most, extended) - min(least, extended) <= spread
        ):
            yield run
            run = []
        if fits:
            least, most = (min(least, extended), max(most, extended)) if run else (extended, extended)
            run.append(row)
        elif belongs(row):
            yield [row]
    if run:
        yield run
