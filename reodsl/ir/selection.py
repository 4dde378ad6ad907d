"""Selections: which of a question's sampled responses become a trace or a pair, or which questions are kept."""

from __future__ import annotations

from typing import Literal

from reodsl.ir.base import IR
from reodsl.ir.expression import Expression
from reodsl.ir.reward import Let


class Choice(IR):
    """A response with the least or the greatest `key` of those that meet `where`, the first of equals.

    With `each` it is all of them, and `key` has no effect.
    """

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
    """Picks from every question's `group` of responses; or no picks and `keep`, a condition on the questions to select.

    `lets` are evaluated once a question. Of all picks, over all questions, the share `drop` with the lowest margins is
    omitted.
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
        """Return the parts of a pick: a trace, or a preferred and a rejected response; none if questions are kept."""
        if self.keep is not None:
            return ()
        return ("preferred", "rejected") if self.picks[0].trace is None else ("trace",)
