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
_DEEPEST = 32 * MAX_NESTING
"""The longest stack of parser states for a tree within the limit of nesting; a level takes a few states."""


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
    """Return the tree of a file with its diagnostics; raise nothing on any text.

    Items with an error are missing from the tree.

    Args:
        source: The text and its path.
        most: The largest number of tokens; of a longer source no item is read.
    """
    scanned = scan(source, most)
    if scanned.cut:
        # Without the end of the text, correct items before it would look wrong.
        empty = tree.Module(source.path, None, (), (), source.whole(), None)
        return ParseResult(empty, _sort_diagnostics(scanned.diagnostics, gave_up=True), (), scanned.count)
    balanced = balance(scanned.tokens)
    reader = Reader(balanced, "module", source.whole())
    doc_token, items = reader.run() or (None, ())
    diagnostics = [
        *scanned.diagnostics,
        *balanced.diagnostics,
        *reader.diagnostics,
        *escape_warnings(balanced.tokens),
    ]
    if _is_not_a_spec(source, len(items), diagnostics):
        empty = tree.Module(source.path, None, (), (), source.whole(), None)
        return ParseResult(empty, (_not_a_spec_error(source, diagnostics),), (), scanned.count)
    cut_lines = [d.labels[0].span.line for d in balanced.diagnostics if d.code == "E0138"]
    valid_items, may_be_deep = [], reader.may_be_deep
    for item in items:
        if any(item.span.line <= line <= item.span.end_line for line in cut_lines):
            # Tokens of this item were dropped, so further errors in it would only be consequences.
            continue
        too_deep_span = depth_exceeding(item, MAX_NESTING) if may_be_deep else None
        if too_deep_span is None:
            valid_items.append(item)
        elif not any(diagnostic.code == "E0138" for diagnostic in diagnostics):
            diagnostics.append(too_deep(too_deep_span))
    diagnostics = _drop_bracket_consequences(source, diagnostics)
    module = tree.Module(
        source.path,
        clean_doc(doc_token.payload) if doc_token is not None else None,
        tuple(item for item in valid_items if isinstance(item, tree.Import)),
        tuple(item for item in valid_items if not isinstance(item, tree.Import)),
        source.whole(),
        doc_token.span if doc_token is not None else None,
    )
    comments = tuple(scanned.comments)
    return ParseResult(module, _sort_diagnostics(diagnostics, reader.gave_up), comments, scanned.count)


def find_item(text: str, line: int) -> int:
    """Return the line at which the declaration around a line begins.

    The declaration begins at the nearest line, at or above `line`, whose first character is a letter.

    Args:
        text: The text of the file.
        line: The line, from 1.
    """
    begins = _find_item_lines(text)
    return begins[max(bisect_right(begins, line) - 1, 0)]


@lru_cache(maxsize=4)
def _find_item_lines(text: str) -> tuple[int, ...]:
    """Return the numbers, from 1, of the first line and of all lines whose first character is a letter."""
    lines = enumerate(text.split("\n"), 1)
    return tuple(number for number, line in lines if number == 1 or line[:1].isalpha())


def _drop_bracket_consequences(source: Source, diagnostics: list[Diagnostic]) -> list[Diagnostic]:
    """Return the diagnostics without errors that may be consequences of unbalanced brackets.

    In a declaration with unbalanced brackets the first error is kept. If it is a bracket error, bracket errors
    on other lines are kept too. Warnings, and errors of other declarations, stay.
    """

    def item_of(finding: Diagnostic) -> int:
        """Return the line at which the declaration of a finding begins."""
        return find_item(source.text, finding.labels[0].span.line)

    errors = sorted((d for d in diagnostics if d.severity == "error"), key=lambda d: d.labels[0].span)
    unbalanced = {item_of(d) for d in errors if d.code == BRACKETS}
    # In reversed order the first error of an item overwrites the later ones.
    first_errors = {item_of(d): d for d in reversed(errors)}

    def follows(finding: Diagnostic) -> bool:
        """Return whether a finding may be a consequence of the first error of its declaration."""
        item = item_of(finding)
        first = first_errors[item] if item in unbalanced else finding
        # Brackets of different lines are mistakes of their own.
        is_separate = (
            first.code == finding.code == BRACKETS
            and first.labels[0].span.line != finding.labels[0].span.line
        )
        return finding.severity == "error" and finding is not first and not is_separate

    return [d for d in diagnostics if not follows(d)]


BRACKETS = "E0131"


def parse_expression(source: Source) -> ExpressionResult:
    """Return the expression that a text is, or the errors; for the value of `--set` or a budget schedule."""
    scanned = scan(source)
    if scanned.cut:
        return ExpressionResult(None, _sort_diagnostics(scanned.diagnostics, gave_up=True))
    balanced = balance([token for token in scanned.tokens if token.type != "NEWLINE"])
    reader = Reader(balanced, "expression", source.whole())
    expression = reader.run()
    diagnostics = [*scanned.diagnostics, *balanced.diagnostics, *reader.diagnostics]
    if expression is not None and reader.may_be_deep:
        too_deep_span = depth_exceeding(expression, MAX_NESTING)
        if too_deep_span is not None:
            diagnostics.append(too_deep(too_deep_span))
    return ExpressionResult(None if diagnostics else expression, _sort_diagnostics(diagnostics))


def _is_not_a_spec(source: Source, items: int, diagnostics: list[Diagnostic]) -> bool:
    """Return whether a file is probably not a spec: its suffix is not `.reo`, and it has more errors than items.

    A path without a suffix counts as a spec.

    Args:
        source: The text and its path.
        items: The number of items that could be read.
        diagnostics: The diagnostics of the text.
    """
    errors = sum(diagnostic.severity == "error" for diagnostic in diagnostics)
    return PurePath(source.path).suffix not in ("", ".reo") and errors > items


def _not_a_spec_error(source: Source, diagnostics: list[Diagnostic]) -> Diagnostic:
    """Return the error that a file is not a spec (E0101), with the file's first syntax error as its label."""
    first = next(finding for finding in _sort_diagnostics(diagnostics) if finding.severity == "error")
    return error(
        "E0101",
        f"this is not a spec: it is named `*{clip_text(PurePath(source.path).suffix)}`, and few lines are like a spec",
        first.labels[0].span,
        first.message,
        help="give a `.reo` file; if this is a spec, name it `*.reo`, and `reodsl check` shows all its mistakes",
    )


def _sort_diagnostics(diagnostics: list[Diagnostic], gave_up: bool = False) -> tuple[Diagnostic, ...]:
    """Return at most `MAX_REPORTED` diagnostics in the order of the text, and a note that counts the others.

    Args:
        diagnostics: The diagnostics; sorted and cut in place.
        gave_up: Whether the parser stopped early, so that the number of further errors is unknown.
    """
    diagnostics.sort(key=lambda d: (d.labels[0].span.line, d.labels[0].span.column, d.code))
    if len(diagnostics) > MAX_REPORTED:
        num_omitted = len(diagnostics) - MAX_REPORTED
        del diagnostics[MAX_REPORTED:]
        span = diagnostics[-1].labels[0].span
        count = "" if gave_up else f"{num_omitted} "
        diagnostics.append(
            note("N0101", f"{count}further errors are not shown", span, help="fix these first")
        )
    return tuple(diagnostics)


_COMPLETED_RULES = VALUE_RULES | {"name", "dots", "any_name", "type", "block", "decl_params"}
"""The rules that `settle` completes."""


def rules_next(row: Row) -> set[str]:
    """Return the names of the grammar rules that may begin in a state of the parser."""
    return {name for name in row if name.islower()}


def rules_complete(row: Row) -> set[str]:
    """Return the names of the grammar rules that may end in a state of the parser."""
    return {str(rule.origin.name) for action, rule in row.values() if action is not Shift}


def settle(table: dict[int, Row], states: list[int], start: int) -> list[int]:
    """Return the parser's stack after reducing the value, name or parameters on its top.

    The parser reduces only when the next token fits. For a message about a token that does not fit, this
    function reduces the stack as long as exactly one rule applies. The stack then says what was read.

    Args:
        table: The rows of the LALR parse table by state.
        states: The stack of states; not changed.
        start: The length of the stack at the start of the item, below which nothing is reduced.
    """
    states = states.copy()
    while len(states) > start:
        row = table[states[-1]]
        rules = {rule for action, rule in row.values() if action is not Shift}
        if len(rules) != 1 or not rules_complete(row) <= _COMPLETED_RULES:
            break
        if rules_complete(row) == {"any_name"} and rules_next(row):
            break  # `not` and `let` are names only if nothing else can come of them
        rule = rules.pop()
        if rule.expansion:
            del states[-len(rule.expansion) :]
        states.append(table[states[-1]][str(rule.origin.name)][1])
    return states


@cache
def _symbols_by_state() -> dict[int, str]:
    """Return for each state of the parser the grammar symbol that it was reached by; in an LALR table there is one."""
    table = load_grammar().parser.parser._parse_table
    return {
        to: symbol for row in table.states.values() for symbol, (action, to) in row.items() if action is Shift
    }


@dataclass(slots=True)
class _ItemStart:
    """The parser's stacks at the start of an item, to which the parser returns after an error in the item."""

    states: list[int]
    values: list[Any]
    start: int
    depth: int


class Reader:
    """The parser of balanced tokens; after an error it goes on behind the item with the error."""

    def __init__(self, balanced: BalancedTokens, start: str, source_span: Span) -> None:
        """Start the parse.

        Args:
            balanced: The tokens.
            start: The rule of the grammar to parse: `module` or `expression`.
            source_span: The span of the text.
        """
        self.tokens, self.depths = balanced.tokens, balanced.depths
        self.brackets_broken = any(d.code == BRACKETS for d in balanced.diagnostics)
        self.lark = load_grammar().parse_interactive(start=start)
        self.parser = self.lark.parser_state
        self.item_starts = [self._item_start(-1, 0)]
        self.diagnostics: list[Diagnostic] = []
        last = self.tokens[-1].span if self.tokens else source_span
        end = Span(source_span.path, last.end_line, last.end_column, last.end_line, last.end_column)
        self.end = Token(END, "", end)
        self.reads_items = start == "module"
        self.longest = 0
        self.gave_up = False

    @property
    def may_be_deep(self) -> bool:
        """Return whether the tree may be deeper than `MAX_NESTING`, judged by its brackets and its longest item."""
        return max(self.depths, default=0) + self.longest >= MAX_NESTING

    def run(self) -> Any:
        """Parse all tokens.

        Returns:
            For a module the pair (token of the docstring or None, items), for an expression its tree. None
            after too many errors, and for an expression with an error.
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
                self._report(index, explain(self._describe_fault(index, states)))
            except Rejection as rejected:
                self._report(index, rejected.diagnostic)
            else:
                if token is self.end:
                    self._update_longest_item(index)
                    return result
                self._save_item_start(index, token)
                index += 1
                continue
            if not self.reads_items:
                return None
            index = self._recover(index)
        self.gave_up = True
        return None

    def _save_item_start(self, index: int, token: Token) -> None:
        """Save the parser's state after a token that starts an item, for `_recover`; do nothing after other tokens."""
        if token.type == "LBRACE":
            self._update_longest_item(index)
            self.item_starts.append(self._item_start(index, self.depths[index] + 1))
        elif token.type == "RBRACE":
            self._update_longest_item(index)
            self.item_starts.pop()
        elif token.type == "SEP":
            self._update_longest_item(index)
            self.item_starts[-1] = self._item_start(index, self.depths[index])

    def _item_start(self, index: int, depth: int) -> _ItemStart:
        """Return the parser's present stacks as the state at the start of the item behind token `index`."""
        return _ItemStart(self.parser.state_stack.copy(), self.parser.value_stack.copy(), index + 1, depth)

    def _update_longest_item(self, index: int) -> None:
        """Update the length, in tokens, of the longest item."""
        self.longest = max(self.longest, index - self.item_starts[-1].start)

    def _describe_fault(self, index: int, states: list[int]) -> SyntaxFault:
        """Return the fault at a token that does not fit.

        Args:
            index: The index of the token.
            states: The parser's stack of states before the token.
        """
        mark = self.item_starts[-1]
        table = self.parser.parse_conf.states
        settled = settle(table, states, len(mark.states))
        row = table[settled[-1]]
        # `accepts` reads only the states, so empty values do.
        values: list[Any] = [None] * (len(states) - 1)
        lexer = self.lark.lexer_thread
        parser_before = InteractiveParser(
            self.lark.parser, ParserState(self.parser.parse_conf, lexer, states, values), lexer
        )
        return SyntaxFault(
            tokens=[*self.tokens[mark.start : index + 4], self.end],
            index=index - mark.start,
            in_block=mark.depth > 0,
            alone=not self.reads_items,
            read=" ".join(_symbols_by_state()[state] for state in settled[len(mark.states) :]),
            rules=rules_next(row),
            complete=rules_complete(row),
            accepted=parser_before.accepts(),  # type: ignore[no-untyped-call]
        )

    def _report(self, index: int, diagnostic: Diagnostic) -> None:
        """Add an error, unless it is probably a consequence of an earlier error.

        Three kinds of errors are left out: an error behind a mended token in the same item, E0139 after broken
        brackets or after a missing value on the line above, and an `else` after an `if` that was reported.
        """
        if any(token.mended for token in self.tokens[self.item_starts[-1].start : index + 1]):
            return
        last = self.diagnostics[-1] if self.diagnostics else diagnostic
        is_after_fault = (
            last.code == "E0140" and last.labels[0].span.line == diagnostic.labels[0].span.line - 1
        )
        if (self.brackets_broken or is_after_fault) and diagnostic.code == "E0139":
            return
        # An `else` belongs to the `if` above it, which was reported.
        words = {self.tokens[i].type for i in (self.item_starts[-1].start, index) if i < len(self.tokens)}
        if "ELSE" in words and last.message == "there is no `if` statement":
            return
        self.diagnostics.append(diagnostic)

    def _recover(self, index: int) -> int:
        """Restore the state before the item with an error, and return the index of the token to go on with.

        Parsing goes on at the first token behind the item, or at the `}` of the block around the item. If the
        error is in the head of an item with a block, parsing goes on at the `{`, so the block is still read.
        """
        item_start = self.item_starts[-1]
        self.parser.state_stack[:] = item_start.states
        self.parser.value_stack[:] = item_start.values
        while index < len(self.tokens):
            token, depth = self.tokens[index], self.depths[index]
            if depth < item_start.depth:
                return index
            next_type = self.tokens[index + 1].type if index + 1 < len(self.tokens) else ""
            if (
                depth == item_start.depth
                and token.type == "SEP"
                and not (next_type == "LBRACE" and token.text == "\n")
            ):
                self.item_starts[-1] = replace(item_start, start=index + 1)
                return index + 1
            if depth == item_start.depth and token.type == "LBRACE":
                # Only the head is wrong: a declaration without a name replaces it, so that the block is read.
                for _ in range(2):
                    self.lark.feed_token(Token("NAME", "", token.span))  # type: ignore[arg-type]
                return index
            index += 1
        return index
