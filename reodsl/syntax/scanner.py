"""Scan a source into tokens and comments; report what is not a token, and mend it or leave it out."""

from __future__ import annotations

import re
import unicodedata
from dataclasses import dataclass, field
from functools import cache

from reodsl.diagnostics.model import Diagnostic, Span, error, warning
from reodsl.syntax import grammar
from reodsl.syntax.literals import LiteralFault, read_number, read_string
from reodsl.syntax.source import Source
from reodsl.syntax.tree import Comment


@dataclass(slots=True)
class Token:
    """A token of the parser. `payload` is a literal's value; `mended` means that the text here was corrected."""

    type: str
    text: str
    span: Span
    payload: object = None
    mended: bool = False


KEYWORDS = frozenset(grammar.words().values())
SIGNS = grammar.signs()
OPENERS = frozenset({"LPAR", "LSQB", "LBRACE"})
CLOSERS = frozenset({"RPAR", "RSQB", "RBRACE"})

MOST_TOKENS = 100_000
"""The most tokens that a spec and its imports may have; a study of 400 arms has some 13,000."""
MOST_FAULTS = 1000
"""Scanning stops after this many findings: the text is not a spec."""


@dataclass(slots=True)
class ScanResult:
    """The tokens and comments of a source."""

    tokens: list[Token]
    """All tokens, with newlines, `;` and commas."""
    comments: list[Comment] = field(default_factory=list)
    diagnostics: list[Diagnostic] = field(default_factory=list)
    count: int = 0
    """The count of tokens and comments of the source."""
    cut: bool = False
    """True if the rest of the source was not read."""


_FOREIGN: dict[str, tuple[str | None, str]] = {
    "**": ("CARET", "write `^` for a power"),
    "&&": ("AND", "write `and`"),
    "||": ("OR", "write `or`"),
    "!": ("NOT", "write `not`"),
    "?": (None, "choose between two values: `A if CONDITION else B`"),
    ":=": ("EQUAL", "a setting is written `name = value`, an argument `name: value`"),
    "=>": ("GE", "write `>=` to compare"),
    "=<": ("LE", "write `<=` to compare"),
    "->": (None, "nothing is written with an arrow: delete it"),
    "-=": ("EQUAL", "a setting is replaced by `=`, and a list appended to by `+=`"),
    "*=": ("EQUAL", "a setting is replaced by `=`, and a list appended to by `+=`"),
    "/=": ("EQUAL", "a setting is replaced by `=`, and a list appended to by `+=`"),
    "%": (None, "a percentage is written without a space: `0.2%`; there is no remainder"),
    "\\": (None, "put a long value in ( ), in which newlines are allowed without a backslash"),
    "\u2212": ("MINUS", "write `-`"),
    "\u2013": ("MINUS", "write `-`"),
    "\u00d7": ("STAR", "write `*`"),
    "\u00b7": ("STAR", "write `*`"),
    "\u00f7": ("SLASH", "write `/`"),
    "\u2264": ("LE", "write `<=`"),
    "\u2265": ("GE", "write `>=`"),
    "\u2260": ("NE", "write `!=`"),
    "\u2026": ("DOTDOT", "a range is written `1..16`"),
}
"""Signs of other languages: the token that replaces the sign (None to drop it), and what to write instead."""
_QUOTES = "\u201c\u201d\u2018\u2019\u00ab\u00bb`"

_MULTILINE_TERMINALS = frozenset({"NEWLINE", "TEXT", "OPEN_TEXT"})  # the terminals that hold line ends


@cache
def _token_pattern() -> re.Pattern[str]:
    """Return one regular expression with a named group per terminal; the last terminal matches any character."""
    return re.compile("|".join(f"(?P<{t.name}>{t.pattern.to_regexp()})" for t in grammar.terminals()))


def scan(source: Source, max_tokens: int = MOST_TOKENS) -> ScanResult:
    """Return the tokens and comments of a text with their diagnostics (E0133 to E0136); raise nothing on any text.

    Args:
        source: The text and its path.
        max_tokens: The largest number of tokens and comments. For more the only diagnostic is E0216.

    Returns:
        The result; `cut` is true if scanning stopped after `max_tokens` tokens or `MOST_FAULTS` diagnostics.
    """
    scanned = ScanResult([])
    tokens, path = scanned.tokens, source.path
    drop_next = False
    last_line, line, start = 0, 1, 0
    words = grammar.words()
    for match in _token_pattern().finditer(source.text):
        kind, text = match.lastgroup, match.group()
        offset = match.start()
        first_line, column = line, offset - start + 1
        if kind == "WS" or kind is None:
            continue
        scanned.count += 1
        if scanned.count > max_tokens:
            end_span = Span(path, line, column, line, column + 1)
            scanned.diagnostics[:], scanned.cut = [_too_many_tokens(end_span)], True
            return scanned
        if len(scanned.diagnostics) >= MOST_FAULTS:
            scanned.cut = True
            return scanned
        if kind in _MULTILINE_TERMINALS:
            line += text.count("\n")
            if line > first_line:
                start = offset + text.rindex("\n") + 1
        elif kind == "NAME" and text in words:
            kind = words[text]
        span = Span(path, first_line, column, line, match.end() - start + 1)
        if kind == "COMMENT":
            scanned.comments.append(Comment(text.rstrip(), span.line != last_line, span))
            continue
        if kind != "NEWLINE":
            last_line = span.end_line
        token = Token(kind, text, span, mended=drop_next)
        drop_next = False
        if kind == "NUMBER":
            _read_number_token(token, scanned.diagnostics)
        elif kind == "STRING":
            token.payload, faults = read_string(text)
            scanned.diagnostics.extend(_place_fault(fault, span) for fault in faults)
        elif kind == "TEXT":
            token.payload = text[3:-3]
        elif kind in ("OPEN_STRING", "OPEN_TEXT"):
            _report_unclosed(token, scanned.diagnostics)
        elif kind in ("FOREIGN", "STRAY") and not _mend_foreign_text(token, scanned.diagnostics):
            drop_next = True
            continue
        tokens.append(token)
    return scanned


def _too_many_tokens(span: Span) -> Diagnostic:
    """Return the error for a spec with too many tokens (E0216), marked at `span`."""
    return error(
        "E0216",
        f"a spec with its imports has at most {MOST_TOKENS:,} words and signs",
        span,
        "too large",
        help="keep data of this size in a data file, and name the file",
    )


def _place_fault(fault: LiteralFault, span: Span) -> Diagnostic:
    """Return the diagnostic of a fault in a literal, marked at the fault inside the literal's span."""
    start = span.column + fault.offset
    fault_span = Span(span.path, span.line, start, span.line, start + fault.length)
    return error(fault.code, fault.message, fault_span, help=fault.help)


def _read_number_token(token: Token, diagnostics: list[Diagnostic]) -> None:
    """Set the payload of a number token to (value, suffix); report a malformed number and assume a value for it."""
    result = read_number(token.text)
    if isinstance(result, LiteralFault):
        diagnostics.append(_place_fault(result, token.span))
        result = result.assumed_value
    token.payload = result


def _report_unclosed(token: Token, diagnostics: list[Diagnostic]) -> None:
    """Report a text without closing quotes (E0133), and turn its token into a text.

    The text ends with the line, or in triple quotes with the file. It is marked as `mended`.
    """
    triple = token.type == "OPEN_TEXT"
    span, quotes = token.span, '"""' if triple else '"'
    width = len(quotes)
    quotes_span = Span(span.path, span.line, span.column, span.line, span.column + width)
    diagnostics.append(
        error(
            "E0133",
            "this text is never closed",
            quotes_span,
            f"opened here, still open at the end of the {'file' if triple else 'line'}",
            help=f"close it with `{quotes}`"
            + ("" if triple else '; a text over several lines is written between `"""` and `"""`'),
        )
    )
    token.type = "TEXT" if triple else "STRING"
    token.payload = token.text[width:]
    token.mended = True


def _mend_foreign_text(token: Token, diagnostics: list[Diagnostic]) -> bool:
    """Report text that is not part of the language (E0135), and correct the token if its meaning is clear.

    Args:
        token: A token of type `FOREIGN` (what other languages write) or `STRAY`; its type is changed if it is
            corrected.
        diagnostics: The diagnostics so far; the error is appended.

    Returns:
        Whether the corrected token is kept; otherwise the token must be dropped.
    """
    text, span = token.text, token.span
    if text.startswith("//"):
        width = 2
        slashes = Span(span.path, span.line, span.column, span.line, span.column + width)
        diagnostics.append(error("E0135", "`//` does not start a comment", slashes, help="write `# …`"))
        return False
    if token.type == "FOREIGN" and text[0] in ("'", *_QUOTES):
        kind = "double" if text[0] == "'" else "straight double"
        inner = text[1:-1].replace('"', '\\"')
        diagnostics.append(
            error("E0135", f"a text is written in {kind} quotes", span, help=f'write `"{clip_text(inner)}"`')
        )
        token.type, token.payload = "STRING", text[1:-1]
        return True
    if text in _FOREIGN:
        taken_for, advice = _FOREIGN[text]
        diagnostics.append(error("E0135", f"`{text}` is not part of the language", span, help=advice))
        if taken_for is None:
            return False
        token.type, token.mended = taken_for, True
        return True
    diagnostics.append(
        error("E0135", f"{_name_character(text)} is not part of the language", span, help=_advice(text))
    )
    return False


def clip_text(text: str) -> str:
    """Return a text shortened to at most 40 characters, for messages."""
    return text if len(text) <= 40 else text[:39] + "…"


def _name_character(text: str) -> str:
    """Return a printable text in backticks, or else the code point and Unicode name of its first character."""
    if text.isprintable() and not text.isspace():
        return f"`{clip_text(text)}`"
    name = unicodedata.name(text[0], "a control character").lower()
    return f"U+{ord(text[0]):04X} ({name})"


def _advice(text: str) -> str:
    """Return what to write instead of characters that are not part of the language."""
    if text[0] in _QUOTES or text == "'":
        return 'a text is written in straight double quotes: `"…"`'
    if text[0].isalpha():
        return "names are made of the letters a-z and A-Z, digits and `_`; other letters may appear in texts and comments"
    if not text.isprintable() or text.isspace():
        return "delete it; words are separated by plain spaces"
    return "delete it, or put it in a text or a comment"


def escape_warnings(tokens: list[Token]) -> list[Diagnostic]:
    r"""Return W0101 for each triple-quoted value that contains `\n`, because no escapes are read in triple quotes."""
    warnings = []
    for previous, token in zip([None, *tokens], tokens, strict=False):
        if (
            token.type == "TEXT"
            and previous is not None
            and previous.type in ("EQUAL", "COLON", "COMMA", "LSQB", "LPAR")
        ):
            offset = token.text.find("\\n")
            # `\nu`, `\not` and `\neq` are LaTeX; before any other character a line break was meant.
            if offset >= 0 and not token.text[offset + 2 : offset + 3].isalpha():
                line = token.span.line + token.text.count("\n", 0, offset)
                start = offset - token.text.rfind("\n", 0, offset) - 1
                column = (token.span.column if line == token.span.line else 1) + start
                warnings.append(
                    warning(
                        "W0101",
                        "`\\n` in a triple-quoted text is a backslash and an `n`",
                        Span(token.span.path, line, column, line, column + 2),
                        help='start a new line there, or use `"…"`, where escapes are read',
                    )
                )
    return warnings
