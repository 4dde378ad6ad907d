"""Selections: which of a question's sampled responses become a trace, or a pair of preferred and rejected ones."""

from __future__ import annotations

from typing import Literal

from reodsl.ir.base import IR
from reodsl.ir.expression import Expression
from reodsl.ir.reward import Let


class Choice(IR):
    """The response with the least or the greatest `key` among those that meet `where`; the first of equals."""

    fn: Literal["argmin", "argmax"]
    var: str
    key: Expression
    where: Expression | None = None


class Pick(IR):
    """At most one trace or pair of a question: `trace`, or `preferred` and then `rejected`.

    A later choice sees the earlier one by its name, and `where` sees both. Nothing is picked where a choice finds
    nothing, where both are one response, or where `where` does not hold.
    """

    trace: Choice | None = None
    preferred: Choice | None = None
    rejected: Choice | None = None
    where: Expression | None = None


class Selection(IR):
    """Picks, each made of every question's `group` of responses. `lets` are evaluated once a question."""

    presentation = frozenset({"name"})
    name: str
    lets: tuple[Let, ...] = ()
    picks: tuple[Pick, ...]

    @property
    def pairs(self) -> bool:
        """Whether it gives pairs rather than traces."""
        return self.picks[0].trace is None
