"""Bound the work of checking a spec, counted in steps, so that the answer is the same on every machine."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from reodsl.diagnostics.model import Diagnostic, Span, error, note

MOST_STEPS = 1_000_000
"""About two microseconds each."""
EDITOR_STEPS = 300_000
"""Steps for an editor, which waits for each answer; the library's largest module takes a seventh of them."""
MOST_ERRORS = 100
"""Errors after which no more is looked for: as many are shown."""
MOST_ARMS = 400
MOST_SEEDS = 256
MOST_CANDIDATES = 2**24
"""Budgets that all greedy schedules of a spec try, those that are picked and those that are not."""

What = Literal["expressions", "lists", "schedules", "stages", "rewards", "names", "arms", "imports"]

_COSTS: dict[What, float] = {
    "expressions": 8,
    "lists": 1,
    "schedules": 1,
    "stages": 90,
    "rewards": 8,
    "names": 0.1,
    "arms": 20,
    "imports": 50,
}
"""Steps that one of each takes: an expression evaluated, a value of a list or a budget of a schedule made or looked at,
a stage completed or checked, a node of a reward typed, a name that a function of a reward may use, an arm, a name
imported."""

_HELP: dict[What, str] = {
    "expressions": "write fewer settings, or fewer stages over the same block",
    "lists": "shorten its lists, or keep them in a file of data",
    "schedules": "take fewer budgets in its schedules",
    "stages": "take fewer stages and arms, or make several studies of it",
    "rewards": "use fewer rewards, or shorter ones",
    "names": "use fewer functions in rewards, or write out what they are",
    "arms": "take fewer arms, or make several studies of it",
    "imports": "import fewer names",
}


class Enough(Exception):
    """The end of checking a spec that has passed a bound, which is among the findings."""


@dataclass(slots=True)
class Spent:
    """The work of checking a spec so far: steps by their purpose, and candidates of greedy schedules.

    There are at most `most` steps. `refused` says why nothing more of the spec is looked at, once a bound was passed.
    """

    most: float = MOST_STEPS
    steps: float = 0
    by: dict[What, float] = field(default_factory=lambda: dict.fromkeys(_COSTS, 0))
    candidates: int = 0
    refused: Diagnostic | None = None

    def add(self, what: What, place: Span, count: int = 1) -> None:
        """Count steps. Raises `Enough` once they are too many."""
        cost = _COSTS[what] * count
        self.steps += cost
        self.by[what] += cost
        if self.steps <= self.most:
            return
        if self.most < MOST_STEPS:
            self.refused = note(
                "N0101",
                f"an editor takes {self.most:,} steps to check a spec, and this one needs more",
                place,
                "`reodsl check` looks at all of it",
            )
            raise Enough
        most = max(self.by, key=lambda each: self.by[each])
        self.refused = error(
            "E0216",
            f"checking this spec takes more than {MOST_STEPS:,} steps, most of them for its {most}",
            place,
            "too large",
            help=_HELP[most],
        )
        raise Enough

    def stop(self, place: Span | None) -> None:
        """Give up after `MOST_ERRORS`: mending those is what helps."""
        self.refused = note("N0101", "the further errors are not shown", place, help="mend these first")
        raise Enough
