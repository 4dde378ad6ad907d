"""The shape of a text for an editor: what folds, and the signature of the call at a place."""

from __future__ import annotations

from dataclasses import dataclass

from reodsl.ir.kinds import KINDS
from reodsl.language.functions import SIGNATURES
from reodsl.lsp.analysis import Analysis
from reodsl.lsp.meaning import describe_field, parameters
from reodsl.lsp.outline import CLOSERS, OPENERS, locate
from reodsl.lsp.positions import lines_of
from reodsl.syntax import tree
from reodsl.syntax.scanner import scan
from reodsl.syntax.source import Source


@dataclass(frozen=True, slots=True)
class Fold:
    """Lines from 1 that fold into the first of them, and whether they are comments."""

    first: int
    last: int
    comment: bool = False


@dataclass(frozen=True, slots=True)
class Signature:
    """A call: its label, what it does, its arguments with their sense, and which of them stands at the place."""

    label: str
    doc: str
    arguments: tuple[tuple[str, str], ...]
    active: int | None


def folds(text: str) -> tuple[Fold, ...]:
    """List the blocks, brackets and comments over several lines."""
    scanned = scan(Source("", "\n".join(lines_of(text))))
    folded, opened = [], []
    for token in scanned.tokens:
        if token.type in OPENERS:
            opened.append(token.span.line)
        elif token.type in CLOSERS and opened:
            first = opened.pop()
            if token.span.line > first + 1:
                folded.append(Fold(first, token.span.line - 1))
        elif token.type == "TEXT" and token.span.end_line > token.span.line:
            folded.append(Fold(token.span.line, token.span.end_line, comment=True))
    run: list[int] = []
    for line in [each.span.line for each in scanned.comments if each.own_line] + [-1]:
        if run and line != run[-1] + 1:
            if len(run) > 1:
                folded.append(Fold(run[0], run[-1], comment=True))
            run = []
        run.append(line)
    return tuple(sorted(folded, key=lambda each: (each.first, -each.last)))


def signature(analysis: Analysis, line: int, column: int) -> Signature | None:
    """Return the call around line and column; None outside of one that is known."""
    here = locate(analysis.text, line, column)
    frame = here.frame
    if frame.bracket != "(" or not frame.kind:
        return None
    known = SIGNATURES.get(frame.kind) or KINDS.get(frame.kind)
    main = analysis.program.main
    if known is not None:
        arguments = tuple((name, describe_field(name, field)) for name, field in known.fields.items())
        doc = known.doc
    else:
        declared = parameters(analysis, main, frame.kind) if main is not None else ()
        arguments = tuple(
            (each.name.name, "" if each.default is not None else "required") for each in declared
        )
        doc = ""
        item = main.items.get(frame.kind) if main is not None else None
        if isinstance(item, tree.Decl):
            doc = item.doc or ""
    if not arguments:
        return None
    names = [name for name, _ in arguments]
    written = [token.text for token in here.before]
    named = next((names.index(word) for word in written[:1] if word in names and ":" in written), None)
    return Signature(f"{frame.kind}({', '.join(names)})", doc, arguments, named)
