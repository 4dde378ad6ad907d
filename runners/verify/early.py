"""Grade answers while others are still made."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence

from runners.backlog import Backlog
from runners.verify.answer import Answer, Verdict, Verifier

Reads = Callable[[], Sequence[Answer]]


class Early:
    """A verifier in front of which answers may come before all are known.

    A thread grades all that have come since it looked last together, so that the verifier's workers share them. What it has
    not seen by `grade` is graded then, so nothing depends on what came early.
    """

    def __init__(self, verifier: Verifier) -> None:
        """`verifier` is closed by whoever opened it, after this one."""
        self._verifier = verifier
        self._backlog: Backlog[Reads] = Backlog(self._grade, "grading")
        self._verdicts: dict[tuple[Answer, str], deque[Verdict]] = {}

    def begin(self, read: Reads) -> None:
        """Have the answers that `read` gives graded, both in the thread. Raises what an earlier one raised."""
        self._backlog.add(read)

    def settle(self) -> None:
        """Wait for all that was begun. Raises what it raised."""
        self._backlog.settle()

    def grade(self, answers: Sequence[Answer]) -> list[Verdict]:
        """The verdicts in the order of the answers, each that was given early once. Raises what grading raises."""
        self.settle()
        early = [self._taken(answer) for answer in answers]
        rest = [answer for answer, verdict in zip(answers, early, strict=True) if verdict is None]
        verdicts = iter(self._verifier.grade(rest)) if rest else iter(())
        self._verdicts.clear()
        return [verdict if verdict is not None else next(verdicts) for verdict in early]

    def close(self) -> None:
        """Ends the thread after what it is at."""
        self._backlog.close()

    def _grade(self, reads: Sequence[Reads]) -> None:
        answers = [answer for read in reads for answer in read()]
        for answer, verdict in zip(answers, self._verifier.grade(answers), strict=True):
            self._verdicts.setdefault((answer, answer.which), deque()).append(verdict)

    def _taken(self, answer: Answer) -> Verdict | None:
        verdicts = self._verdicts.get((answer, answer.which))
        return verdicts.popleft() if verdicts else None
