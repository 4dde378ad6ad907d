"""What happens to tasks while a graph is executed, as values that a display or a log reads."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from reodsl.diagnostics import Diagnostic
from reodsl.graph.job import Progress

EventKind = Literal["reused", "started", "progress", "waiting", "finished", "failed", "blocked", "rebuilding"]


@dataclass(frozen=True, slots=True)
class Event:
    """One thing that happened to task `task`.

    `waiting`: another run is computing the same result. `blocked`: a task that it reads failed. `rebuilding`: its
    stored result is damaged. `seconds` is how long a finished task took; `diagnostics` say why one failed; `key` is that
    of the result which a started task is to make.
    """

    kind: EventKind
    task: str
    progress: Progress | None = None
    seconds: float | None = None
    diagnostics: tuple[Diagnostic, ...] = ()
    key: str | None = None
