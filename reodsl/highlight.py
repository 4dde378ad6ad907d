"""Colour specs in documents: a lexer for Pygments, which MkDocs, Sphinx, notebooks and `pygmentize` read."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import accumulate

from pygments.lexer import Lexer
from pygments.token import (
    Comment,
    Error,
    Keyword,
    Name,
    Number,
    Operator,
    Punctuation,
    String,
    Token,
    Whitespace,
)

from reodsl.lsp.colours import Sort, colours

_TOKENS: dict[Sort, Token] = {
    "keyword": Keyword,
    "class": Name.Class,
    "property": Name.Attribute,
    "function": Name.Function,
    "parameter": Name.Variable,
    "variable": Name,
    "namespace": Name.Namespace,
    "type": Keyword.Type,
    "number": Number,
    "string": String,
    "comment": Comment.Single,
}
_BETWEEN = re.compile(
    r"(?P<space>\s+)|(?P<operator>\.\.|[=!<>+]=|[-+*/^=<>])|(?P<sign>[{}()\[\],;:.])|(?P<other>.)"
)
_SIGNS: dict[str, Token] = {"space": Whitespace, "operator": Operator, "sign": Punctuation, "other": Error}


class ReoLexer(Lexer):  # type: ignore[misc]
    """A lexer of specs for Pygments, with the same colours as the language server's."""

    name = "reodsl"
    aliases = ["reo", "reodsl"]
    filenames = ["*.reo"]
    url = "https://arxiv.org/abs/2506.07104"

    def get_tokens_unprocessed(self, text: str) -> Iterator[tuple[int, Token, str]]:
        """Yield the tokens of a text in order, as (index, kind, text); a character outside the language is an Error."""
        starts = list(accumulate((len(line) + 1 for line in text.split("\n")), initial=0))
        position = 0
        for colour in colours(text):
            start = starts[colour.span.line - 1] + colour.span.column - 1
            end = starts[colour.span.line - 1] + colour.span.end_column - 1
            yield from _plain_tokens(text, position, start)
            yield start, _TOKENS[colour.sort], text[start:end]
            position = end
        yield from _plain_tokens(text, position, len(text))


def _plain_tokens(text: str, start: int, end: int) -> Iterator[tuple[int, Token, str]]:
    """Yield the tokens of a piece of text that has no colour: space, operators and signs.

    Args:
        text: The complete text.
        start: The index of the first character of the piece.
        end: The index behind the last character of the piece.
    """
    for match in _BETWEEN.finditer(text, start, end):
        yield match.start(), _SIGNS[match.lastgroup or "other"], match.group()
