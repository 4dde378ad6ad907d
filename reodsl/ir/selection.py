"""Selections: which of a question's sampled responses become a trace or a pair, or which questions are kept."""

from __future__ import annotations

from typing import Literal

from reodsl.ir.base import IR
from reodsl.ir.expression import Expression
from reodsl.ir.reward import Let


class Choice(IR):
    """The response with the least or the greatest `key` of those that meet `where`, the first of equals, or `each` of them,
    where `key` says nothing."""

    fn: Literal["argmin", "argmax", "each"]
    var: str
    key: Expression
    where: Expression | None = None


class Pick(IR):
    """A trace or pair of a question, or a trace of `each` response: `trace`, or `preferred` and then `rejected`.

    A later choice sees the earlier one by its name, and `where` and `margin` see both. Nothing is picked where a choice
    finds nothing, where both are one response, or where `where` does not hold. `margin` says how much is picked by it.
    """

    later = frozenset({"margin"})
    trace: Choice | None = None
    preferred: Choice | None = None
    rejected: Choice | None = None
    where: Expression | None = None
    margin: Expression | None = None


class Selection(IR):
    """Picks, each made of every question's `group` of responses, or no picks and `keep`, a condition on that group: then
    questions are selected, and not responses. `lets` are evaluated once a question.

    Of everything that is picked, over all questions, the share `drop` with the lowest margins is left out.
    """

    presentation = frozenset({"name"})
    later = frozenset({"drop", "keep"})
    name: str
    lets: tuple[Let, ...] = ()
    picks: tuple[Pick, ...]
    drop: float = 0.0
    keep: Expression | None = None

    @property
    def roles(self) -> tuple[str, ...]:
        """What a pick is made of: a trace, or a preferred and a rejected response; nothing where questions are kept."""
        if self.keep is not None:
            return ()
        return ("preferred", "rejected") if self.picks[0].trace is None else ("trace",)
