"""Parse a source into its tree; after an error go on at the next item, so that one pass reports every error."""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass, replace
from functools import cache, lru_cache
from pathlib import PurePath
from typing import Any

from lark.exceptions import UnexpectedToken
from lark.parsers.lalr_analysis import Shift
from lark.parsers.lalr_interactive_parser import InteractiveParser
from lark.parsers.lalr_parser_state import ParserState

from reodsl.diagnostics.model import Diagnostic, Span, error, note
from reodsl.syntax import tree
from reodsl.syntax.brackets import MAX_NESTING, BalancedTokens, balance, too_deep
from reodsl.syntax.grammar import Rejection, load_grammar
from reodsl.syntax.literals import clean_doc
from reodsl.syntax.mistakes import VALUE_RULES, SyntaxFault, explain
from reodsl.syntax.scanner import MOST_TOKENS, Token, clip_text, escape_warnings, scan
from reodsl.syntax.source import Source
from reodsl.syntax.tree import depth_exceeding

MAX_REPORTED = 100
END = "$END"
Row = dict[str, tuple[Any, Any]]
# States that no tree within the limit of nesting needs: a level takes a few of them.
_DEEPEST = 32 * MAX_NESTING


@dataclass(frozen=True, slots=True)
class ParseResult:
    """The tree of a source, its diagnostics and its comments."""

    module: tree.Module
    """The tree of what could be read: everything, if no diagnostic is an error."""
    diagnostics: tuple[Diagnostic, ...]
    comments: tuple[tree.Comment, ...]
    tokens: int = 0
    """The count of words, signs and comments of the source."""

    @property
    def ok(self) -> bool:
        """Return whether the syntax has no error, so that the tree is the complete file."""
        return not any(diagnostic.severity == "error" for diagnostic in self.diagnostics)


@dataclass(frozen=True, slots=True)
class ExpressionResult:
    """An expression, or None and the errors."""

    expression: tree.Expr | None
    diagnostics: tuple[Diagnostic, ...]


def parse(source: Source, most: int = MOST_TOKENS) -> ParseResult:
    """Parse a file; nothing is raised on any text, and items with an error are left out of the tree.

    Args:
        source: The text and its path.
        most: How many tokens the source may have; a longer source is not read.
    """
    scanned = scan(source, most)
    if scanned.cut:
        # What is missing at the end would make mistakes of what stands before it.
        empty = tree.Module(source.path, None, (), (), source.whole(), None)
        return ParseResult(empty, _sort_diagnostics(scanned.diagnostics, gave_up=True), (), scanned.count)
    balanced = balance(scanned.tokens)
    reader = Reader(balanced, "module", source.whole())
    text, items = reader.run() or (None, ())
    diagnostics = [
        *scanned.diagnostics,
        *balanced.diagnostics,
        *reader.diagnostics,
        *escape_warnings(balanced.tokens),
    ]
    if _is_no_spec(source, len(items), diagnostics):
        empty = tree.Module(source.path, None, (), (), source.whole(), None)
        return ParseResult(empty, (_no_spec(source, diagnostics),), (), scanned.count)
    cut = [d.labels[0].span.line for d in balanced.diagnostics if d.code == "E0138"]
    valid, may_be_deep = [], reader.may_be_deep
    for item in items:
        if any(item.span.line <= line <= item.span.end_line for line in cut):
            # Not what was written any more: whatever else is said of it would only be a consequence.
            continue
        deep = depth_exceeding(item, MAX_NESTING) if may_be_deep else None
        if deep is None:
            valid.append(item)
        elif not any(diagnostic.code == "E0138" for diagnostic in diagnostics):
            diagnostics.append(too_deep(deep))
    diagnostics = _keep_firsts(source, diagnostics)
    module = tree.Module(
        source.path,
        clean_doc(text.payload) if text is not None else None,
        tuple(item for item in valid if isinstance(item, tree.Import)),
        tuple(item for item in valid if not isinstance(item, tree.Import)),
        source.whole(),
        text.span if text is not None else None,
    )
    comments = tuple(scanned.comments)
    return ParseResult(module, _sort_diagnostics(diagnostics, reader.gave_up), comments, scanned.count)


def find_item(text: str, line: int) -> int:
    """Return the line at which the declaration around a line begins: the nearest above that begins with a word."""
    begins = _find_begins(text)
    return begins[max(bisect_right(begins, line) - 1, 0)]


@lru_cache(maxsize=4)
def _find_begins(text: str) -> tuple[int, ...]:
    """Return the numbers of the lines that begin with a word, and of the first line."""
    lines = enumerate(text.split("\n"), 1)
    return tuple(number for number, line in lines if number == 1 or line[:1].isalpha())


def _keep_firsts(source: Source, diagnostics: list[Diagnostic]) -> list[Diagnostic]:
    """Return the mistakes; of a declaration with unbalanced brackets only the first, from which the rest may follow."""

    def item_of(finding: Diagnostic) -> int:
        return find_item(source.text, finding.labels[0].span.line)

    wrong = sorted((d for d in diagnostics if d.severity == "error"), key=lambda d: d.labels[0].span)
    unbalanced = {item_of(d) for d in wrong if d.code == BRACKETS}
    # The last one that is set is the first.
    firsts = {item_of(d): d for d in reversed(wrong)}

    def follows(finding: Diagnostic) -> bool:
        item = item_of(finding)
        first = firsts[item] if item in unbalanced else finding
        # Brackets of different lines are mistakes of their own.
        own = (
            first.code == finding.code == BRACKETS
            and first.labels[0].span.line != finding.labels[0].span.line
        )
        return finding.severity == "error" and finding is not first and not own

    return [d for d in diagnostics if not follows(d)]


BRACKETS = "E0131"


def parse_expression(source: Source) -> ExpressionResult:
    """Parse a text that is an expression: the value of `--set`, or a budget schedule."""
    scanned = scan(source)
    if scanned.cut:
        return ExpressionResult(None, _sort_diagnostics(scanned.diagnostics, gave_up=True))
    balanced = balance([token for token in scanned.tokens if token.type != "NEWLINE"])
    reader = Reader(balanced, "expression", source.whole())
    expression = reader.run()
    diagnostics = [*scanned.diagnostics, *balanced.diagnostics, *reader.diagnostics]
    if expression is not None and reader.may_be_deep:
        deep = depth_exceeding(expression, MAX_NESTING)
        if deep is not None:
            diagnostics.append(too_deep(deep))
    return ExpressionResult(None if diagnostics else expression, _sort_diagnostics(diagnostics))


def _is_no_spec(source: Source, items: int, diagnostics: list[Diagnostic]) -> bool:
    """Return whether a file is no spec, by its name and by more errors than items that can be read."""
    errors = sum(diagnostic.severity == "error" for diagnostic in diagnostics)
    return PurePath(source.path).suffix not in ("", ".reo") and errors > items


def _no_spec(source: Source, diagnostics: list[Diagnostic]) -> Diagnostic:
    first = next(finding for finding in _sort_diagnostics(diagnostics) if finding.severity == "error")
    return error(
        "E0101",
        f"this is not a spec: it is named `*{clip_text(PurePath(source.path).suffix)}`, and little of it can be read as one",
        first.labels[0].span,
        first.message,
        help="give a `.reo` file; if this is one, name it so, and `reodsl check` shows every mistake in it",
    )


def _sort_diagnostics(diagnostics: list[Diagnostic], gave_up: bool = False) -> tuple[Diagnostic, ...]:
    """Return diagnostics in the order of the text, at most `MAX_REPORTED` of them."""
    diagnostics.sort(key=lambda d: (d.labels[0].span.line, d.labels[0].span.column, d.code))
    if len(diagnostics) > MAX_REPORTED:
        more = len(diagnostics) - MAX_REPORTED
        del diagnostics[MAX_REPORTED:]
        span = diagnostics[-1].labels[0].span
        count = "the" if gave_up else more
        diagnostics.append(
            note("N0101", f"{count} further errors are not shown", span, help="mend these first")
        )
    return tuple(diagnostics)


# The rules that `settle` completes.
_WHOLE = VALUE_RULES | {"name", "dots", "any_name", "type", "block", "decl_params"}


def rules_next(row: Row) -> set[str]:
    """List the rules that may begin in a state."""
    return {name for name in row if name.islower()}


def rules_complete(row: Row) -> set[str]:
    """List the rules that may be complete in a state."""
    return {str(rule.origin.name) for action, rule in row.values() if action is not Shift}


def settle(table: dict[int, Row], states: list[int], start: int) -> list[int]:
    """Complete the value, name or list of parameters on top of the stack, down to `start`."""
    states = states.copy()
    while len(states) > start:
        row = table[states[-1]]
        rules = {rule for action, rule in row.values() if action is not Shift}
        if len(rules) != 1 or not rules_complete(row) <= _WHOLE:
            break
        if rules_complete(row) == {"any_name"} and rules_next(row):
            break  # `not` and `let` are names only if nothing else can come of them
        rule = rules.pop()
        if rule.expansion:
            del states[-len(rule.expansion) :]
        states.append(table[states[-1]][str(rule.origin.name)][1])
    return states


@cache
def _symbols() -> dict[int, str]:
    """Return for each state the symbol that leads to it, which is always the same."""
    table = load_grammar().parser.parser._parse_table
    return {
        to: symbol for row in table.states.values() for symbol, (action, to) in row.items() if action is Shift
    }


@dataclass(slots=True)
class _Mark:
    """The parser's stack at the start of an item; recovery goes back to it when the item is wrong."""

    states: list[int]
    values: list[Any]
    start: int
    depth: int


class Reader:
    """Read balanced tokens into the start rule's value; report errors and go on behind the items they are in."""

    def __init__(self, balanced: BalancedTokens, start: str, source_span: Span) -> None:
        self.tokens, self.depths = balanced.tokens, balanced.depths
        self.brackets_broken = any(d.code == BRACKETS for d in balanced.diagnostics)
        self.lark = load_grammar().parse_interactive(start=start)
        self.parser = self.lark.parser_state
        self.marks = [self._mark(-1, 0)]
        self.diagnostics: list[Diagnostic] = []
        last = self.tokens[-1].span if self.tokens else source_span
        end = Span(source_span.path, last.end_line, last.end_column, last.end_line, last.end_column)
        self.end = Token(END, "", end)
        self.items = start == "module"
        self.longest = 0
        self.gave_up = False

    @property
    def may_be_deep(self) -> bool:
        """Return whether the tree may be deeper than the limit, judged by its brackets and its longest item."""
        return max(self.depths, default=0) + self.longest >= MAX_NESTING

    def run(self) -> Any:
        """Read all tokens.

        Returns:
            The value of the start rule; None for an expression with an error.
        """
        index, count = 0, len(self.tokens)
        while len(self.diagnostics) <= MAX_REPORTED:
            token = self.tokens[index] if index < count else self.end
            states = self.parser.state_stack.copy()
            try:
                if len(states) > _DEEPEST:
                    raise Rejection(too_deep(token.span))
                result = self.lark.feed_token(token)  # type: ignore[arg-type]
            except UnexpectedToken:
                self._report(index, explain(self._place(index, states)))
            except Rejection as rejected:
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
        # Nothing more is worth saying, and recovery costs more than reading.
        self.gave_up = True
        return None

    def _note(self, index: int, token: Token) -> None:
        """Mark the place to come back to."""
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
        return _Mark(self.parser.state_stack.copy(), self.parser.value_stack.copy(), index + 1, depth)

    def _measure(self, index: int) -> None:
        self.longest = max(self.longest, index - self.marks[-1].start)

    def _place(self, index: int, states: list[int]) -> SyntaxFault:
        """Return the fault at a token, from the parser's states before it."""
        mark = self.marks[-1]
        table = self.parser.parse_conf.states
        settled = settle(table, states, len(mark.states))
        row = table[settled[-1]]
        # Values are left alone by `accepts`, which asks for states only.
        values: list[Any] = [None] * (len(states) - 1)
        lexer = self.lark.lexer_thread
        before = InteractiveParser(
            self.lark.parser, ParserState(self.parser.parse_conf, lexer, states, values), lexer
        )
        return SyntaxFault(
            tokens=[*self.tokens[mark.start : index + 4], self.end],
            index=index - mark.start,
            in_block=mark.depth > 0,
            alone=not self.items,
            read=" ".join(_symbols()[state] for state in settled[len(mark.states) :]),
            rules=rules_next(row),
            complete=rules_complete(row),
            accepted=before.accepts(),  # type: ignore[no-untyped-call]
        )

    def _report(self, index: int, diagnostic: Diagnostic) -> None:
        """Report an error, unless brackets or characters before it were mended: then it is a consequence."""
        if any(token.mended for token in self.tokens[self.marks[-1].start : index + 1]):
            return
        last = self.diagnostics[-1] if self.diagnostics else diagnostic
        valueless = last.code == "E0140" and last.labels[0].span.line == diagnostic.labels[0].span.line - 1
        if (self.brackets_broken or valueless) and diagnostic.code == "E0139":
            return
        # An `else` goes with the `if` above it, which is no statement either.
        words = {self.tokens[i].type for i in (self.marks[-1].start, index) if i < len(self.tokens)}
        if "ELSE" in words and last.message == "there is no `if` statement":
            return
        self.diagnostics.append(diagnostic)

    def _recover(self, index: int) -> int:
        """Go back to before the item, and return the index of the token behind it, or of its block."""
        mark = self.marks[-1]
        self.parser.state_stack[:] = mark.states
        self.parser.value_stack[:] = mark.values
        while index < len(self.tokens):
            token, depth = self.tokens[index], self.depths[index]
            if depth < mark.depth:
                return index
            next_type = self.tokens[index + 1].type if index + 1 < len(self.tokens) else ""
            if (
                depth == mark.depth
                and token.type == "SEP"
                and not (next_type == "LBRACE" and token.text == "\n")
            ):
                self.marks[-1] = replace(mark, start=index + 1)
                return index + 1
            if depth == mark.depth and token.type == "LBRACE":
                # The head is wrong; a nameless declaration stands in for it, so that its block is still read.
                for _ in range(2):
                    self.lark.feed_token(Token("NAME", "", token.span))  # type: ignore[arg-type]
                return index
            index += 1
        return index
