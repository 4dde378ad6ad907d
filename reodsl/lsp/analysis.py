"""A spec and the texts of open editors to what the compiler knows of it: values, findings, files."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from reodsl.diagnostics.model import Diagnostic, Label, Severity, Span
from reodsl.diagnostics.render import in_order
from reodsl.language.checks import check_program
from reodsl.language.modules import LIBRARY, STD
from reodsl.language.program import Program, load


@dataclass(frozen=True, slots=True)
class Analysis:
    """One file as compiled: `path` is its absolute path, `text` what its editor shows."""

    path: Path
    text: str
    program: Program
    findings: tuple[Diagnostic, ...]
    sources: Mapping[str, str]

    def file_of(self, shown: str) -> Path:
        """The file behind a path that spans name."""
        return LIBRARY / shown.removeprefix(f"{STD}/") if library(shown) else Path(shown)


@dataclass(frozen=True, slots=True)
class Finding:
    """A diagnostic where an editor underlines it (None: at the file itself), and its further places with their words."""

    span: Span | None
    severity: Severity
    code: str
    message: str
    related: tuple[Label, ...]


def analysed(path: Path, texts: Mapping[Path, str]) -> Analysis:
    """What the compiler knows of the file at `path`; `texts` of open editors stand in for files. Raises nothing."""
    drafts = {str(each.resolve()): text for each, text in texts.items()}
    program = load(path, {}, {}, drafts)
    check_program(program)
    context = program.context
    sources = context.modules.sources
    text = texts.get(path)
    shown = text if text is not None else sources.get(str(path), "")
    return Analysis(path, shown, program, context.findings, sources)


def found(analysis: Analysis) -> tuple[Finding, ...]:
    """The findings on a file; what is wrong in a file that it imports stands at that import."""
    return tuple(_finding(analysis, each) for each in in_order(analysis.findings))


def library(shown: str) -> bool:
    """Whether a shown path is one of the standard library."""
    return shown.startswith(f"{STD}/")


def _finding(analysis: Analysis, diagnostic: Diagnostic) -> Finding:
    own = str(analysis.path)
    labels = diagnostic.labels
    here = next((label for label in labels if label.span.path == own), None)
    message = diagnostic.message
    if here is None and labels:
        message = f"{labels[0].span.path}:{labels[0].span.line}: {message}"
        place = _brings(analysis, labels[0].span.path)
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


def _brings(analysis: Analysis, shown: str) -> Span | None:
    """The import that brings in a file, directly or by others: the first one where that is not plain."""
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
