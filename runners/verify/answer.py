"""Answers with their references, verdicts, and a verifier's counts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal, Protocol

from runners.untrusted import shown

Status = Literal["fast", "cached", "checked", "timeout", "failed"]


SEPARATOR = "\x1e"
"""Stands between the references of a question that has several right answers (ASCII's record separator)."""


@dataclass(frozen=True, slots=True)
class Answer:
    """An extracted answer and its reference; `text` is empty where a response holds no answer.

    A reference may be several joined by `SEPARATOR`: the answer is right when it agrees with any of them.
    `meta` is the question's JSON metadata, which a package's own scorer reads and the user's own verifier, as that alone
    reads the `question` and the `turns` before the last one, which are JSON. `which` says which answer to its question this
    is; equal answers are equal whichever they are.
    """

    text: str
    gold: str
    meta: str = ""
    question: str = ""
    turns: str = ""
    which: str = field(default="", compare=False)


@dataclass(frozen=True, slots=True)
class Verdict:
    """A verdict on an answer, and how it was reached.

    `fast`: decided in this process; `cached`: seen before; `checked`: by a worker process; `timeout`: the worker
    had to be stopped; `failed`: the worker could not decide (an error, its memory limit, a text too long to
    send). A time-out and a failure count as wrong. `why` is the reason of a failure, as far as there is more to say.
    """

    correct: bool
    status: Status
    why: str = field(default="", compare=False)

    @property
    def unsettled(self) -> str | None:
        """Return `timeout` or `failed`, with the reason after a colon, for an answer that was never judged."""
        if self.status not in ("timeout", "failed"):
            return None
        return f"{self.status}: {shown(self.why)}" if self.why else self.status


@dataclass(frozen=True, slots=True)
class Stats:
    """The answers by status since the verifier was made, and the workers started."""

    fast: int = 0
    cached: int = 0
    checked: int = 0
    timeout: int = 0
    failed: int = 0
    workers_started: int = 0


class Verifier(Protocol):
    """Grades answers."""

    def grade(self, answers: Sequence[Answer]) -> list[Verdict]:
        """Verdicts in the order of the answers."""
        ...

    def stats(self) -> Stats:
        """Return the counts of this verifier until now."""
        ...

    def close(self) -> None:
        """End the processes of this verifier, which grades no more."""
        ...
