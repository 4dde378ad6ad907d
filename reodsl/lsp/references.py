"""Find every place that means the same declaration, in a file and in those beside it; rename it in all of them."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from reodsl.diagnostics.model import Span
from reodsl.language.modules import LIBRARY
from reodsl.lsp.analysis import Analysis, analyse
from reodsl.lsp.meaning import meaning
from reodsl.lsp.positions import lines_of
from reodsl.syntax.scanner import KEYWORDS, scan
from reodsl.syntax.source import MAX_BYTES, Source

MOST_FILES = 5000
"""Files beside a spec that are looked at; of these only those with the name in them are compiled."""
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


@dataclass(frozen=True, slots=True)
class Occurrence:
    """A span in a file, whose text is `text`."""

    file: Path
    text: str
    span: Span


def references(
    analysis: Analysis, texts: Mapping[Path, str], line: int, column: int, beside: bool = True
) -> tuple[Occurrence, ...]:
    """List the places that mean what stands at line and column (from 1), the declaration among them.

    `beside` looks in the other specs of the folder and below too. Empty for a word of the language.
    """
    target = _target(analysis, line, column)
    if target is None:
        return ()
    name, declared = target
    places = list(_find_in_file(analysis, name, declared))
    for path, text in _others(analysis, texts) if beside else ():
        if re.search(rf"\b{name}\b", text):
            places += _find_in_file(analyse(path, {**texts, path: text}), name, declared)
    return tuple(places)


def rename(
    analysis: Analysis, texts: Mapping[Path, str], line: int, column: int, new: str
) -> tuple[Occurrence, ...] | str:
    """List the places that a new name goes to, or say why it cannot."""
    target = _target(analysis, line, column)
    if target is None:
        return "only names that a spec declares can be renamed"
    if target[1][0].is_relative_to(LIBRARY):
        return "this is a name of the standard library; give it another one here by `import NAME as OTHER`"
    if not _NAME.fullmatch(new) or new.upper() in KEYWORDS:
        return f"`{new}` is not a name: letters, digits and _, and no word of the language"
    if sum(1 for _ in islice(_specs(analysis.path.parent), MOST_FILES + 1)) > MOST_FILES:
        return (
            f"there are more than {MOST_FILES:,} specs in this folder and below: not every use would be found"
        )
    places = references(analysis, texts, line, column)
    for file in {each.file for each in places}:
        main = analyse(file, texts).program.main
        if main is not None and (new in main.items or new in main.imports):
            return f"{file.name} has a `{new}` already"
    return places


def _target(analysis: Analysis, line: int, column: int) -> tuple[str, tuple[Path, int, int]] | None:
    """Return the name at a place, and the file, line and column of its declaration."""
    what = meaning(analysis, line, column)
    if what is None or what.defined is None:
        return None
    word = _text_at(analysis.text, what.span)
    file = analysis.file_of(what.defined.path)
    source = analysis.text if file == analysis.path else analysis.sources.get(what.defined.path, "")
    # A setting's value, and a name that an import gives, stand elsewhere under another word.
    if _text_at(source, what.defined) != word:
        return None
    return word, (file, what.defined.line, what.defined.column)


def _find_in_file(analysis: Analysis, name: str, declared: tuple[Path, int, int]) -> Iterator[Occurrence]:
    for token in scan(Source("", "\n".join(lines_of(analysis.text)))).tokens:
        if token.type == "NAME" and token.text == name:
            target = _target(analysis, token.span.line, token.span.column)
            if target is not None and target[1] == declared:
                yield Occurrence(analysis.path, analysis.text, token.span)


def _others(analysis: Analysis, texts: Mapping[Path, str]) -> Iterator[tuple[Path, str]]:
    """Yield the other specs of the folder and below, as open editors show them or as they are on disk."""
    for number, path in enumerate(_specs(analysis.path.parent)):
        if number == MOST_FILES:
            return
        if path == analysis.path:
            continue
        text = texts.get(path)
        if text is None:
            try:
                if not path.is_file() or path.stat().st_size > MAX_BYTES:
                    continue
                text = path.read_text(encoding="utf-8", errors="replace")
            except OSError:
                continue
        yield path, text


def _specs(folder: Path) -> Iterator[Path]:
    """Yield the specs of a folder and below. Hidden folders are not entered: a store or an environment has many files."""
    for parent, folders, files in os.walk(folder):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        for name in sorted(files):
            if name.endswith(".reo") and not name.startswith("."):
                yield Path(parent, name)


def _text_at(text: str, span: Span) -> str:
    lines = lines_of(text)
    if span.line != span.end_line or span.line > len(lines):
        return ""
    return lines[span.line - 1][span.column - 1 : span.end_column - 1]
