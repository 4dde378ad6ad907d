"""A source to its tree: every independent error in one pass, going on at the next item after each."""

from __future__ import annotations

from dataclasses import dataclass

from reodsl.diagnostics.model import Diagnostic, note
from reodsl.syntax import tree
from reodsl.syntax.brackets import MAX_NESTING, lay_out, too_deep
from reodsl.syntax.docstrings import clean_doc
from reodsl.syntax.reader import MAX_REPORTED, Reader
from reodsl.syntax.source import Source
from reodsl.syntax.tokens import MOST_TOKENS, escape_warnings, lex
from reodsl.syntax.walk import depth_exceeding


@dataclass(frozen=True, slots=True)
class ParseResult:
    """The tree of what could be read (all of it when no diagnostic is an error), the diagnostics, the comments.

    `tokens` is how many words, signs and comments the source has.
    """

    module: tree.Module
    diagnostics: tuple[Diagnostic, ...]
    comments: tuple[tree.Comment, ...]
    tokens: int = 0

    @property
    def ok(self) -> bool:
        """True when nothing is wrong with the syntax, so that the tree is the whole file."""
        return not any(diagnostic.severity == "error" for diagnostic in self.diagnostics)


@dataclass(frozen=True, slots=True)
class ExpressionResult:
    """One expression, or None and why not."""

    expression: tree.Expr | None
    diagnostics: tuple[Diagnostic, ...]


def parse(source: Source, most: int = MOST_TOKENS) -> ParseResult:
    """The tree of a file. Never raises on any text; items with an error in them are left out of the tree.

    Nothing is read of a source of more than `most` tokens.
    """
    lexed = lex(source, most)
    if lexed.cut:
        # What is missing at the end would make mistakes of what stands before it.
        empty = tree.Module(source.path, None, (), (), source.whole(), None)
        return ParseResult(empty, _in_order(lexed.diagnostics, gave_up=True), (), lexed.count)
    laid = lay_out(lexed.tokens)
    read = Reader(laid, "module", source.whole())
    found = read.run()
    text, items = found if found is not None else (None, ())
    diagnostics = [*lexed.diagnostics, *laid.diagnostics, *read.diagnostics, *escape_warnings(laid.tokens)]
    kept, may_be_deep = [], read.may_be_deep
    cut = [d.labels[0].span.line for d in laid.diagnostics if d.code == "E0138"]
    for item in items:
        if any(item.span.line <= line <= item.span.end_line for line in cut):
            # Not what was written any more: whatever else is said of it would only be a consequence.
            continue
        deep = depth_exceeding(item, MAX_NESTING) if may_be_deep else None
        if deep is None:
            kept.append(item)
        elif not any(diagnostic.code == "E0138" for diagnostic in diagnostics):
            diagnostics.append(too_deep(deep))
    module = tree.Module(
        source.path,
        clean_doc(text.payload) if text is not None else None,
        tuple(item for item in kept if isinstance(item, tree.Import)),
        tuple(item for item in kept if not isinstance(item, tree.Import)),
        source.whole(),
        text.span if text is not None else None,
    )
    return ParseResult(module, _in_order(diagnostics, read.gave_up), tuple(lexed.comments), lexed.count)


def parse_expression(source: Source) -> ExpressionResult:
    """The tree of a text that is one expression, such as the value of `--set` or a budget schedule."""
    lexed = lex(source)
    if lexed.cut:
        return ExpressionResult(None, _in_order(lexed.diagnostics, gave_up=True))
    laid = lay_out([token for token in lexed.tokens if token.type != "NEWLINE"])
    read = Reader(laid, "expression", source.whole())
    expression = read.run()
    diagnostics = [*lexed.diagnostics, *laid.diagnostics, *read.diagnostics]
    if expression is not None and read.may_be_deep:
        deep = depth_exceeding(expression, MAX_NESTING)
        if deep is not None:
            diagnostics.append(too_deep(deep))
    return ExpressionResult(None if diagnostics else expression, _in_order(diagnostics))


def _in_order(diagnostics: list[Diagnostic], gave_up: bool = False) -> tuple[Diagnostic, ...]:
    diagnostics.sort(key=lambda d: (d.labels[0].span.line, d.labels[0].span.column, d.code))
    if len(diagnostics) > MAX_REPORTED:
        more = len(diagnostics) - MAX_REPORTED
        del diagnostics[MAX_REPORTED:]
        place = diagnostics[-1].labels[0].span
        diagnostics.append(
            note(
                "N0101",
                f"{'the' if gave_up else more} further errors are not shown",
                place,
                help="mend these first",
            )
        )
    return tuple(diagnostics)
