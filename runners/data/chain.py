"""Chains of additions and subtractions, from a generated task or an expression, for worked solutions."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

_EXPRESSION = re.compile(r"-?[0-9]{1,100}( [+-] -?[0-9]{1,100}){1,1000}")


@dataclass(frozen=True, slots=True)
class Operation:
    """One operation: its name, how it is written, and what it adds."""

    label: str
    words: str
    amount: int


@dataclass(frozen=True, slots=True)
class Chain:
    """A start value and operations applied left to right; with a `modulus` values wrap and have words of their own."""

    start: int
    steps: tuple[Operation, ...]
    modulus: int | None = None
    values: Sequence[str] = ()

    def word(self, value: int) -> str:
        """Return how a value is written: its word, or its digits."""
        return self.values[value] if self.values else str(value)

    def after(self, value: int, amount: int) -> int:
        """Return the value that adding `amount` leads to."""
        return value + amount if self.modulus is None else (value + amount) % self.modulus

    @property
    def end(self) -> int:
        """The value after all operations."""
        value = self.start
        for step in self.steps:
            value = self.after(value, step.amount)
        return value


def chain_of_expression(text: str) -> Chain | None:
    """Return the chain of an expression such as `12 + 7 - -3`, its steps named by number; None for any other text."""
    if not _EXPRESSION.fullmatch(text):
        return None
    start, *rest = text.split(" ")
    pairs = zip(rest[::2], rest[1::2], strict=True)
    return Chain(
        int(start),
        tuple(
            Operation(str(number), f"{sign} {digits}", int(digits) if sign == "+" else -int(digits))
            for number, (sign, digits) in enumerate(pairs, start=1)
        ),
    )
