"""The LALR(1) automaton over the tables that lark made: tokens in, one at a time; the start rule's value out."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

from reodsl.syntax.build import Builder
from reodsl.syntax.tables import tables
from reodsl.syntax.tokens import Tok

END = "$END"


class Unfit(Exception):
    """The grammar has no place for the token."""


@cache
def _methods() -> list[Callable[[list[Any]], Any] | None]:
    """For each rule what makes its value; None where a child passes through."""
    builder = Builder()
    return [getattr(builder, method) if method else None for _, _, method in tables().rules]


class Automaton:
    """A parse on its way: the stack of states, and the value made for each of them but the first."""

    def __init__(self, start: str) -> None:
        self._steps, self._rules = tables().steps, tables().rules
        self._methods = _methods()
        first, self._last = tables().starts[start]
        self.states = [first]
        self.values: list[Any] = []

    def feed(self, token: Tok) -> Any:
        """Read a token; the start rule's value after `END`. Raises Unfit, and what the rules' methods raise."""
        kind, states, values = token.type, self.states, self.values
        while True:
            step = self._steps[states[-1]].get(kind)
            if step is None:
                raise Unfit
            if step >= 0:
                states.append(step)
                values.append(token)
                return None
            origin, length, _ = self._rules[~step]
            method = self._methods[~step]
            if length:
                below = values[-length:]
                del states[-length:], values[-length:]
            else:
                below = []
            states.append(self._steps[states[-1]][origin])
            values.append(below[0] if method is None else method(below))
            if kind == END and states[-1] == self._last:
                return values[-1]

    def fitting(self, states: list[int]) -> set[str]:
        """The types of token that can be read in these states.

        The row of the table has more: LALR shares rows between contexts, and finds out after some reductions.
        """
        return {
            kind for kind in self._steps[states[-1]] if kind.isupper() and self._reads(states.copy(), kind)
        }

    def _reads(self, states: list[int], kind: str) -> bool:
        while True:
            step = self._steps[states[-1]].get(kind)
            if step is None or step >= 0:
                return step is not None
            origin, length, _ = self._rules[~step]
            if length:
                del states[-length:]
            states.append(self._steps[states[-1]][origin])
            if kind == END and states[-1] == self._last:
                return True
