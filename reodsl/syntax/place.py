"""Where the grammar cannot go on: the item so far, what was found, what would fit, in the user's words."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from reodsl.diagnostics.model import Span
from reodsl.syntax.tokens import Tok

KEYWORDS = frozenset(
    "FROM IMPORT AS PARAM LET DENSE IN FOR IF ELSE AND OR NOT TRUE FALSE".split()  # noqa: SIM905 (a list of words)
)
SYMBOLS = {
    "EQUAL": "=",
    "PLUS_EQUAL": "+=",
    "EQ": "==",
    "NE": "!=",
    "LE": "<=",
    "GE": ">=",
    "LT": "<",
    "GT": ">",
    "DOTDOT": "..",
    "DOT": ".",
    "COMMA": ",",
    "COLON": ":",
    "PLUS": "+",
    "MINUS": "-",
    "STAR": "*",
    "SLASH": "/",
    "CARET": "^",
    "LPAR": "(",
    "RPAR": ")",
    "LSQB": "[",
    "RSQB": "]",
    "LBRACE": "{",
    "RBRACE": "}",
}
BINARY = frozenset("PLUS MINUS STAR SLASH CARET EQ NE LE GE LT GT AND OR IN DOTDOT NOT".split())  # noqa: SIM905
COMPARISONS = frozenset({"EQ", "NE", "LE", "GE", "LT", "GT", "IN"})
VALUES = KEYWORDS | {"NAME", "NUMBER", "STRING", "TEXT", "LPAR", "LSQB"}
ENDS = frozenset({"SEP", "$END", "RBRACE"})
CLOSERS = frozenset({"RPAR", "RSQB", "RBRACE"})
OPENERS = frozenset({"LPAR", "LSQB", "LBRACE"})


@dataclass(slots=True)
class Place:
    """The tokens of an item up to a few after the unfitting one, at `index`; `expected` by the grammar.

    `alone`: there is no item, only an expression, as on a command line.
    """

    tokens: list[Tok]
    index: int
    in_block: bool
    expected: set[str]
    alone: bool = False

    @property
    def found(self) -> Tok:
        """The token that does not fit."""
        return self.tokens[self.index]

    @property
    def before(self) -> Tok | None:
        """The token before it; None where it is the first of its item."""
        return self.tokens[self.index - 1] if self.index else None

    @property
    def first(self) -> Tok:
        """The token that the item begins with."""
        return self.tokens[0]

    def type_at(self, offset: int) -> str:
        """The type of the token `offset` from the unfitting one; empty outside the item."""
        at = self.index + offset
        return self.tokens[at].type if 0 <= at < len(self.tokens) else ""

    def calls(self, opener: int) -> bool:
        """Whether the bracket at `opener` is that of a call."""
        if opener == 2 and self.first.type == self.tokens[1].type == "NAME":
            return False  # the parameters of a declaration
        before = self.tokens[opener - 1].type if opener else ""
        return self.tokens[opener].type == "LPAR" and (before in CLOSERS or before == "NAME")

    def opener(self) -> int | None:
        """The index of the innermost bracket around the place that the item itself opens."""
        depth = 0
        for at in range(self.index - 1, -1, -1):
            kind = self.tokens[at].type
            if kind in CLOSERS:
                depth += 1
            elif kind in OPENERS:
                if depth == 0:
                    return at
                depth -= 1
        return None


def describe(token: Tok) -> str:
    """A token in the user's words, never the grammar's."""
    if token.type == "$END":
        return "the end of the file"
    if token.type == "SEP":
        return f"`{token.text}`" if token.text in (",", ";") else "the end of the line"
    if token.type == "NUMBER":
        return f"the number `{clipped(token.text)}`"
    if token.type in ("STRING", "TEXT"):
        return "a text"
    if token.type == "NAME":
        return f"the name `{clipped(token.text)}`"
    if token.type in KEYWORDS:
        return f"the word `{token.text}`"
    return f"`{token.text}`"


def clipped(text: str) -> str:
    """A text of a spec at a length that may be quoted."""
    return text if len(text) <= 40 else text[:39] + "…"


def spelled(token: Tok) -> str:
    """A token as it may be quoted in a line of advice."""
    if token.type in ENDS:
        return "…"
    return clipped(token.text) if "\n" not in token.text else "…"


def where(place: Place) -> Span:
    """Where to point: the token itself, or just behind the last one for the end of a line or of the file."""
    before = place.before
    return behind(before) if before is not None and ends_line(place) else place.found.span


def ends_line(place: Place) -> bool:
    """Whether what is missing is missing at the end of a line: the next token is on another one."""
    token, before = place.found, place.before
    if before is None or token.text in (",", ";"):
        return False
    return token.type in ("SEP", "$END") or (token.type in CLOSERS and token.span.line > before.span.end_line)


def value_after(place: Place) -> str:
    """The value that follows the unfitting token, to be quoted in a line of advice; `…` unless it is short."""
    token, unit = place.tokens[place.index + 1], place.type_at(2)
    if token.type == "NUMBER" and unit == "NAME":
        return f"{spelled(token)} {place.tokens[place.index + 2].text}"
    return "…" if unit in ("LPAR", "DOT", "LBRACE", "LSQB") or token.type in OPENERS else spelled(token)


def behind(token: Tok) -> Span:
    """One column behind a token."""
    span = token.span
    return Span(span.path, span.end_line, span.end_column, span.end_line, span.end_column + 1)


def keyword_advice(token: Tok) -> str:
    """What a keyword is for, where it stands and does not fit."""
    if token.type == "FOR":
        return "go through a group in a call: `mean(len(z) for z in group)`"
    if token.type in ("IF", "ELSE"):
        return "choose between two values: `A if CONDITION else B`"
    if token.type in ("AND", "OR", "IN"):
        return f"`{token.text}` goes between two values"
    return f"`{token.text}` names a setting (`{token.text} = …`), an argument (`{token.text}: …`) or a member only"


def wanted(expected: Iterable[str]) -> str:
    """What fits, for the underline: `wanted: `,` or `)``; the operators of a value are left out."""
    names = set(expected)
    if {"PLUS", "STAR"} & names:
        # The operators of a value say nothing; `..` does, where only a range can follow.
        ranged = {"DOTDOT"} if "EQ" not in names else set()
        names -= (BINARY - ranged) | {"DOT", "LPAR", "LSQB", "LBRACE", "IF", "NAME", "TEXT"}
    words = []
    if "NUMBER" in names:
        return "wanted: a value"
    if "NAME" in names:
        words.append("a name")
    for name in sorted(names):
        if name in SYMBOLS:
            words.append(f"`{SYMBOLS[name]}`")
        elif name in KEYWORDS and "NAME" not in names:
            words.append(f"`{name.lower()}`")
    if names & {"SEP", "$END"}:
        words.append("a new line")
    if not words:
        return ""
    return "wanted: " + (words[0] if len(words) == 1 else f"{', '.join(words[:-1])} or {words[-1]}")
