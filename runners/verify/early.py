"""Grade answers while others are still made."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor

from runners.verify.answer import Answer, Verdict, Verifier

Key = tuple[Answer, str]


class Early:
    """A verifier in front of which answers may come before all are known.

    A thread grades them in the order in which they come. What it has not seen by `grade` is graded then, so nothing depends
    on what came early.
    """

    def __init__(self, verifier: Verifier) -> None:
        """`verifier` is closed by whoever opened it, after this one."""
        self._verifier = verifier
        # One for as long as there is anything to grade: some systems end a process with the thread that started it.
        self._thread = ThreadPoolExecutor(1, "grading")
        self._begun: deque[Future[None]] = deque()
        self._verdicts: dict[Key, deque[Verdict]] = {}

    def begin(self, read: Callable[[], Sequence[Answer]]) -> None:
        """Have the answers that `read` gives graded, both in the thread. To be called from one thread at a time.

        Raises what an earlier one raised: nothing more is made in vain then.
        """
        while self._begun and self._begun[0].done():
            self._begun.popleft().result()
        self._begun.append(self._thread.submit(self._grade, read))

    def settle(self) -> None:
        """Wait for all that was begun. Raises what it raised."""
        while self._begun:
            self._begun.popleft().result()

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
        self._thread.shutdown(cancel_futures=True)

    def _grade(self, read: Callable[[], Sequence[Answer]]) -> None:
        answers = list(read())
        for answer, verdict in zip(answers, self._verifier.grade(answers), strict=True):
            self._verdicts.setdefault((answer, answer.which), deque()).append(verdict)

    def _taken(self, answer: Answer) -> Verdict | None:
        verdicts = self._verdicts.get((answer, answer.which))
        return verdicts.popleft() if verdicts else None
