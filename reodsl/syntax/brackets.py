"""Balance brackets and mend those that do not match; put one SEP between items."""

from __future__ import annotations

from dataclasses import dataclass, field

from reodsl.diagnostics.model import Diagnostic, Label, Span, error
from reodsl.syntax.scanner import CLOSERS, OPENERS, Token

MAX_NESTING = 64

_CLOSER = {"LPAR": "RPAR", "LSQB": "RSQB", "LBRACE": "RBRACE"}
_TEXT = {"RPAR": ")", "RSQB": "]", "RBRACE": "}"}
_ITEM_WORDS = frozenset({"FROM", "PARAM", "LET", "DENSE"})


@dataclass(frozen=True, slots=True)
class BalancedTokens:
    """Balanced tokens and the depth of each; a bracket has the depth outside it."""

    tokens: list[Token]
    depths: list[int]
    diagnostics: list[Diagnostic] = field(default_factory=list)


def balance(tokens: list[Token]) -> BalancedTokens:
    """Balance brackets, at most `MAX_NESTING` deep, and separate items. Never raises (E0131, E0131, E0138)."""
    diagnostics: list[Diagnostic] = []
    if not _is_balanced(tokens):
        tokens, diagnostics = _Mender(tokens).mend()
    tokens = _prune(tokens, diagnostics)
    return _separate(tokens, diagnostics)


def _is_balanced(tokens: list[Token]) -> bool:
    stack: list[str] = []
    for token in tokens:
        if token.type in OPENERS:
            stack.append(_CLOSER[token.type])
        elif token.type in CLOSERS and (not stack or stack.pop() != token.type):
            return False
    return not stack


class _Mender:
    """The repair of brackets that do not match, guided by the indentation; each line is reported once."""

    def __init__(self, tokens: list[Token]) -> None:
        self.tokens = tokens
        self.out: list[Token] = []
        self.stack: list[Token] = []
        self.indents: dict[int, int] = {}
        self.diagnostics: list[Diagnostic] = []
        self.reported: set[int] = {-1}

    def mend(self) -> tuple[list[Token], list[Diagnostic]]:
        line = 0
        for index, token in enumerate(self.tokens):
            if token.type == "NEWLINE":
                self.out.append(token)
                continue
            first = token.span.line != line
            line = token.span.end_line
            if first:
                self.indents[token.span.line] = token.span.column
                self._end_what_this_line_cannot_be_in(index)
            if token.type in OPENERS:
                self.stack.append(token)
                self.out.append(token)
            elif token.type in CLOSERS:
                self._close(token, first)
            else:
                self.out.append(token)
        # A text that runs to the end of the file has swallowed the closing brackets: it alone is the mistake.
        swallowed = any(token.type == "TEXT" and token.mended for token in self.tokens)
        self._end(len(self.stack), None, silent=swallowed)
        return self.out, self.diagnostics

    def _indent(self, opener: Token) -> int:
        return self.indents.get(opener.span.line, 1)

    def _end_what_this_line_cannot_be_in(self, index: int) -> None:
        """Close brackets whose own line is indented at least as deep as a new item."""
        token = self.tokens[index]
        following = self.tokens[index + 1].type if index + 1 < len(self.tokens) else ""
        starts_item = token.type in _ITEM_WORDS or (
            token.type == "NAME" and following in ("NAME", "EQUAL", "PLUS_EQUAL", "LBRACE")
        )
        if not starts_item:
            return
        count = 0
        for opener in reversed(self.stack):
            if token.span.column > self._indent(opener):
                break
            # A declaration at the left edge is in no block, unless all of the block is written that way.
            if opener.type == "LBRACE" and not (token.span.column == 1 and following == "NAME"):
                break
            count += 1
        self._end(count, token)

    def _close(self, closer: Token, first: bool) -> None:
        """Match a closing bracket with the innermost opening bracket of its kind, or report it."""
        if first and closer.type == "RBRACE":
            count = self._opened_deeper(closer)
            self._end(count, closer)
        matching = next(
            (i for i, opener in enumerate(reversed(self.stack)) if _CLOSER[opener.type] == closer.type), None
        )
        if matching is not None and (
            closer.type == "RBRACE"
            or all(opener.type != "LBRACE" for opener in self.stack[len(self.stack) - matching :])
        ):
            self._end(matching, closer)
            self.stack.pop()
            self.out.append(closer)
        elif self.stack and closer.type != "RBRACE" and self.stack[-1].type != "LBRACE":
            opener = self.stack.pop()
            text = _TEXT[_CLOSER[opener.type]]
            self._report(
                closer.span.line,
                error(
                    "E0131",
                    f"`{opener.text}` is closed by `{closer.text}`",
                    opener.span,
                    "opened here",
                    labels=[Label(closer.span, f"a `{text}` is wanted here")],
                    help=f"write `{text}` for `{closer.text}`",
                ),
            )
            self.out.append(Token(_CLOSER[opener.type], text, closer.span, mended=True))
        else:
            self._report(
                closer.span.line,
                error("E0131", f"this `{closer.text}` closes nothing", closer.span, help="delete it"),
            )
            self._taint()

    def _opened_deeper(self, closer: Token) -> int:
        """Count the brackets, opened on deeper lines, that a `}` at the start of its line leaves open."""
        for count, opener in enumerate(reversed(self.stack)):
            if opener.type == "LBRACE" and self._indent(opener) == closer.span.column:
                return count
        return 0

    def _end(self, count: int, before: Token | None, *, silent: bool = False) -> None:
        """Close the `count` innermost brackets that the text leaves open, before the token `before`."""
        for _ in range(count):
            opener = self.stack.pop()
            closer = _CLOSER[opener.type]
            labels = []
            if before is not None:
                reason = (
                    f"`{before.text}` closes an outer one"
                    if before.type in CLOSERS
                    else "a new item begins here"
                )
                labels.append(Label(before.span, reason))
            self._report(
                -1 if silent else opener.span.line,
                error(
                    "E0131",
                    f"this `{opener.text}` is never closed",
                    opener.span,
                    "opened here",
                    labels=labels,
                    help=f"write the `{_TEXT[closer]}` that belongs to it",
                ),
            )
            index = len(self.out)
            while before is not None and index > 0 and self.out[index - 1].type == "NEWLINE":
                index -= 1
            last = self.out[index - 1].span if index else opener.span
            end = Span(last.path, last.end_line, last.end_column, last.end_line, last.end_column)
            self.out.insert(index, Token(closer, _TEXT[closer], end, mended=True))

    def _report(self, line: int, diagnostic: Diagnostic) -> None:
        if line not in self.reported:
            self.reported.add(line)
            self.diagnostics.append(diagnostic)

    def _taint(self) -> None:
        """Mark the last token as mended, so that no error follows from it."""
        if self.out:
            self.out[-1].mended = True


def _prune(tokens: list[Token], diagnostics: list[Diagnostic]) -> list[Token]:
    """Drop tokens deeper than `MAX_NESTING` brackets, with a single report.

    Brackets piled up are one mistake: everything in the outermost of them counts as mended.
    """
    out: list[Token] = []
    depth = outermost = 0
    piled = False
    for token in tokens:
        if token.type in CLOSERS:
            depth -= 1
        if depth == 0 and token.type in OPENERS:
            outermost, piled = len(out), False
        bracket = token.type in OPENERS or token.type in CLOSERS
        if depth < MAX_NESTING or (depth == MAX_NESTING and not bracket):
            token.mended = token.mended or piled
            out.append(token)
        elif not piled:
            piled = True
            for inside in out[outermost:]:
                inside.mended = True
            if not any(diagnostic.code == "E0138" for diagnostic in diagnostics):
                diagnostics[:] = [too_deep(token.span)]
        if token.type in OPENERS:
            depth += 1
    return out


def too_deep(span: Span) -> Diagnostic:
    """Report nesting that goes too deep (E0138)."""
    return error(
        "E0138",
        f"nested more than {MAX_NESTING} deep",
        span,
        help="look for brackets written twice, or split the expression with `let`",
    )


def _separate(tokens: list[Token], diagnostics: list[Diagnostic]) -> BalancedTokens:
    """Turn newlines, `;` and commas between items into a single SEP.

    No SEP stands beside a brace, behind the `:` of a `dense`, at the start or at the end.
    """
    out: list[Token] = []
    depths: list[int] = []
    stack: list[str] = []
    mark: Token | None = None  # the `,` or `;` since the last item
    after_brace = True
    first = ""  # what the item at hand begins with
    for token in tokens:
        kind = token.type
        in_block = not stack or stack[-1] == "LBRACE"
        if kind == "NEWLINE" and first == "DENSE" and out[-1].type == "COLON":
            continue
        if in_block and (kind in ("NEWLINE", "SEP") or (kind == "COMMA" and stack)):
            if kind != "NEWLINE" and (mark is not None or (after_brace and not token.mended)):
                diagnostics.append(
                    error("E0142", f"nothing comes before this `{token.text}`", token.span, help="delete it")
                )
            if kind != "NEWLINE":
                mark = token
            if out and out[-1].type != "SEP" and not after_brace:
                out.append(Token("SEP", token.text, token.span, mended=token.mended))
                depths.append(len(stack))
            continue
        if kind == "NEWLINE":
            continue
        if in_block and (after_brace or not out or out[-1].type == "SEP"):
            first = kind
        mark, after_brace = None, False
        if kind in CLOSERS:
            if out and out[-1].type == "SEP":
                out.pop()
                depths.pop()
            stack.pop()
        out.append(token)
        depths.append(len(stack))
        if kind in OPENERS:
            stack.append(kind)
            after_brace = kind == "LBRACE"
    if out and out[-1].type == "SEP":
        out.pop()
        depths.pop()
    return BalancedTokens(out, depths, diagnostics)
