"""The quickstart as an editor has it open: its text, what is known of it, and places in it by the words there."""

from __future__ import annotations

from pathlib import Path

from reodsl.lsp.analysis import Analysis, analyse

PATH = Path(__file__).resolve().parents[2] / "specs" / "quickstart.reo"
TEXT = PATH.read_text()


def opened(text: str = TEXT, path: Path = PATH) -> Analysis:
    """The analysis of a text at the quickstart's place."""
    return analyse(path, {path: text})


def at(text: str, words: str, offset: int = 0) -> tuple[int, int]:
    """Line and column, from 1, of the character `offset` after where `words`, there once, begin."""
    assert text.count(words) == 1, f"{words!r} is there {text.count(words)} times"
    index = text.index(words) + offset
    return text.count("\n", 0, index) + 1, index - text.rfind("\n", 0, index)
