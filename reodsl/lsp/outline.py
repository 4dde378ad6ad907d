"""Locate a place in a text: the block or call around it, the statement so far, the word under it.

It reads tokens alone, so that it answers in a file that is being typed and does not parse.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from reodsl.diagnostics.model import Span
from reodsl.ir.kinds import FORMULAS, KINDS
from reodsl.ir.setting import A, Block, Condition, Many, Setting
from reodsl.language.functions import SIGNATURES
from reodsl.lsp.analysis import tokens_of
from reodsl.syntax.scanner import Token

OPENERS = {"LBRACE": "{", "LPAR": "(", "LSQB": "["}
CLOSERS = frozenset({"RBRACE", "RPAR", "RSQB"})
BREAKS = frozenset({"NEWLINE", "COMMA"})
ASSIGNS = frozenset({"EQUAL", "PLUS_EQUAL"})
CONDITION = "condition"
"""The body of a formula that is a setting, such as `when`."""


@dataclass(slots=True)
class Frame:
    """A bracket that is open, or the file itself: `bracket` is `{`, `(`, `[` or empty.

    `kind` names the settings in it, or for a call the function. `owner` is the declaration at the top of the file,
    `path` leads from it through blocks to this one (None where that is not a plain path), `setting` is the one whose
    value a list is. `body` is the kind of a formula in the braces of one. `statement` holds the tokens since the last
    break, `assigned` says whether a sign of assignment is among them, and `argument` is the word before their first
    colon. `given` are the settings that stand in the frame.
    """

    bracket: str
    kind: str = ""
    owner: str = ""
    path: tuple[str, ...] | None = ()
    setting: Setting | None = None
    body: str = ""
    statement: list[Token] = field(default_factory=list)
    assigned: bool = False
    argument: str | None = None
    given: set[str] = field(default_factory=set)

    def fields(self) -> Mapping[str, Setting]:
        """Return the settings or arguments that may stand here."""
        return fields_of(self.kind)

    def add(self, token: Token) -> None:
        """Add a token to the statement."""
        self.assigned = self.assigned or token.type in ASSIGNS
        if token.type == "COLON" and self.argument is None and self.statement:
            self.argument = self.statement[-1].text
        self.statement.append(token)

    def end_statement(self) -> None:
        """Begin the next statement."""
        self.statement.clear()
        self.assigned, self.argument = False, None


@dataclass(slots=True)
class LocalName:
    """A name inside a declaration: a `let`, an arm, a parameter or a variable; `what` says which."""

    name: str
    what: str
    span: Span


@dataclass(slots=True)
class CursorSite:
    """A place: its frame, the statement before it, the word under it and the token after that.

    `locals` are the names inside of the declaration around it, `given` the settings of the whole block. `wanted` is the
    setting or argument whose value stands here, and `assigned` says whether a sign of assignment stands before.
    """

    frame: Frame
    before: list[Token]
    word: Token | None
    after: Token | None
    locals: dict[str, LocalName]
    given: set[str]
    wanted: Setting | None
    assigned: bool


def fields_of(kind: str) -> Mapping[str, Setting]:
    """Return the settings of a kind, or the arguments of a function; a stage has those of an experiment."""
    known = KINDS.get(kind) or SIGNATURES.get(kind)
    return known.fields if known is not None else {}


def wanted(frame: Frame) -> Setting | None:
    """Return the field whose value begins or goes on after a frame's statement."""
    before = frame.statement
    if frame.bracket == "(" and frame.kind:
        if frame.argument is not None:
            return frame.fields().get(frame.argument)
        known = KINDS.get(frame.kind) or SIGNATURES.get(frame.kind)
        return frame.fields().get(known.positional[0]) if known is not None and known.positional else None
    if frame.bracket == "{":
        return frame.fields().get(before[0].text) if len(before) > 1 and before[1].type in ASSIGNS else None
    return frame.setting


def locate(text: str, line: int, column: int) -> CursorSite:
    """Locate line and column (from 1) in a text; the word is the one that the place touches."""
    tokens = tokens_of(text)
    at = next(
        (
            i
            for i, token in enumerate(tokens)
            if is_word(token)
            and token.span.line == line
            and token.span.column <= column <= token.span.end_column
        ),
        None,
    )
    stop = at if at is not None else _first_after(tokens, line, column)
    stack = [Frame("")]
    for i, token in enumerate(tokens[:stop]):
        _take(stack, token, tokens[i - 1] if i else None)
    frame = stack[-1]
    before, given = list(frame.statement), set(frame.given)
    field_, assigned = wanted(frame), frame.assigned
    locals_ = _locals(tokens, _top_of(tokens, stop))
    depth = len(stack)
    for i in range(stop, len(tokens)):
        _take(stack, tokens[i], tokens[i - 1] if i else None)
        if len(stack) < depth:
            break
    if at is not None:
        given |= frame.given - {tokens[at].text}
    else:
        given |= frame.given
    follows = (at + 1) if at is not None else stop
    after = tokens[follows] if follows < len(tokens) else None
    word = tokens[at] if at is not None else None
    return CursorSite(frame, before, word, after, locals_, given, field_, assigned)


def locate_name(text: str, name: str) -> Iterator[CursorSite]:
    """Yield the site of each use of a name, in one walk over the text.

    A site holds until the next is asked for, and does not know what else its block gives.
    """
    tokens, stack = tokens_of(text), [Frame("")]
    start, depth = 0, 0
    locals_: dict[str, LocalName] | None = None
    for i, token in enumerate(tokens):
        if token.type == "NAME" and token.text == name:
            locals_ = _locals(tokens, start) if locals_ is None else locals_
            after = tokens[i + 1] if i + 1 < len(tokens) else None
            frame = stack[-1]
            yield CursorSite(
                frame, frame.statement, token, after, locals_, set(), wanted(frame), frame.assigned
            )
        _take(stack, token, tokens[i - 1] if i else None)
        depth += (token.type in OPENERS) - (token.type in CLOSERS)
        if token.type == "NEWLINE" and depth <= 0:
            start, locals_ = i + 1, None


def is_word(token: Token) -> bool:
    """Return whether a token is a name, or a keyword, which may be one elsewhere."""
    return (token.text[:1].isalpha() and token.text.isidentifier()) or (
        token.text[:1] == "_" and token.type == "NAME"
    )


def _first_after(tokens: Sequence[Token], line: int, column: int) -> int:
    return next(
        (i for i, token in enumerate(tokens) if (token.span.line, token.span.column) >= (line, column)),
        len(tokens),
    )


def _take(stack: list[Frame], token: Token, before: Token | None) -> None:
    """Follow one token: brackets open and close frames, breaks end statements."""
    frame = stack[-1]
    if token.type in OPENERS:
        inner = _open_frame(frame, OPENERS[token.type], before)
        field_ = wanted(frame)
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
        frame.end_statement()
    else:
        if not frame.statement and is_word(token):
            frame.given.add(token.text)
        frame.add(token)


def _open_frame(frame: Frame, bracket: str, before: Token | None) -> Frame:
    """Make the frame that a bracket opens after the statement so far."""
    statement = frame.statement
    words = [token.text for token in statement[:2]]
    owner = frame.owner or (words[1] if len(words) > 1 else "")
    field_ = wanted(frame)
    if bracket == "[":
        return Frame(bracket, owner=owner, path=None, setting=field_)
    if bracket == "(":
        declares = not frame.assigned and frame.bracket == ""
        call = before.text if before is not None and is_word(before) and not declares else ""
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
    """Return the kind of thing whose settings a block after a value changes."""
    type_ = field_.type if field_ is not None else None
    type_ = type_.item if isinstance(type_, Many) else type_
    return next((kind for kind in type_.kinds if kind in KINDS), "") if isinstance(type_, A) else ""


def _top_of(tokens: Sequence[Token], stop: int) -> int:
    """Find where the declaration around a token begins: after the last line end outside all brackets."""
    depth, start = 0, 0
    for i, token in enumerate(tokens[:stop]):
        depth += (token.type in OPENERS) - (token.type in CLOSERS)
        if token.type == "NEWLINE" and depth <= 0:
            start = i + 1
    return start


def _locals(tokens: Sequence[Token], start: int) -> dict[str, LocalName]:
    """List the names inside the declaration that begins at `start`."""
    names: dict[str, LocalName] = {}
    depth, head = 0, _params(tokens, start)
    for i in range(start, len(tokens)):
        token = tokens[i]
        if token.type == "NEWLINE" and depth <= 0:
            break
        depth += (token.type in OPENERS) - (token.type in CLOSERS)
        above = tokens[i - 1] if i > start else None
        below = tokens[i + 1] if i + 1 < len(tokens) else None
        if above is None or below is None or token.type != "NAME":
            continue
        what = ""
        if above.type == "LET":
            what = "let"
        elif above.type == "NAME" and above.text in ("track", "metric") and below.type == "EQUAL":
            what = above.text
        elif below.type == "IN" and above.type in ("FOR", "DENSE", "LPAR"):
            what = "variable"
        elif depth == 1 and below.type == "COLON" and above.type in ("LPAR", "COMMA") and i - start < head:
            what = "parameter"
        elif depth > 0 and above.type == "NAME" and below.type in ("EQUAL", "LBRACE") and above.text in KINDS:
            what = above.text
        if what:
            names.setdefault(token.text, LocalName(token.text, what, token.span))
    return names


def _params(tokens: Sequence[Token], start: int) -> int:
    """Count the tokens of a declaration's head, `kind name(params)`; 0 without parameters."""
    if start + 2 >= len(tokens) or tokens[start + 2].type != "LPAR":
        return 0
    depth = 0
    for i in range(start + 2, len(tokens)):
        depth += (tokens[i].type in OPENERS) - (tokens[i].type in CLOSERS)
        if depth == 0:
            return i - start
    return len(tokens) - start
