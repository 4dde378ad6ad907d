"""Markdown with names and values that somebody else chose: none of them is markup, and the size is bounded."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from reodsl.diagnostics.excerpt import visible

MOST = 60_000
"""The most letters of a document; GitHub takes 65,536 in a comment."""
_CELL = 1000


def code(text: str, special: str = "`") -> str:
    """Return a text as code, each of its lines by itself; a long one is cut. `special` has no sense of its own in it."""
    cut = text if len(text) <= _CELL else text[:_CELL] + "…"
    lines = [line for line in map(visible, cut.split("\n")) if line.strip()]
    return "<br>".join(
        _spelt(line) if set(line) & set(special) or line != line.strip() else f"`{line}`" for line in lines
    )


def _spelt(text: str) -> str:
    return f"<code>{''.join(each if each.isalnum() else f'&#{ord(each)};' for each in text)}</code>"


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    """Return the lines of a table of texts, each of which is shown as it is."""
    shown = [[code(cell, "`|\\") for cell in cells] for cells in (head, *rows)]
    return ["| " + " | ".join(cells) + " |" for cells in (shown[0], ["---"] * len(head), *shown[1:])]


def document(blocks: Iterable[Sequence[str]]) -> str:
    """Join blocks of lines; of a long document the end is missing, and its last line says so."""
    lines = [line for block in blocks if block for line in ("", *block)][1:]
    room = MOST
    for at, line in enumerate(lines):
        room -= len(line) + 1
        if room < 0:
            return "\n".join([*lines[:at], "", f"{len(lines) - at} more lines are too long for this page."])
    return "\n".join(lines)
