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
    """Balanced tokens with the nesting depth of each token; a bracket has the depth outside the bracket."""

    tokens: list[Token]
    depths: list[int]
    diagnostics: list[Diagnostic] = field(default_factory=list)


def balance(tokens: list[Token]) -> BalancedTokens:
    """Return the tokens with balanced brackets and one `SEP` token between items; never raise.

    Args:
        tokens: All tokens of a text, with newlines, `;` and commas.

    Returns:
        The tokens, the nesting depth of each token, and the diagnostics: E0131 for a bracket without its
        partner, E0138 for brackets nested deeper than `MAX_NESTING`, E0142 for a comma or `;` that follows no
        item.
    """
    diagnostics: list[Diagnostic] = []
    if not _is_balanced(tokens):
        tokens, diagnostics = _Mender(tokens).mend()
    tokens = _drop_too_deep(tokens, diagnostics)
    return _separate_items(tokens, diagnostics)


def _is_balanced(tokens: list[Token]) -> bool:
    """Return whether each closing bracket matches the innermost open bracket, and no bracket stays open."""
    expected_closers: list[str] = []
    for token in tokens:
        if token.type in OPENERS:
            expected_closers.append(_CLOSER[token.type])
        elif token.type in CLOSERS and (not expected_closers or expected_closers.pop() != token.type):
            return False
    return not expected_closers


class _Mender:
    """The repair of unmatched brackets, guided by the indentation; at most one error is reported for each line.

    Inserted and replaced brackets are marked as `mended`: the parser reports no errors of their items, which
    would only be consequences.
    """

    def __init__(self, tokens: list[Token]) -> None:
        """Start the repair of the tokens' brackets."""
        self.tokens = tokens
        self.out: list[Token] = []
        self.stack: list[Token] = []
        self.indents: dict[int, int] = {}
        self.diagnostics: list[Diagnostic] = []
        self.reported: set[int] = {-1}

    def mend(self) -> tuple[list[Token], list[Diagnostic]]:
        """Return the tokens with missing brackets inserted and surplus brackets dropped, and the E0131 diagnostics."""
        line = 0
        for index, token in enumerate(self.tokens):
            if token.type == "NEWLINE":
                self.out.append(token)
                continue
            is_first_of_line = token.span.line != line
            line = token.span.end_line
            if is_first_of_line:
                self.indents[token.span.line] = token.span.column
                self._close_before_new_item(index)
            if token.type in OPENERS:
                self.stack.append(token)
                self.out.append(token)
            elif token.type in CLOSERS:
                self._match_closer(token, is_first_of_line)
            else:
                self.out.append(token)
        # A text without closing quotes contains the closing brackets: only the text is reported.
        swallowed = any(token.type == "TEXT" and token.mended for token in self.tokens)
        self._insert_closers(len(self.stack), None, silent=swallowed)
        return self.out, self.diagnostics

    def _indent(self, opener: Token) -> int:
        """Return the column, from 1, of the first token on the line of an opening bracket."""
        return self.indents.get(opener.span.line, 1)

    def _close_before_new_item(self, index: int) -> None:
        """Close the open brackets that a line ends because it starts a new item.

        These are the innermost open brackets whose own lines are indented at least as deep as the new item. A
        `{` is only ended by a declaration in column 1.

        Args:
            index: The index of the first token of the line.
        """
        token = self.tokens[index]
        next_type = self.tokens[index + 1].type if index + 1 < len(self.tokens) else ""
        starts_item = token.type in _ITEM_WORDS or (
            token.type == "NAME" and next_type in ("NAME", "EQUAL", "PLUS_EQUAL", "LBRACE")
        )
        if not starts_item:
            return
        count = 0
        for opener in reversed(self.stack):
            if token.span.column > self._indent(opener):
                break
            # A `{` is closed only for a declaration in column 1, which belongs to the top level of the file.
            if opener.type == "LBRACE" and not (token.span.column == 1 and next_type == "NAME"):
                break
            count += 1
        self._insert_closers(count, token)

    def _match_closer(self, closer: Token, is_first_of_line: bool) -> None:
        """Match a closing bracket with an open bracket, or report E0131.

        The partner is the innermost open bracket of the same kind, but a `)` or `]` has no partner outside
        the innermost open `{`. Brackets inside the partner are closed first. Without a partner, a `)` or `]`
        directly inside another `(` or `[` is replaced by the bracket that was expected, and any other closing
        bracket is dropped.

        Args:
            closer: The closing bracket.
            is_first_of_line: Whether the closing bracket is the first token of its line.
        """
        if is_first_of_line and closer.type == "RBRACE":
            count = self._count_opened_deeper(closer)
            self._insert_closers(count, closer)
        matching = next(
            (i for i, opener in enumerate(reversed(self.stack)) if _CLOSER[opener.type] == closer.type), None
        )
        if matching is not None and (
            closer.type == "RBRACE"
            or all(opener.type != "LBRACE" for opener in self.stack[len(self.stack) - matching :])
        ):
            self._insert_closers(matching, closer)
            self.stack.pop()
            self.out.append(closer)
        elif self.stack and closer.type != "RBRACE" and self.stack[-1].type != "LBRACE":
            opener = self.stack.pop()
            text = _TEXT[_CLOSER[opener.type]]
            self._report_once_per_line(
                closer.span.line,
                error(
                    "E0131",
                    f"`{opener.text}` is closed by `{closer.text}`",
                    opener.span,
                    "opened here",
                    labels=[Label(closer.span, f"a `{text}` is expected here")],
                    help=f"write `{text}` for `{closer.text}`",
                ),
            )
            self.out.append(Token(_CLOSER[opener.type], text, closer.span, mended=True))
        else:
            self._report_once_per_line(
                closer.span.line,
                error("E0131", f"this `{closer.text}` closes nothing", closer.span, help="delete it"),
            )
            self._mark_last_as_mended()

    def _count_opened_deeper(self, closer: Token) -> int:
        """Return how many open brackets are inside the open `{` whose line has the indentation of a `}`.

        Args:
            closer: The `}`, which is the first token of its line.

        Returns:
            The number of innermost open brackets to close before the `}`; 0 if no open `{` has the
            indentation of the `}`.
        """
        for count, opener in enumerate(reversed(self.stack)):
            if opener.type == "LBRACE" and self._indent(opener) == closer.span.column:
                return count
        return 0

    def _insert_closers(self, count: int, before: Token | None, *, silent: bool = False) -> None:
        """Insert closing brackets for the `count` innermost open brackets; report E0131 once for each line of them.

        Args:
            count: The number of brackets to close.
            before: The token before which the closing brackets go; None for the end of the text.
            silent: Whether nothing is reported.
        """
        for _ in range(count):
            opener = self.stack.pop()
            closer = _CLOSER[opener.type]
            labels = []
            if before is not None:
                reason = (
                    f"`{before.text}` closes an outer bracket"
                    if before.type in CLOSERS
                    else "a new item begins here"
                )
                labels.append(Label(before.span, reason))
            self._report_once_per_line(
                -1 if silent else opener.span.line,
                error(
                    "E0131",
                    f"this `{opener.text}` is never closed",
                    opener.span,
                    "opened here",
                    labels=labels,
                    help=f"write the matching `{_TEXT[closer]}`",
                ),
            )
            index = len(self.out)
            while before is not None and index > 0 and self.out[index - 1].type == "NEWLINE":
                index -= 1
            last = self.out[index - 1].span if index else opener.span
            end = Span(last.path, last.end_line, last.end_column, last.end_line, last.end_column)
            self.out.insert(index, Token(closer, _TEXT[closer], end, mended=True))

    def _report_once_per_line(self, line: int, diagnostic: Diagnostic) -> None:
        """Add a diagnostic if `line` has none yet; a diagnostic of line -1 is always dropped."""
        if line not in self.reported:
            self.reported.add(line)
            self.diagnostics.append(diagnostic)

    def _mark_last_as_mended(self) -> None:
        """Mark the last token as mended, which keeps the parser from reporting consequences in its item."""
        if self.out:
            self.out[-1].mended = True


def _drop_too_deep(tokens: list[Token], diagnostics: list[Diagnostic]) -> list[Token]:
    """Drop the tokens that are nested deeper than `MAX_NESTING` brackets, and report E0138 once.

    The remaining tokens of the same outermost bracket are marked as mended, so the parser reports no
    consequences. E0138 replaces all earlier diagnostics.

    Args:
        tokens: Tokens with balanced brackets.
        diagnostics: The diagnostics so far; changed in place.

    Returns:
        The tokens that remain.
    """
    out: list[Token] = []
    depth = outermost_index = 0
    is_too_deep = False
    for token in tokens:
        if token.type in CLOSERS:
            depth -= 1
        if depth == 0 and token.type in OPENERS:
            outermost_index, is_too_deep = len(out), False
        bracket = token.type in OPENERS or token.type in CLOSERS
        if depth < MAX_NESTING or (depth == MAX_NESTING and not bracket):
            token.mended = token.mended or is_too_deep
            out.append(token)
        elif not is_too_deep:
            is_too_deep = True
            for inside in out[outermost_index:]:
                inside.mended = True
            if not any(diagnostic.code == "E0138" for diagnostic in diagnostics):
                diagnostics[:] = [too_deep(token.span)]
        if token.type in OPENERS:
            depth += 1
    return out


def too_deep(span: Span) -> Diagnostic:
    """Return the error for nesting deeper than `MAX_NESTING` levels (E0138), marked at `span`."""
    return error(
        "E0138",
        f"nested more than {MAX_NESTING} deep",
        span,
        help="look for brackets written twice, or split the expression with `let`",
    )


def _separate_items(tokens: list[Token], diagnostics: list[Diagnostic]) -> BalancedTokens:
    """Return the tokens with one `SEP` token for each run of newlines, `;` and commas between items.

    No `SEP` comes directly after `{`, directly before `}`, after the `:` of a `dense` line, or at the start
    or end of the text. Newlines inside `( )` and `[ ]` are dropped.

    Args:
        tokens: Tokens with balanced brackets.
        diagnostics: The diagnostics so far; E0142 is appended for a comma or `;` that follows no item.
    """
    out: list[Token] = []
    depths: list[int] = []
    stack: list[str] = []
    pending_mark: Token | None = None  # the `,` or `;` since the last item
    after_brace = True
    first_type = ""  # the type of the current item's first token
    for token in tokens:
        kind = token.type
        in_block = not stack or stack[-1] == "LBRACE"
        if kind == "NEWLINE" and first_type == "DENSE" and out[-1].type == "COLON":
            continue
        if in_block and (kind in ("NEWLINE", "SEP") or (kind == "COMMA" and stack)):
            if kind != "NEWLINE" and (pending_mark is not None or (after_brace and not token.mended)):
                diagnostics.append(
                    error("E0142", f"nothing comes before this `{token.text}`", token.span, help="delete it")
                )
            if kind != "NEWLINE":
                pending_mark = token
            if out and out[-1].type != "SEP" and not after_brace:
                out.append(Token("SEP", token.text, token.span, mended=token.mended))
                depths.append(len(stack))
            continue
        if kind == "NEWLINE":
            continue
        if in_block and (after_brace or not out or out[-1].type == "SEP"):
            first_type = kind
        pending_mark, after_brace = None, False
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
