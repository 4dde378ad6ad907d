"""Offer fixes of findings: their own edits, the name that was meant, and an import that their help names."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from reodsl.diagnostics.model import Diagnostic, Edit, Span
from reodsl.lsp.analysis import Analysis, lines_of, tokens_of

_MEANT = re.compile(r"did you mean `(\w+)`\?")
_IMPORT = re.compile(r"`from (\.*[\w.]+) import (\w+(?:, \w+)*)`")
UNUSED = "W0201"
"""The warning of what nothing uses, which editors show faded."""


@dataclass(frozen=True, slots=True)
class Fix:
    """An editor's offer for a finding: a title and an edit of the file."""

    title: str
    finding: Diagnostic
    edit: Edit


def fixes(analysis: Analysis, first: int, last: int) -> tuple[Fix, ...]:
    """Return the fixes for findings on some lines.

    Args:
        analysis: The evaluated spec.
        first: The first line, from 1.
        last: The last line.
    """
    path = str(analysis.path)
    return tuple(
        Fix(title, finding, edit)
        for finding in analysis.findings
        for span in [label.span for label in finding.labels if label.span.path == path][:1]
        if span.line <= last and first <= span.end_line
        for title, edit in _offers(analysis, finding, span)
    )


def _offers(analysis: Analysis, finding: Diagnostic, span: Span) -> Iterator[tuple[str, Edit]]:
    """Yield (title, edit) for each fix of a finding.

    Args:
        analysis: The evaluated spec.
        finding: The finding.
        span: The first span of the finding in this file.
    """
    for edit in finding.edits:
        yield f"Write {edit.text}", edit
    help_ = finding.help or ""
    if suggestion := _MEANT.fullmatch(help_):
        yield f"Write {suggestion[1]}", Edit(span, suggestion[1])
    for module, name in _IMPORT.findall(help_):
        imported = add_import(analysis, module, name)
        if imported is not None:
            yield f"Import it: from {module} import {name}", imported


def add_import(analysis: Analysis, module: str, name: str) -> Edit | None:
    """Return the edit that imports names; None if the spec could not be read.

    The names are appended to an import of their module. Without one, a new import is added after the last
    import, or at the start of a file without imports, after its docstring.

    Args:
        analysis: The evaluated spec.
        module: The module as an import writes it.
        name: The name, or several names with commas.
    """
    main = analysis.program.main
    if main is None:
        return None
    clause, path = f"from {module} import {name}", str(analysis.path)
    lines = lines_of(analysis.text)
    for item in main.module.imports:
        span = item.module_span
        if lines[span.line - 1][span.column - 1 : span.end_column - 1] == module:
            last = item.names[-1].alias or item.names[-1].name
            return Edit(_empty(path, last.span.end_line, last.span.end_column), f", {name}")
    if main.module.imports:
        line = main.module.imports[-1].span.end_line + 1
    else:
        first = next((token for token in tokens_of(analysis.text) if token.type == "TEXT"), None)
        line = first.span.end_line + 1 if main.module.doc and first is not None else 1
    if line > len(lines):
        return Edit(_empty(path, line - 1, len(lines[-1]) + 1), f"\n{clause}")
    return Edit(_empty(path, line, 1), f"{clause}\n")


def _empty(path: str, line: int, column: int) -> Span:
    """Return the empty span at a position."""
    return Span(path, line, column, line, column)
