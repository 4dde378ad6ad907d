"""A verifier that runs programs against the tests of their questions."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

from runners.programs.judge import ProgramJudge, ProgramLimits
from runners.programs.tests import Tests, Unreadable, read_tests
from runners.verify.answer import SEPARATOR, Answer, Verdict
from runners.verify.cache import CachedVerifier

LONGEST_PROGRAM = 100_000
"""Characters of a program beyond which it is not run."""
_VERDICTS = {
    "right": Verdict(True, "checked"),
    "wrong": Verdict(False, "checked"),
    "timeout": Verdict(False, "timeout"),
}


class ProgramVerifier(CachedVerifier):
    """Runs each program against its question's tests, up to `workers` at a time, and equal ones once.

    Programs run in confined processes or not at all. What somebody else ended is run once more.
    """

    def __init__(self, limits: ProgramLimits, tolerance: float, workers: int = 2) -> None:
        """`limits` are those of one answer; `tolerance` is that of numbers with decimals, a share of the expected one."""
        super().__init__()
        self._judge = ProgramJudge(limits, tolerance, workers)

    def check(self, answers: Sequence[Answer]) -> list[Verdict]:
        """Return the verdicts in order. Raises E0741 and E0742 where no process can run programs."""
        programs = [_program(answer) for answer in answers]
        outcomes = iter(self._judge.judge([one for one in programs if isinstance(one, tuple)]))
        return [one if isinstance(one, Verdict) else _verdict(next(outcomes)) for one in programs]

    def key_of(self, answer: Answer) -> Answer:
        """Return a digest: programs and tests are too long to keep themselves."""
        whole = "\0".join((answer.text, answer.gold, answer.meta))
        return Answer(hashlib.sha256(whole.encode("utf-8", "surrogatepass")).hexdigest(), "")

    def close(self) -> None:
        """End its processes; grading again starts new ones."""
        self._judge.close()

    def pids(self) -> list[int]:
        """Return the numbers of the processes that it has now."""
        return self._judge.pids()


def _program(answer: Answer) -> tuple[str, Tests] | Verdict:
    """Return a program with its tests, or the verdict on what is not run."""
    if not answer.text.strip():
        return _VERDICTS["wrong"]
    if len(answer.text) > LONGEST_PROGRAM:
        return _verdict(f"its program has more than {LONGEST_PROGRAM:,} characters")
    try:
        return answer.text, read_tests(tuple(answer.gold.split(SEPARATOR)), answer.meta)
    except Unreadable as failure:
        # Reading the data has said so already, unless they were not read here.
        return _verdict(f"its tests cannot be read: {failure}")


def _verdict(outcome: str) -> Verdict:
    return _VERDICTS.get(outcome) or Verdict(False, "failed", outcome)
