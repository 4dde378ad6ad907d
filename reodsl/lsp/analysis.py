"""Compile a spec as its editor shows it, and convert places in an editor (from 0, in code units) to places in a source.

The protocol counts UTF-16 code units unless client and server agree on `utf-8` or `utf-32`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from reodsl.diagnostics.model import Diagnostic, Label, Severity, Span
from reodsl.diagnostics.render import sort_diagnostics
from reodsl.language.checks import check_program
from reodsl.language.modules import LIBRARY, STD
from reodsl.language.program import Program, load

UTF16 = "utf-16"


@dataclass(frozen=True, slots=True, order=True)
class Position:
    """A place in an editor: a line from 0, and the code units before it on that line."""

    line: int
    character: int


@dataclass(frozen=True, slots=True)
class TextRange:
    """A stretch of a text, from `start` up to and without `end`."""

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


def range_of(text: str, span: Span | None, encoding: str = UTF16) -> TextRange:
    """Return the range of a span in its text; the start of the text without a span."""
    if span is None:
        return TextRange(Position(0, 0), Position(0, 0))
    lines = lines_of(text)
    return TextRange(
        _position(lines, span.line, span.column, encoding),
        _position(lines, span.end_line, span.end_column, encoding),
    )


def whole(text: str, encoding: str = UTF16) -> TextRange:
    """Return the range of a whole text."""
    lines = lines_of(text)
    return TextRange(Position(0, 0), Position(len(lines) - 1, units(lines[-1], encoding)))


def units(text: str, encoding: str = UTF16) -> int:
    """Count the code units of a text: in UTF-16 a character past U+FFFF has two, in UTF-8 each byte is one."""
    width = {UTF16: ("utf-16-le", 2), "utf-8": ("utf-8", 1), "utf-32": ("utf-32-le", 4)}[encoding]
    return len(text.encode(width[0], "surrogatepass")) // width[1]


def _position(lines: list[str], line: int, column: int, encoding: str) -> Position:
    if line > len(lines):
        return Position(len(lines) - 1, units(lines[-1], encoding))
    return Position(line - 1, units(lines[line - 1][: column - 1], encoding))


@dataclass(frozen=True)
class Analysis:
    """One compiled file; `path` is absolute, and `text` is what its editor shows."""

    path: Path
    text: str
    program: Program
    sources: Mapping[str, str]

    @cached_property
    def findings(self) -> tuple[Diagnostic, ...]:
        """All that is wrong. The checks of whole experiments run when this is asked for: other answers need none."""
        check_program(self.program)
        return self.program.context.findings

    def file_of(self, shown: str) -> Path:
        """Return the file of a path in a span."""
        return LIBRARY / shown.removeprefix(f"{STD}/") if is_library(shown) else Path(shown)


@dataclass(frozen=True, slots=True)
class Finding:
    """A diagnostic as an editor shows it. Without a `span` it is about the whole file; `related` are further places."""

    span: Span | None
    severity: Severity
    code: str
    message: str
    related: tuple[Label, ...]


def analyse(path: Path, texts: Mapping[Path, str]) -> Analysis:
    """Compile the file at `path`; the `texts` of open editors stand in for their files. Raises nothing."""
    drafts = {str(each.resolve()): text for each, text in texts.items()}
    program = load(path, {}, {}, drafts)
    sources = program.context.modules.sources
    text = texts.get(path)
    shown = text if text is not None else sources.get(str(path), "")
    return Analysis(path, shown, program, sources)


def list_findings(analysis: Analysis) -> tuple[Finding, ...]:
    """List the findings on a file. What is wrong in an imported file is shown at the import."""
    return tuple(show_finding(analysis, each) for each in sort_diagnostics(analysis.findings))


def is_library(shown: str) -> bool:
    """Return whether a path in a span is one of the standard library."""
    return shown.startswith(f"{STD}/")


def show_finding(analysis: Analysis, diagnostic: Diagnostic) -> Finding:
    """Show a diagnostic on the file, at its place there or at the import that brings it in."""
    here_path = str(analysis.path)
    labels = diagnostic.labels
    here = next((label for label in labels if label.span.path == here_path), None)
    message = diagnostic.message
    if here is None and labels:
        message = f"{labels[0].span.path}:{labels[0].span.line}: {message}"
        place = _import_of(analysis, labels[0].span.path)
    else:
        place = here.span if here is not None else None
        if here is not None and here.text:
            message = f"{message}: {here.text}"
    parts = [message, *diagnostic.notes, *([f"help: {diagnostic.help}"] if diagnostic.help else [])]
    return Finding(
        place,
        diagnostic.severity,
        diagnostic.code,
        "\n".join(parts),
        tuple(label for label in labels if label is not here),
    )


def _import_of(analysis: Analysis, shown: str) -> Span | None:
    """Find the import that brings in a file; the first import if it comes in by way of others."""
    main = analysis.program.main
    if main is None:
        return None
    loaded = analysis.program.context.modules.loaded
    for clause in main.module.imports:
        name = clause.names[0].alias or clause.names[0].name
        imported = main.imports.get(name.name)
        target = loaded.get(imported.module) if imported is not None and imported.module else None
        if target is not None and target.path == shown:
            return clause.module_span
    return main.module.imports[0].module_span if main.module.imports else None
