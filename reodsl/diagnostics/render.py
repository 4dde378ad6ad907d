"""Render diagnostics as text or as plain data for `--json`, sorted and without repetitions.

A code's page says what it means, with a wrong example and a right one; a topic's page is a document.
"""

from __future__ import annotations

import re
import textwrap
import unicodedata
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from pathlib import Path
from typing import Any

from reodsl.diagnostics.model import Diagnostic, Label, Severity, Span, group, plural

WIDTH = 100
_TAB = 4
_MOST_COMBINING = 4
"""The most combining marks on one letter that count as 0 columns wide; further ones count as 1."""

_RANK: dict[Severity, int] = {"error": 0, "warning": 1, "note": 2}
_STYLES: dict[str, str] = {
    "error": "1;31",
    "warning": "1;33",
    "note": "1;36",
    "bold": "1",
    "frame": "34",
    "secondary": "36",
}


def sort_diagnostics(diagnostics: Iterable[Diagnostic]) -> list[Diagnostic]:
    """Return the diagnostics without duplicates, sorted by file, position and severity.

    Diagnostics without a position in a source come first.
    """

    def key(diagnostic: Diagnostic) -> tuple[Any, ...]:
        """Return the sort key of a diagnostic: position, severity (errors first), code and message."""
        if diagnostic.labels:
            span = diagnostic.labels[0].span
            position: tuple[str, int, int] = (span.path, span.line, span.column)
        else:
            position = (diagnostic.where or "", 0, 0)
        return (
            bool(diagnostic.labels),
            *position,
            _RANK[diagnostic.severity],
            diagnostic.code,
            diagnostic.message,
        )

    return sorted(dict.fromkeys(diagnostics), key=key)


def render(
    diagnostics: Iterable[Diagnostic],
    sources: Mapping[str, str],
    *,
    color: bool = False,
    columns: int | None = None,
) -> str:
    """Return diagnostics as text, with the lines of their sources underlined.

    Control characters of the sources are replaced by visible text, so they cannot act on the terminal.

    Args:
        diagnostics: The findings, in any order.
        sources: The texts of the sources by their path; a path without a text is named, and its lines are not
            shown.
        color: Whether the text has ANSI colours.
        columns: The columns of the terminal, to which notes and help are folded and source lines are cut.
            None to fold nothing and to cut source lines at `WIDTH`.
    """
    lines = {path: text.split("\n") for path, text in sources.items()}
    return "\n".join(_draw(diagnostic, lines, color, columns) for diagnostic in sort_diagnostics(diagnostics))


def summary(diagnostics: Iterable[Diagnostic]) -> str:
    """Return the number of diagnostics of each severity: `2 errors, 1 warning`; empty for no diagnostics."""
    counts = Counter(diagnostic.severity for diagnostic in set(diagnostics))
    return ", ".join(plural(counts[severity], severity) for severity in _RANK if counts[severity])


def to_json(diagnostics: Iterable[Diagnostic]) -> list[dict[str, Any]]:
    """Return diagnostics as JSON data, with the fields of `Diagnostic`, `Label` and `Span`."""
    return [
        {
            "code": diagnostic.code,
            "severity": diagnostic.severity,
            "message": diagnostic.message,
            "labels": [{**label.span._asdict(), "text": label.text} for label in diagnostic.labels],
            "where": diagnostic.where,
            "notes": list(diagnostic.notes),
            "help": diagnostic.help,
        }
        for diagnostic in sort_diagnostics(diagnostics)
    ]


def _draw(diagnostic: Diagnostic, sources: Mapping[str, list[str]], color: bool, columns: int | None) -> str:
    """Return the text of a diagnostic: its message, its labels by file and line, its notes and its help.

    Args:
        diagnostic: The finding.
        sources: The lines of the sources by their path.
        color: Whether the text has ANSI colours.
        columns: The columns of the terminal; None to fold no text.
    """
    width = columns or WIDTH

    def paint(text: str, style: str) -> str:
        """Return a text in the ANSI colour of a style if colours are wanted."""
        return f"\x1b[{_STYLES[style]}m{text}\x1b[0m" if color and text else text

    severity = diagnostic.severity
    head = f"{severity}[{diagnostic.code}]"
    message = f"{' ' * len(head)}: {visible(diagnostic.message)}"
    top, *more = [message] if columns is None else _fold_words(message, columns, "    ")
    lines = [paint(head, severity) + paint(top[len(head) :], "bold"), *(paint(row, "bold") for row in more)]
    located = [label for label in diagnostic.labels if _source_line(sources, label) is not None]
    gutter = max((len(str(label.span.line)) for label in located), default=2)
    pad = " " * gutter

    if not diagnostic.labels and diagnostic.where is not None:
        lines.append(paint(f"{pad}--> ", "frame") + visible(diagnostic.where))
    labels_by_file = group((label.span.path, label) for label in diagnostic.labels)
    for number, (path, labels) in enumerate(labels_by_file.items()):
        first = labels[0].span
        arrow = "-->" if number == 0 else ":::"
        lines.append(paint(f"{pad}{arrow} ", "frame") + f"{visible(path)}:{first.line}:{first.column}")
        previous: tuple[int, int] | None = None
        for label in sorted(labels, key=lambda label: (label.span.line, label.span.column)):
            text = _source_line(sources, label)
            primary = label is diagnostic.labels[0]
            if text is None:
                if label.text or label is not labels[0]:
                    position = f"{label.span.line}:{label.span.column}"
                    words = f"{position} {visible(label.text)}".rstrip()
                    parts = [words] if columns is None else _fold_words(words, width - gutter - 3, "    ")
                    lines += [paint(f"{pad} | ", "frame") + row for row in parts]
                continue
            excerpt = Excerpt.around(text, label.span, max(width - gutter - 3, 20))
            if previous != (label.span.line, excerpt.start):
                lines.append(paint(f"{label.span.line:>{gutter}} |", "frame") + f" {excerpt.text}".rstrip())
            previous = (label.span.line, excerpt.start)
            marks = ("^" if primary else "-") * excerpt.mark_width
            style = severity if primary else "secondary"
            begin = f"{' ' * excerpt.mark_column}{marks} "
            inner = width - gutter - 3
            # A text with less than 20 columns beside the underline continues below it.
            below = " " * (len(begin) if inner - len(begin) >= 20 else 4)
            texts = [f"{begin}{visible(label.text)}".rstrip()]
            if columns is not None and len(texts[0]) > inner:
                texts = _fold_words(begin + visible(label.text), inner, below)
            for row in texts:
                words = row.lstrip()
                indent = " " * (len(row) - len(words))
                lines.append(paint(f"{pad} |", "frame") + f" {indent}" + paint(words, style))

    def trailer(kind: str, text: str) -> None:
        """Append the line ` = KIND: TEXT`, folded to the terminal."""
        head = f"{pad} = {kind}: "
        rows = [visible(line) for line in text.split("\n")]
        if columns is not None:
            rows = [row for line in rows for row in _fold_words(line, max(columns - len(head), 20))]
        inner = f"\n{' ' * len(head)}".join(rows)
        lines.append(paint(f"{pad} = ", "frame") + paint(f"{kind}:", "bold") + f" {inner}")

    if diagnostic.labels and diagnostic.where is not None:
        trailer("at", diagnostic.where)
    for text in diagnostic.notes:
        trailer("note", text)
    if diagnostic.help is not None:
        trailer("help", diagnostic.help)
    return "\n".join(lines) + "\n"


def _fold_words(line: str, columns: int, below: str = "") -> list[str]:
    """Return a line as lines of at most `columns` columns; no word is broken.

    Args:
        line: The text.
        columns: The largest length of a line; a longer word stays whole.
        below: The indentation of all lines but the first.
    """
    return textwrap.wrap(
        line, columns, subsequent_indent=below, break_long_words=False, break_on_hyphens=False
    ) or [line]


def lay_page(text: str, columns: int) -> str:
    """Return a Markdown page with its paragraphs and list items folded to `columns`.

    Code, tables and HTML stay as they are, because line breaks have a meaning in them.
    """
    lines_out: list[str] = []
    separator = r"\n?^(```.*?^```)$\n?|\n(?=\n|- |\d+\. |\||<)|(?<=->)\n"
    for block in re.split(separator, text, flags=re.M | re.S):
        if block and block.startswith(("```", "|", "<", "\n<")):
            lines_out.append(block)
        elif block is not None:
            indent_below = "  " if block.startswith("- ") else ""
            lines = _fold_words(" ".join(block.split()), columns, indent_below)
            lines_out += ["", *lines] if block.startswith("\n") else lines
    return "\n".join(lines_out)


def _source_line(sources: Mapping[str, list[str]], label: Label) -> str | None:
    """Return the source line on which a label begins; None if the source is unknown or shorter."""
    lines = sources.get(label.span.path, [])
    return lines[label.span.line - 1] if 1 <= label.span.line <= len(lines) else None


_PAGES = Path(__file__).resolve().parent / "pages"
_PACKAGE = _PAGES.parents[1]


@cache
def codes() -> tuple[str, ...]:
    """Return all diagnostic codes that have a page, sorted."""
    return tuple(sorted(path.stem for path in _PAGES.glob("[EWN][0-9][0-9][0-9][0-9].md")))


@cache
def topics() -> Mapping[str, Path]:
    """Return the path of the document of each topic of `reodsl explain`, sorted by topic."""
    # A wheel has the documents inside the package, a checkout beside it. A page that moved has no title.
    folder = _PACKAGE / "docs" if (_PACKAGE / "docs").is_dir() else _PACKAGE.parent / "docs"
    return {path.stem.lower(): path for path in sorted(folder.glob("*.md")) if path.read_bytes()[:2] == b"# "}


def page(name: str) -> str:
    """Return the Markdown page of a code or topic.

    Raises:
        KeyError: The name is neither a code nor a topic.
    """
    return (find_page(name) or topics()[name]).read_text(encoding="utf-8")


def find_page(code: str) -> Path | None:
    """Return the file of a code's page, or None if no page explains the code."""
    return _PAGES / f"{code}.md" if code in codes() else None


def title(name: str) -> str:
    """Return the title of the page of a code or topic."""
    return page(name).split("\n", 1)[0].removeprefix("# ").strip()


@dataclass(frozen=True, slots=True)
class Excerpt:
    """The section of a source line to print, and the position of its underline."""

    text: str
    """The text."""
    mark_column: int
    """Columns before the mark."""
    mark_width: int
    """The width of the mark, in columns."""
    start: int
    """The offset of the text in the line, in characters."""

    @classmethod
    def around(cls, line: str, span: Span, width: int) -> Excerpt:
        """Return the section of `line` around `span` that fits into `width` columns, with `…` where the line is cut.

        Args:
            line: The source line.
            span: The span to underline; a span over several lines is underlined to the end of this line.
            width: The number of columns for the section.
        """
        cells, columns = _measure_cells(line)
        start = min(max(span.column - 1, 0), len(line))
        end = len(line) if span.end_line > span.line else min(max(span.end_column - 1, start), len(line))
        mark_start, mark_end = columns[start], columns[end]
        total = columns[-1]
        mark_end = max(mark_end, mark_start + 1)
        if total <= width:
            return cls("".join(cells), mark_start, mark_end - mark_start, 0)
        # The underline starts after a third of the width, unless that leaves the end of the width empty.
        inner_width = width - 2
        first = max(0, min(mark_start - inner_width // 3, max(total, mark_end) - inner_width))
        low = bisect_left(columns, first)
        high = bisect_right(columns, columns[low] + inner_width) - 1
        head, tail = ("…" if low else ""), ("…" if high < len(line) else "")
        middle = "".join(cells[low:high])
        before = mark_start - columns[low] + len(head)
        marked_width = min(mark_end, columns[low] + inner_width + 1) - mark_start
        return cls(f"{head}{middle}{tail}", before, max(marked_width, 1), low)


def visible(text: str) -> str:
    r"""Return a text in which control, invisible and direction-changing characters are spelled as `\u{1b}`."""
    return text if text.isprintable() else "".join(map(_visible_character, text))


def _visible_character(character: str) -> str:
    r"""Return a character, a plain space for a wide space, or `\u{1b}` for a character that is not printable."""
    if character.isprintable():
        return character
    # No-break and other unusual spaces (category Zs) become plain spaces.
    return " " if unicodedata.category(character) == "Zs" else f"\\u{{{ord(character):x}}}"


@lru_cache(maxsize=4)
def _measure_cells(line: str) -> tuple[Sequence[str], Sequence[int]]:
    """Return how the characters of a line are shown in a terminal.

    Labels are rendered line by line, so a small cache suffices.

    Returns:
        For each character the text that is shown for it, and for each character the column at which it
        begins, in columns from 0; the last element is the column of the line's end.
    """
    if line.isascii() and line.isprintable():
        return line, range(len(line) + 1)
    cells: list[str] = []
    columns = [0]
    num_combining = 0
    for character in line:
        column = columns[-1]
        cell = " " * (_TAB - column % _TAB) if character == "\t" else _visible_character(character)
        width = sum(map(_terminal_width, cell))
        num_combining = 0 if width else num_combining + 1
        cells.append(cell)
        columns.append(column + (width or (num_combining > _MOST_COMBINING)))
    return cells, columns


def _terminal_width(character: str) -> int:
    """Return how many terminal columns a character takes: 0 if combining, 2 if wide, else 1."""
    if unicodedata.combining(character):
        return 0
    return 2 if unicodedata.east_asian_width(character) in "WF" else 1
