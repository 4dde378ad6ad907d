"""Compile a spec as its editor shows it, and convert places in an editor (from 0, in code units) to places in a source.

The protocol counts UTF-16 code units unless client and server agree on `utf-8` or `utf-32`.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import accumulate
from pathlib import Path

from reodsl.diagnostics.model import Diagnostic, Label, Severity, Span
from reodsl.diagnostics.render import sort_diagnostics
from reodsl.language.bounds import EDITOR_STEPS
from reodsl.language.checks import check_program
from reodsl.language.modules import LIBRARY, STD, Import, ParsedFile
from reodsl.language.program import Program, load
from reodsl.syntax import tree
from reodsl.syntax.scanner import Token, scan
from reodsl.syntax.source import Source

UTF16 = "utf-16"
CACHED_TEXTS = 16
"""The number of texts whose lines and tokens are cached, since a request reads them for every word."""


@dataclass(frozen=True, slots=True, order=True)
class Position:
    """A position in an editor."""

    line: int
    """The line, from 0."""
    character: int
    """The code units before the position on its line."""


@dataclass(frozen=True, slots=True)
class TextRange:
    """A range of a text, from `start` up to and without `end`."""

    start: Position
    end: Position


@lru_cache(maxsize=CACHED_TEXTS)
def lines_of(text: str) -> tuple[str, ...]:
    r"""Return the lines of a text as editors and sources count them: only `\n`, `\r` and `\r\n` end a line."""
    return tuple(text.replace("\r\n", "\n").replace("\r", "\n").split("\n"))


@lru_cache(maxsize=CACHED_TEXTS)
def tokens_of(text: str) -> tuple[Token, ...]:
    """Return the tokens of a text, without its comments."""
    return tuple(scan(Source("", "\n".join(lines_of(text)))).tokens)


def find_position(text: str, position: Position, encoding: str = UTF16) -> tuple[int, int]:
    """Return the line and column in the source, from 1, of a position in an editor.

    A position outside a line or the text becomes the nearest position inside. A position within a character
    becomes the start of the character.

    Args:
        text: The text that the editor shows.
        position: The position, from 0, in code units of `encoding`.
        encoding: `utf-8`, `utf-16` or `utf-32`.
    """
    lines = lines_of(text)
    if position.line < 0:
        return 1, 1
    if position.line >= len(lines):
        return len(lines), len(lines[-1]) + 1
    line = lines[position.line]
    column = max(0, bisect_right(_unit_ends(line, encoding), position.character) - 1)
    return position.line + 1, column + 1


def range_of(text: str, span: Span | None, encoding: str = UTF16) -> TextRange:
    """Return the range of a span in an editor; without a span the start of the text.

    Args:
        text: The text that the editor shows.
        span: The span, in lines and columns from 1.
        encoding: `utf-8`, `utf-16` or `utf-32`, in whose code units the range is counted.
    """
    if span is None:
        return TextRange(Position(0, 0), Position(0, 0))
    lines = lines_of(text)
    return TextRange(
        _position(lines, span.line, span.column, encoding),
        _position(lines, span.end_line, span.end_column, encoding),
    )


def range_of_text(text: str, encoding: str = UTF16) -> TextRange:
    """Return the range of the complete text, in code units of `encoding`."""
    lines = lines_of(text)
    return TextRange(Position(0, 0), Position(len(lines) - 1, units(lines[-1], encoding)))


def units(text: str, encoding: str = UTF16) -> int:
    """Return the number of code units of a text: bytes in UTF-8, 16-bit units in UTF-16, characters in UTF-32."""
    if text.isascii():
        return len(text)
    width = {UTF16: ("utf-16-le", 2), "utf-8": ("utf-8", 1), "utf-32": ("utf-32-le", 4)}[encoding]
    return len(text.encode(width[0], "surrogatepass")) // width[1]


@lru_cache(maxsize=CACHED_TEXTS)
def _unit_ends(line: str, encoding: str) -> Sequence[int]:
    """Return for each character of a line the number of code units before it, and last the number in the line."""
    if line.isascii():
        return range(len(line) + 1)
    return tuple(accumulate((units(character, encoding) for character in line), initial=0))


def _position(lines: Sequence[str], line: int, column: int, encoding: str) -> Position:
    """Return the position in an editor of a line and column, from 1, in a source.

    Args:
        lines: The lines of the source.
        line: The line; a line behind the text becomes the end of the text.
        column: The column; a column behind the line becomes the line's end.
        encoding: The encoding whose code units are counted.
    """
    if line > len(lines):
        return Position(len(lines) - 1, units(lines[-1], encoding))
    ends = _unit_ends(lines[line - 1], encoding)
    return Position(line - 1, ends[min(column, len(ends)) - 1])


@dataclass(frozen=True)
class Analysis:
    """An evaluated spec, as an editor shows its file."""

    path: Path
    """The absolute path."""
    text: str
    """The text that the editor shows."""
    program: Program
    """The evaluated spec."""
    sources: Mapping[str, str]
    """Texts by the path that diagnostics show."""

    @cached_property
    def findings(self) -> tuple[Diagnostic, ...]:
        """Return all findings; the checks of experiments run at the first call, since other requests do not need them."""
        check_program(self.program)
        return self.program.context.findings

    @cached_property
    def local_names(self) -> dict[tuple[int, str], str]:
        """Return the local name of each imported name, by (line of the import, name in the imported file)."""
        main = self.program.main
        # Of names that are imported twice on a line, the first counts.
        imports = reversed([*main.imports.items()]) if main is not None else ()
        return {(imported.node.span.line, imported.name): local for local, imported in imports}

    @cached_property
    def sources_of_lines(self) -> dict[int, Import]:
        """Return the first import on each line whose module was loaded, by line."""
        main = self.program.main
        imports = reversed([*main.imports.values()]) if main is not None else ()
        return {i.node.span.line: i for i in imports if self.find_module(i.module) is not None}

    @cached_property
    def parameters(self) -> dict[str, dict[str, tree.ParamDecl]]:
        """Return the parameters of rewards and selections, by the name of the declaration and of the parameter."""
        main = self.program.main
        names = (*main.items, *main.imports) if main is not None else ()
        items = ((name, self.find_item(name)) for name in names)
        return {
            name: {param.name.name: param for param in declared[1].params or ()}
            for name, declared in items
            if declared is not None and isinstance(declared[1], tree.Decl)
        }

    def find_item(self, name: str) -> tuple[ParsedFile, tree.ModuleItem] | None:
        """Return the declaration or param behind a name, and the file that declares it; None for an unknown name."""
        main = self.program.main
        if main is None:
            return None
        if name in main.items:
            return main, main.items[name]
        imported = main.imports.get(name)
        target = self.find_module(imported.module) if imported is not None else None
        if imported is None or target is None or imported.name not in target.items:
            return None
        return target, target.items[imported.name]

    def find_module(self, key: str | None) -> ParsedFile | None:
        """Return the parsed file with the identity `key`; None if it was not loaded."""
        return self.program.context.modules.loaded.get(key) if key is not None else None

    def file_of(self, path: str) -> Path:
        """Return the file on the disk for a path as spans and messages show it."""
        return LIBRARY / path.removeprefix(f"{STD}/") if is_library(path) else Path(path)


@dataclass(frozen=True, slots=True)
class Finding:
    """A diagnostic as an editor shows it."""

    span: Span | None
    """None for a finding about the file."""
    severity: Severity
    code: str
    message: str
    related: tuple[Label, ...]
    """Further spans, with texts."""


def analyse(path: Path, texts: Mapping[Path, str]) -> Analysis:
    """Return the evaluation of a spec as open editors show it; raise nothing.

    Args:
        path: The absolute path of the spec.
        texts: The texts of open editors, which replace the files on the disk.
    """
    drafts = {str(file.resolve()): text for file, text in texts.items()}
    program = load(path, {}, {}, drafts, EDITOR_STEPS)
    sources = program.context.modules.sources
    text = texts.get(path)
    editor_text = text if text is not None else sources.get(str(path), "")
    return Analysis(path, editor_text, program, sources)


def list_findings(analysis: Analysis) -> tuple[Finding, ...]:
    """Return the findings on a file; a finding in an imported file is shown at the import."""
    return tuple(show_finding(analysis, diagnostic) for diagnostic in sort_diagnostics(analysis.findings))


def is_library(path: str) -> bool:
    """Return whether a path as spans show it belongs to the standard library."""
    return path.startswith(f"{STD}/")


def show_finding(analysis: Analysis, diagnostic: Diagnostic) -> Finding:
    """Return a diagnostic as an editor shows it: on the file's own text, and in one message with its notes and help.

    A diagnostic about another file is shown at the import that brings the file in.
    """
    file_path = str(analysis.path)
    labels = diagnostic.labels
    label_here = next((label for label in labels if label.span.path == file_path), None)
    message = diagnostic.message
    if label_here is None and labels:
        message = f"{labels[0].span.path}:{labels[0].span.line}: {message}"
        span = _import_of(analysis, labels[0].span.path)
    else:
        span = label_here.span if label_here is not None else None
        if label_here is not None and label_here.text:
            message = f"{message}: {label_here.text}"
    parts = [message, *diagnostic.notes, *([f"help: {diagnostic.help}"] if diagnostic.help else [])]
    return Finding(
        span,
        diagnostic.severity,
        diagnostic.code,
        "\n".join(parts),
        tuple(label for label in labels if label is not label_here),
    )


def _import_of(analysis: Analysis, path: str) -> Span | None:
    """Return the span of the import in the open file that imports a given file.

    If only an imported file imports it, the result is the first import; None without imports.

    Args:
        analysis: The evaluated spec.
        path: The imported file's path as spans show it.
    """
    main = analysis.program.main
    if main is None:
        return None
    loaded = analysis.program.context.modules.loaded
    for clause in main.module.imports:
        name = clause.names[0].alias or clause.names[0].name
        imported = main.imports.get(name.name)
        target = loaded.get(imported.module) if imported is not None and imported.module else None
        if target is not None and target.path == path:
            return clause.module_span
    return main.module.imports[0].module_span if main.module.imports else None
