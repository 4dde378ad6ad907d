"""Balanced tokens to what the start rule gives, past every error: report it, drop the item, go on at the next."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from reodsl.diagnostics.model import Diagnostic, Span
from reodsl.syntax.brackets import MAX_NESTING, Laid, too_deep
from reodsl.syntax.build import Rejected
from reodsl.syntax.lalr import END, Automaton, Unfit
from reodsl.syntax.messages import explain
from reodsl.syntax.place import Place
from reodsl.syntax.tokens import Tok

MAX_REPORTED = 100
# States that no tree within the limit of nesting needs: a level takes a few of them.
_DEEPEST = 32 * MAX_NESTING


@dataclass(slots=True)
class _Mark:
    """The parser's state at the start of an item, to come back to when the item is wrong."""

    states: list[int]
    values: list[Any]
    start: int
    depth: int


class Reader:
    """Feeds tokens to the automaton; on an error reports it, drops the item and goes on behind it."""

    def __init__(self, laid: Laid, start: str, whole: Span) -> None:
        self.tokens, self.depths = laid.tokens, laid.depths
        self.brackets_broken = any(d.code in ("E0131", "E0132") for d in laid.diagnostics)
        self.automaton = Automaton(start)
        self.marks = [self._mark(-1, 0)]
        self.diagnostics: list[Diagnostic] = []
        last = self.tokens[-1].span if self.tokens else whole
        end = Span(whole.path, last.end_line, last.end_column, last.end_line, last.end_column)
        self.end = Tok(END, "", end)
        self.items = start == "module"
        self.longest = 0
        self.gave_up = False

    @property
    def may_be_deep(self) -> bool:
        """Whether the tree could be deeper than the limit: brackets and the longest item without them say."""
        return max(self.depths, default=0) + self.longest >= MAX_NESTING

    def run(self) -> Any:
        """What the start rule gives, or None for an expression with an error."""
        index, count = 0, len(self.tokens)
        while len(self.diagnostics) <= MAX_REPORTED:
            token = self.tokens[index] if index < count else self.end
            states = self.automaton.states.copy()
            try:
                if len(states) > _DEEPEST:
                    raise Rejected(too_deep(token.span))
                result = self.automaton.feed(token)
            except Unfit:
                self._report(index, explain(self._place(index, self.automaton.fitting(states))))
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
        # Nothing more is worth saying, and recovery costs more than reading.
        self.gave_up = True
        return None

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
        return _Mark(self.automaton.states.copy(), self.automaton.values.copy(), index + 1, depth)

    def _measure(self, index: int) -> None:
        self.longest = max(self.longest, index - self.marks[-1].start)

    def _place(self, index: int, expected: set[str]) -> Place:
        mark = self.marks[-1]
        tokens = [*self.tokens[mark.start : index + 4], self.end]
        return Place(tokens, index - mark.start, mark.depth > 0, expected, not self.items)

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
        self.automaton.states[:] = mark.states
        self.automaton.values[:] = mark.values
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
                    self.automaton.feed(Tok("NAME", "", token.span))
                return index
            index += 1
        return index
