"""A tree and its comments to the canonical text: the same tree gives the same text, and the text the same tree."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from reodsl.diagnostics.model import Diagnostic
from reodsl.syntax import tree
from reodsl.syntax.parser import parse
from reodsl.syntax.source import Source

WIDTH = 120


@dataclass(frozen=True, slots=True)
class FormatResult:
    """The canonical text, or None and the syntax errors that stand in its way."""

    text: str | None
    diagnostics: tuple[Diagnostic, ...]


def format_module(module: tree.Module, comments: Sequence[tree.Comment] = (), width: int = WIDTH) -> str:
    """The canonical text of a whole module (one parsed without errors), with its comments."""
    # Reading a spec needs none of this, and reading is what has to be quick.
    from reodsl.syntax.attach import attach
    from reodsl.syntax.layout import Layout
    from reodsl.syntax.rows import printed

    return printed(Layout(attach(module, comments), width).module(module))


def format_source(source: Source) -> FormatResult:
    """The canonical text of a file; a file with syntax errors is refused with their diagnostics."""
    result = parse(source)
    if not result.ok:
        return FormatResult(None, result.diagnostics)
    return FormatResult(format_module(result.module, result.comments), ())
