"""Colour the words of a text by their sort, outline its declarations, and list what folds."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import zip_longest
from typing import Literal, get_args

from reodsl.diagnostics.model import Span
from reodsl.lsp.positions import UTF16, lines_of, units
from reodsl.syntax import tree
from reodsl.syntax.scanner import KEYWORDS, Token, scan
from reodsl.syntax.source import Source

Sort = Literal[
    "keyword",
    "class",
    "property",
    "function",
    "parameter",
    "variable",
    "namespace",
    "type",
    "number",
    "string",
    "comment",
]
SORTS: tuple[str, ...] = get_args(Sort)
"""The legend, in the protocol's names: a sort's number in `encode_colours` is its index here."""
_PLAIN: dict[str, Sort] = {
    "NUMBER": "number",
    "STRING": "string",
    "TEXT": "string",
    "OPEN_STRING": "string",
    "OPEN_TEXT": "string",
}
_OPENERS = {"LBRACE": "RBRACE", "LPAR": "RPAR", "LSQB": "RSQB"}


@dataclass(frozen=True, slots=True)
class Colour:
    """A piece of one line and its sort."""

    span: Span
    sort: Sort


@dataclass(frozen=True, slots=True)
class OutlineSymbol:
    """A declaration, with the spans of the whole and of its name (`at`), and the declarations in it."""

    kind: str
    name: str
    span: Span
    at: Span
    inside: tuple[OutlineSymbol, ...]


def colours(text: str) -> list[Colour]:
    """List the coloured pieces of a text, in order; those over several lines are cut at line ends."""
    scanned = scan(Source("", "\n".join(lines_of(text))))
    words = [*_words(scanned.tokens), *(Colour(each.span, "comment") for each in scanned.comments)]
    lines = lines_of(text)
    pieces = [piece for each in words for piece in _split_by_line(each, lines)]
    return sorted(pieces, key=lambda each: (each.span.line, each.span.column))


def encode_colours(text: str, encoding: str = UTF16) -> list[int]:
    """Encode `colours` for the protocol: five numbers a piece, with places relative to the piece before."""
    lines, numbers = lines_of(text), []
    line, start = 1, 0
    for each in colours(text):
        span = each.span
        at = units(lines[span.line - 1][: span.column - 1], encoding)
        width = units(lines[span.line - 1][span.column - 1 : span.end_column - 1], encoding)
        numbers += [
            span.line - line,
            at - start if span.line == line else at,
            width,
            SORTS.index(each.sort),
            0,
        ]
        line, start = span.line, at
    return numbers


def symbols(items: tuple[tree.BlockItem | tree.ModuleItem, ...]) -> tuple[OutlineSymbol, ...]:
    """List the declarations among the items of a file or block, params included."""
    outline = []
    for item in items:
        if isinstance(item, tree.Param):
            outline.append(OutlineSymbol("param", item.name.name, item.span, item.name.span, ()))
        elif isinstance(item, tree.Decl):
            inside = symbols(item.block.items) if item.block is not None else ()
            outline.append(OutlineSymbol(item.kind.name, item.name.name, item.span, item.name.span, inside))
        elif isinstance(item, tree.Nested) and (inside := symbols(item.block.items)):
            outline.append(OutlineSymbol("", item.name.name, item.span, item.name.span, inside))
    return tuple(outline)


def _words(tokens: list[Token]) -> Iterator[Colour]:
    opened: list[str] = []
    item: list[str] = []  # the types of the item's tokens so far
    for token, after in zip_longest(tokens, tokens[1:]):
        kind, follows = token.type, after.type if after is not None else ""
        in_call = bool(opened) and opened[-1] != "LBRACE"
        if kind in _OPENERS:
            opened.append(kind)
        elif opened and kind == _OPENERS[opened[-1]]:
            opened.pop()
        listed = kind == "COMMA" and item[:1] == ["FROM"]
        if kind == "LBRACE" or (kind in ("NEWLINE", "COMMA", "SEP") and not in_call and not listed):
            item = []
            continue
        if kind in KEYWORDS:
            yield Colour(token.span, "keyword")
        elif kind in _PLAIN:
            yield Colour(token.span, _PLAIN[kind])
        elif kind == "NAME":
            yield Colour(token.span, _name(item, follows, in_call))
        item.append(kind)


def _name(item: list[str], follows: str, in_call: bool) -> Sort:
    """Sort a name by what stands before it in its item, what follows it, and whether it is in ( ) or [ ]."""
    first, before = (item[0], item[-1]) if item else ("", "")
    if before == "NUMBER" or (before == "COLON" and first == "PARAM"):
        return "type"
    if first == "FROM":
        return "variable" if "IMPORT" in item else "namespace"
    if in_call:
        return "parameter" if follows == "COLON" else "function" if follows == "LPAR" else "variable"
    if not item and follows == "NAME":
        return "keyword"
    if not item and follows in ("EQUAL", "PLUS_EQUAL", "LBRACE"):
        return "property"
    if item == ["NAME"]:
        return "class"
    return "function" if follows == "LPAR" else "variable"


def _split_by_line(whole: Colour, lines: list[str]) -> Iterator[Colour]:
    span = whole.span
    if span.line == span.end_line:
        yield whole
        return
    for line in range(span.line, span.end_line + 1):
        start = span.column if line == span.line else 1
        end = span.end_column if line == span.end_line else len(lines[line - 1]) + 1
        if end > start:
            yield Colour(Span(span.path, line, start, line, end), whole.sort)


@dataclass(frozen=True, slots=True)
class FoldedLines:
    """Lines from 1 that fold into the first of them, and whether they are comments."""

    first: int
    last: int
    comment: bool = False


def folds(text: str) -> tuple[FoldedLines, ...]:
    """List the blocks, brackets and comments over several lines."""
    scanned = scan(Source("", "\n".join(lines_of(text))))
    folded, opened = [], []
    for token in scanned.tokens:
        if token.type in _OPENERS:
            opened.append(token.span.line)
        elif token.type in _OPENERS.values() and opened:
            first = opened.pop()
            if token.span.line > first + 1:
                folded.append(FoldedLines(first, token.span.line - 1))
        elif token.type == "TEXT" and token.span.end_line > token.span.line:
            folded.append(FoldedLines(token.span.line, token.span.end_line, comment=True))
    run: list[int] = []
    for line in [each.span.line for each in scanned.comments if each.own_line] + [-1]:
        if run and line != run[-1] + 1:
            if len(run) > 1:
                folded.append(FoldedLines(run[0], run[-1], comment=True))
            run = []
        run.append(line)
    return tuple(sorted(folded, key=lambda each: (each.first, -each.last)))
