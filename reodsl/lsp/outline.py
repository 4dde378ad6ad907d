"""Describe a position in a text: the block or call around it, the statement before it, and the word under it.

Only tokens are read, because a file in which the user types often does not parse. An open bracket with its content so far
is a `Frame`; a position with its frame is a `CursorSite`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate

from reodsl.diagnostics.model import Span
from reodsl.ir.kinds import FORMULAS, KINDS
from reodsl.ir.setting import Block, Condition, Kind, ListOf, OfKind, Setting
from reodsl.language.functions import SIGNATURES
from reodsl.lsp.analysis import tokens_of
from reodsl.syntax.scanner import Token

OPENERS = {"LBRACE": "{", "LPAR": "(", "LSQB": "["}
CLOSERS = frozenset({"RBRACE", "RPAR", "RSQB"})
BREAKS = frozenset({"NEWLINE", "COMMA"})
ASSIGNS = frozenset({"EQUAL", "PLUS_EQUAL"})
CONDITION = "condition"
"""The body of a formula that is a setting, such as `when`."""


def find_kind(name: str) -> Kind | None:
    """Return the kind or function with this name, whose settings or arguments a bracket takes; None for an unknown name."""
    return KINDS.get(name) or SIGNATURES.get(name)


@dataclass(slots=True)
class Frame:
    """An open bracket with what it contains so far, or the file."""

    bracket: str
    """`{`, `(`, `[`, or empty for the file."""
    kind: str = ""
    """The kind whose settings it holds, or the function of a call."""
    owner: str = ""
    """The declaration at the top of the file that contains it."""
    path: tuple[str, ...] | None = ()
    """The path of blocks from the declaration; None if it is no plain path."""
    setting: Setting | None = None
    """The setting whose value a list is."""
    body: str = ""
    """The kind of formula inside."""
    statement: list[Token] = field(default_factory=list)
    """The tokens since the last break."""
    has_sign: bool = False
    """True if the statement has a sign of assignment."""
    argument: str | None = None
    """The word before the statement's first colon."""
    setting_names: set[str] = field(default_factory=set)
    """The settings that the frame has so far."""

    def fields(self) -> Mapping[str, Setting]:
        """Return the settings or arguments that may be written in this bracket; empty for an unknown name."""
        kind = find_kind(self.kind)
        return kind.fields if kind is not None else {}

    def add(self, token: Token) -> None:
        """Append a token to the present statement."""
        self.has_sign = self.has_sign or token.type in ASSIGNS
        if token.type == "COLON" and self.argument is None and self.statement:
            self.argument = self.statement[-1].text
        self.statement.append(token)


@dataclass(slots=True)
class LocalName:
    """A name that is declared inside a declaration."""

    name: str
    kind: str
    """`let`, `track`, `metric`, `variable`, `parameter`, or the kind of a declaration."""
    span: Span


@dataclass(slots=True)
class CursorSite:
    """A position in a text, with the brackets, tokens and names around it."""

    frame: Frame
    """The innermost open bracket."""
    tokens_before: list[Token]
    """The statement before the position."""
    word: Token | None
    """The word under the position."""
    next_token: Token | None
    """The token after the word."""
    locals: dict[str, LocalName]
    """The names inside the declaration around the position."""
    setting_names: set[str]
    """The settings of the block, before and after the position."""
    expected: Setting | None
    """The setting or argument whose value stands here."""
    has_sign: bool
    """True if a sign of assignment stands before the position."""


def find_expected(frame: Frame) -> Setting | None:
    """Return the setting or argument whose value is being written at the end of a bracket's statement.

    In a call it is the named argument, or else the first positional one. In a list it is the setting that has
    the list. The result is None if no value is being written, or if the setting is unknown.
    """
    tokens = frame.statement
    if frame.bracket == "(" and frame.kind:
        if frame.argument is not None:
            return frame.fields().get(frame.argument)
        call = find_kind(frame.kind)
        return frame.fields().get(call.positional[0]) if call is not None and call.positional else None
    if frame.bracket == "{":
        return frame.fields().get(tokens[0].text) if len(tokens) > 1 and tokens[1].type in ASSIGNS else None
    return frame.setting


def locate(text: str, line: int, column: int) -> CursorSite:
    """Return the position of a cursor relative to the brackets, statements and names around it.

    Args:
        text: The text, which need not parse.
        line: The line of the cursor, from 1.
        column: The column of the cursor, from 1; a word that touches the position is the word under the
            cursor.
    """
    tokens = tokens_of(text)
    word = next(
        (
            token
            for token in tokens
            if is_word(token)
            and token.span.line == line
            and token.span.column <= column <= token.span.end_column
        ),
        None,
    )
    stop = next(
        (i for i, t in enumerate(tokens) if t is word or (t.span.line, t.span.column) >= (line, column)),
        len(tokens),
    )
    stack = [Frame("")]
    for i, token in enumerate(tokens[:stop]):
        _follow_token(stack, token, tokens[i - 1] if i else None)
    frame = stack[-1]
    tokens_before, names = list(frame.statement), set(frame.setting_names)
    field_, has_sign = find_expected(frame), frame.has_sign
    locals_ = _list_locals(tokens, _find_start(tokens, stop))
    depth = len(stack)
    for i in range(stop, len(tokens)):
        _follow_token(stack, tokens[i], tokens[i - 1] if i else None)
        if len(stack) < depth:
            break
    names |= frame.setting_names - {word.text if word is not None else ""}
    after = next(iter(tokens[stop + (word is not None) :]), None)
    return CursorSite(frame, tokens_before, word, after, locals_, names, field_, has_sign)


def locate_name(text: str, name: str) -> Iterator[CursorSite]:
    """Yield a `CursorSite` for each use of a name, in a single pass over the text.

    A site is valid until the next site is yielded, because it shares the list of tokens. Its `setting_names` is
    empty.
    """
    tokens, stack = tokens_of(text), [Frame("")]
    start, depth = 0, 0
    locals_: dict[str, LocalName] | None = None
    for i, token in enumerate(tokens):
        if token.type == "NAME" and token.text == name:
            locals_ = _list_locals(tokens, start) if locals_ is None else locals_
            after = tokens[i + 1] if i + 1 < len(tokens) else None
            frame = stack[-1]
            yield CursorSite(
                frame, frame.statement, token, after, locals_, set(), find_expected(frame), frame.has_sign
            )
        _follow_token(stack, token, tokens[i - 1] if i else None)
        depth += (token.type in OPENERS) - (token.type in CLOSERS)
        if token.type == "NEWLINE" and depth <= 0:
            start, locals_ = i + 1, None


def is_word(token: Token) -> bool:
    """Return whether a token is a name or a keyword."""
    return (token.text[:1].isalpha() and token.text.isidentifier()) or (
        token.text[:1] == "_" and token.type == "NAME"
    )


def _follow_token(stack: list[Frame], token: Token, previous: Token | None) -> None:
    """Update the stack of open brackets for the next token.

    An opening bracket is added to the stack, and a closing bracket removes the innermost one. A newline, comma
    or `;` ends the statement of the innermost bracket, except a newline inside `( )` and `[ ]` and a comma
    outside of brackets.

    Args:
        stack: The open brackets, outermost first; changed in place.
        token: The token.
        previous: The token before it.
    """
    frame = stack[-1]
    if token.type in OPENERS:
        inner = _open_frame(frame, OPENERS[token.type], previous)
        field_ = find_expected(frame)
        inner.body = CONDITION if field_ is not None and isinstance(field_.type, Condition) else frame.body
        if token.type == "LBRACE" and not frame.bracket and inner.kind in FORMULAS:
            inner.body = inner.kind
        frame.add(token)
        stack.append(inner)
    elif token.type in CLOSERS:
        if len(stack) > 1:
            stack.pop()
    elif token.type in BREAKS or token.text == ";":
        if (token.type == "COMMA" and frame.bracket == "") or (
            token.type == "NEWLINE" and frame.bracket in ("(", "[")
        ):
            return
        frame.statement.clear()
        frame.has_sign, frame.argument = False, None
    else:
        if not frame.statement and is_word(token):
            frame.setting_names.add(token.text)
        frame.add(token)


def _open_frame(frame: Frame, bracket: str, previous: Token | None) -> Frame:
    """Return the `Frame` of a bracket that opens: what it contains follows from the statement before it.

    Args:
        frame: The open bracket around the new one, or the file.
        bracket: `{`, `(` or `[`.
        previous: The token before the bracket; None at the start of the text.
    """
    statement = frame.statement
    words = [token.text for token in statement[:2]]
    owner = frame.owner or (words[1] if len(words) > 1 else "")
    field_ = find_expected(frame)
    if bracket == "[":
        return Frame(bracket, owner=owner, path=None, setting=field_)
    if bracket == "(":
        declares = not frame.has_sign and frame.bracket == ""
        call = previous.text if previous is not None and is_word(previous) and not declares else ""
        return Frame(bracket, kind=call, owner=owner, path=None, setting=None if call else field_)
    if not frame.bracket:
        return Frame(bracket, kind=words[0] if words else "", owner=owner)
    if not statement:
        return Frame(bracket, owner=owner, path=None)
    head = frame.fields().get(words[0])
    if len(statement) > 1 and statement[1].type in ASSIGNS:
        return Frame(bracket, kind=_find_amended_kind(field_), owner=owner, path=None)
    if len(statement) > 1 and is_word(statement[1]):
        return Frame(bracket, kind=words[0], owner=owner, path=None)
    if words[0] == "stages":
        return Frame(bracket, kind="stage", owner=owner, path=None)
    path = (*frame.path, words[0]) if frame.path is not None else None
    return Frame(
        bracket, kind=head.type.kind if head and isinstance(head.type, Block) else "", owner=owner, path=path
    )


def _find_amended_kind(field_: Setting | None) -> str:
    """Return the kind of record that a setting takes, which a block behind the value amends; empty for no record."""
    type_ = field_.type if field_ is not None else None
    type_ = type_.item if isinstance(type_, ListOf) else type_
    return next((kind for kind in type_.kinds if kind in KINDS), "") if isinstance(type_, OfKind) else ""


def _count_open(tokens: Iterable[Token]) -> Iterator[int]:
    """Return for each token the number of brackets that are open behind it."""
    return accumulate((token.type in OPENERS) - (token.type in CLOSERS) for token in tokens)


def _find_start(tokens: Sequence[Token], stop: int) -> int:
    """Return the index of the first token of the declaration around token `stop`."""
    depths = enumerate(_count_open(tokens[:stop]), 1)
    return max((i for i, depth in depths if depth <= 0 and tokens[i - 1].type == "NEWLINE"), default=0)


def _list_locals(tokens: Sequence[Token], start: int) -> dict[str, LocalName]:
    """Return the names that are declared inside one declaration, by name.

    Args:
        tokens: The tokens of the text.
        start: The index of the declaration's first token.
    """
    names: dict[str, LocalName] = {}
    depth, head = 0, _head_length(tokens, start)
    for i in range(start, len(tokens)):
        token = tokens[i]
        if token.type == "NEWLINE" and depth <= 0:
            break
        depth += (token.type in OPENERS) - (token.type in CLOSERS)
        left = tokens[i - 1] if i > start else None
        right = tokens[i + 1] if i + 1 < len(tokens) else None
        if left is None or right is None or token.type != "NAME":
            continue
        kind = ""
        if left.type == "LET":
            kind = "let"
        elif left.type == "NAME" and left.text in ("track", "metric") and right.type == "EQUAL":
            kind = left.text
        elif right.type == "IN" and left.type in ("FOR", "DENSE", "LPAR"):
            kind = "variable"
        elif depth == 1 and right.type == "COLON" and left.type in ("LPAR", "COMMA") and i - start < head:
            kind = "parameter"
        elif depth > 0 and left.type == "NAME" and right.type in ("EQUAL", "LBRACE") and left.text in KINDS:
            kind = left.text
        if kind:
            names.setdefault(token.text, LocalName(token.text, kind, token.span))
    return names


def _head_length(tokens: Sequence[Token], start: int) -> int:
    """Return the number of tokens of a declaration's head `kind name(params)`; 0 without parameters.

    Args:
        tokens: The tokens of the text.
        start: The index of the declaration's first token.
    """
    if start + 2 >= len(tokens) or tokens[start + 2].type != "LPAR":
        return 0
    depths = _count_open(tokens[i] for i in range(start + 2, len(tokens)))
    return next((i for i, depth in enumerate(depths, 2) if depth == 0), len(tokens) - start)
