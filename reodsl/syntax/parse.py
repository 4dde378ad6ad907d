"""A source to its tree: every independent error in one pass, going on at the next item after each."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from lark.exceptions import UnexpectedToken
from lark.parsers.lalr_analysis import Shift

from reodsl.diagnostics.model import Diagnostic, Span, note
from reodsl.syntax import tree
from reodsl.syntax.brackets import MAX_NESTING, Laid, lay_out, too_deep
from reodsl.syntax.build import Rejected
from reodsl.syntax.grammar import parser
from reodsl.syntax.literals import clean_doc
from reodsl.syntax.messages import explain
from reodsl.syntax.place import Place
from reodsl.syntax.source import Source
from reodsl.syntax.tokens import Tok, escape_warnings, lex
from reodsl.syntax.walk import depth_exceeding

MAX_REPORTED = 100


@dataclass(frozen=True, slots=True)
class ParseResult:
    """The tree of what could be read (all of it when no diagnostic is an error), the diagnostics, the comments."""

    module: tree.Module
    diagnostics: tuple[Diagnostic, ...]
    comments: tuple[tree.Comment, ...]

    @property
    def ok(self) -> bool:
        """True when nothing is wrong with the syntax, so that the tree is the whole file."""
        return not any(diagnostic.severity == "error" for diagnostic in self.diagnostics)


@dataclass(frozen=True, slots=True)
class ExpressionResult:
    """One expression, or None and why not."""

    expression: tree.Expr | None
    diagnostics: tuple[Diagnostic, ...]


def parse(source: Source) -> ParseResult:
    """The tree of a file. Never raises on any text; items with an error in them are left out of the tree."""
    lexed = lex(source)
    laid = lay_out(lexed.tokens)
    read = _Reader(laid, "module", source.whole())
    found = read.run()
    text, items = found if found is not None else (None, ())
    diagnostics = [*lexed.diagnostics, *laid.diagnostics, *read.diagnostics, *escape_warnings(laid.tokens)]
    kept = []
    for item in items:
        deep = depth_exceeding(item, MAX_NESTING) if read.may_be_deep else None
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
    return ParseResult(module, _in_order(diagnostics), tuple(lexed.comments))


def parse_expression(source: Source) -> ExpressionResult:
    """The tree of a text that is one expression, such as the value of `--set` or a budget schedule."""
    lexed = lex(source)
    laid = lay_out([token for token in lexed.tokens if token.type != "NEWLINE"])
    read = _Reader(laid, "expression", source.whole())
    expression = read.run()
    diagnostics = [*lexed.diagnostics, *laid.diagnostics, *read.diagnostics]
    if expression is not None and read.may_be_deep:
        deep = depth_exceeding(expression, MAX_NESTING)
        if deep is not None:
            diagnostics.append(too_deep(deep))
    return ExpressionResult(None if diagnostics else expression, _in_order(diagnostics))


def _in_order(diagnostics: list[Diagnostic]) -> tuple[Diagnostic, ...]:
    diagnostics.sort(key=lambda d: (d.labels[0].span.line, d.labels[0].span.column, d.code))
    if len(diagnostics) > MAX_REPORTED:
        more = len(diagnostics) - MAX_REPORTED
        del diagnostics[MAX_REPORTED:]
        place = diagnostics[-1].labels[0].span
        diagnostics.append(
            note("N0101", f"{more} further errors are not shown", place, help="mend these first")
        )
    return tuple(diagnostics)


@dataclass(slots=True)
class _Mark:
    """The parser's state at the start of an item, to come back to when the item is wrong."""

    states: list[Any]
    values: list[Any]
    start: int
    depth: int


class _Reader:
    """Feeds tokens to lark's LALR parser; on an error reports it, drops the item and goes on behind it."""

    def __init__(self, laid: Laid, start: str, whole: Span) -> None:
        self.tokens, self.depths = laid.tokens, laid.depths
        self.brackets_broken = any(d.code in ("E0131", "E0132") for d in laid.diagnostics)
        # lark's own tokens are text with a place; ours carry a span, and the table only looks at the type.
        self.state: Any = parser().parse_interactive("", start=start).parser_state
        self.marks = [_Mark(list(self.state.state_stack), [], 0, 0)]
        self.diagnostics: list[Diagnostic] = []
        last = self.tokens[-1].span if self.tokens else whole
        end = Span(whole.path, last.end_line, last.end_column, last.end_line, last.end_column)
        self.end = Tok("$END", "", end)
        self.items = start == "module"
        self.longest = 0

    @property
    def may_be_deep(self) -> bool:
        """Whether the tree could be deeper than the limit: brackets and the longest item without them say."""
        return max(self.depths, default=0) + self.longest >= MAX_NESTING

    def run(self) -> Any:
        """What the start rule gives, or None for an expression with an error."""
        index, count = 0, len(self.tokens)
        while True:
            token = self.tokens[index] if index < count else self.end
            states = self.state.state_stack.copy()
            try:
                result = self.state.feed_token(token, token is self.end)
            except UnexpectedToken:
                self._report(index, explain(self._place(index, self._fitting(states))))
            except Rejected as rejected:
                self._report(index, rejected.diagnostic)
            else:
                if token is self.end:
                    self._measure(index)
                    return result
                self._note(index, token)
                index += 1
                continue
            if not self.items:
                return None
            index = self._recover(index)

    def _note(self, index: int, token: Tok) -> None:
        """Keep the place to come back to."""
        if token.type == "LBRACE":
            self._measure(index)
            self.marks.append(self._mark(index, self.depths[index] + 1))
        elif token.type == "RBRACE":
            self._measure(index)
            self.marks.pop()
        elif token.type == "SEP":
            self._measure(index)
            self.marks[-1] = self._mark(index, self.depths[index])

    def _mark(self, index: int, depth: int) -> _Mark:
        return _Mark(list(self.state.state_stack), list(self.state.value_stack), index + 1, depth)

    def _measure(self, index: int) -> None:
        self.longest = max(self.longest, index - self.marks[-1].start)

    def _place(self, index: int, expected: set[str]) -> Place:
        mark = self.marks[-1]
        tokens = [*self.tokens[mark.start : index + 4], self.end]
        return Place(tokens, index - mark.start, mark.depth > 0, expected, not self.items)

    def _fitting(self, states: list[Any]) -> set[str]:
        """The token types that can follow. The table's row alone has too many: LALR shares rows between contexts."""
        table = self.state.parse_conf.states
        return {kind for kind in table[states[-1]] if kind.isupper() and _shifts(table, states.copy(), kind)}

    def _report(self, index: int, diagnostic: Diagnostic) -> None:
        """Not where brackets or characters were mended before: the error would only be a consequence."""
        if any(token.mended for token in self.tokens[self.marks[-1].start : index + 1]):
            return
        if self.brackets_broken and diagnostic.code == "E0139":
            return
        self.diagnostics.append(diagnostic)

    def _recover(self, index: int) -> int:
        """Go back to before the item and on behind it, or into its block; the index to go on at."""
        mark = self.marks[-1]
        self.state.state_stack[:] = mark.states
        self.state.value_stack[:] = mark.values
        while index < len(self.tokens):
            token, depth = self.tokens[index], self.depths[index]
            if depth < mark.depth:
                return index
            behind = self.tokens[index + 1].type if index + 1 < len(self.tokens) else ""
            if (
                depth == mark.depth
                and token.type == "SEP"
                and not (behind == "LBRACE" and token.text == "\n")
            ):
                self.marks[-1] = replace(mark, start=index + 1)
                return index + 1
            if depth == mark.depth and token.type == "LBRACE":
                # The head is wrong; a nameless declaration stands in for it, so that its block is still read.
                for _ in range(2):
                    self.state.feed_token(Tok("NAME", "", token.span))
                return index
            index += 1
        return index


def _shifts(table: Any, states: list[Any], kind: str) -> bool:
    """Whether the parser, in these states, reads a token of this type."""
    while True:
        step = table[states[-1]].get(kind)
        if step is None:
            return False
        action, rule = step
        if action is Shift:
            return True
        if rule.expansion:
            del states[-len(rule.expansion) :]
        target = table[states[-1]][rule.origin.name][1]
        states.append(target)
        if kind == "$END" and rule.origin.name.startswith("$root"):
            return True
