"""Bound the work of checking a spec, counted in steps, so that the answer is the same on every machine."""

from __future__ import annotations

from dataclasses import dataclass

from reodsl.diagnostics.model import Diagnostic, Span, error, note

MOST_STEPS = 1_000_000
"""The most steps of work on a spec; a step takes about two microseconds."""
EDITOR_STEPS = 120_000
"""Steps for an editor, which waits for each answer; the library's largest module takes a third of them."""
MOST_ERRORS = 100
"""The number of errors after which the check of a spec ends."""
MOST_ARMS = 400
MOST_SEEDS = 256
MOST_CANDIDATES = 2**24
"""The most budgets that all greedy schedules of a spec may try."""

EXPRESSION_STEPS, STAGE_STEPS, IMPORT_STEPS, NAME_STEPS = 8, 90, 50, 0.1
"""The steps of work charged for an expression that is evaluated or a node of a reward that is typed, for a stage that is
completed or checked, for an imported name, and for a name that a function of a reward may use. Each value of a list and each
budget of a schedule is one step."""


class LimitReached(Exception):
    """The exception that ends the check of a spec after too much work or too many errors; `refusal` is the finding."""


@dataclass(slots=True)
class WorkLimit:
    """The work on a spec so far, in steps, and its limit."""

    most: float = MOST_STEPS
    """Steps that checking may take."""
    steps: float = 0
    """Steps taken."""
    candidates: int = 0
    """Budgets that greedy schedules have tried."""
    refusal: Diagnostic | None = None
    """The reason why nothing more of the spec is checked, once a bound was passed."""

    def charge(self, span: Span, steps: float) -> None:
        """Count steps of work on a spec.

        Args:
            span: The source that takes the steps, for the message.
            steps: The number of further steps.

        Raises:
            LimitReached: The total is more than `most`. `refusal` then has the finding: a note if the limit is
                an editor's, else the error E0216.
        """
        self.steps += steps
        if self.steps <= self.most:
            return
        self.refusal = (
            note(
                "N0101",
                f"an editor checks a spec in at most {self.most:,} steps, and this spec needs more",
                span,
                "`reodsl check` looks at all of it",
            )
            if self.most < MOST_STEPS
            else error(
                "E0216",
                f"checking this spec takes more than {MOST_STEPS:,} steps",
                span,
                "too large",
                help="take fewer or shorter lists, schedules, stages, arms and rewards, or make several studies of it",
            )
        )
        raise LimitReached

    def stop(self, span: Span | None) -> None:
        """End the check after `MOST_ERRORS` errors, with the note N0101 in `refusal`.

        Raises:
            LimitReached: Always.
        """
        self.refusal = note("N0101", "further errors are not shown", span, help="fix these first")
        raise LimitReached
