"""A verifier that runs programs against the tests of their questions."""

from __future__ import annotations

import hashlib
import threading
from collections import Counter
from collections.abc import Sequence

from runners.programs.judge import Judge, Limits, Outcome
from runners.programs.tests import Tests, Unreadable, read_tests
from runners.verify.answer import SEPARATOR, Answer, Stats, Status, Verdict
from runners.verify.cache import VerdictCache

CACHED_VERDICTS = 200_000
LONGEST_PROGRAM = 100_000
"""Characters of a program beyond which it is not run."""
_VERDICTS: dict[Outcome, Verdict] = {
    "right": Verdict(True, "checked"),
    "wrong": Verdict(False, "checked"),
    "timeout": Verdict(False, "timeout"),
    "failed": Verdict(False, "failed"),
    "lost": Verdict(False, "failed"),
}


class ProgramVerifier:
    """Runs each program against its question's tests, up to `workers` at a time, and equal ones once.

    Programs run in confined processes or not at all. What somebody else ended is run once more.
    """

    def __init__(self, limits: Limits, tolerance: float, workers: int = 2) -> None:
        """`limits` are those of one answer; `tolerance` is that of numbers with decimals, a share of the expected one."""
        self._judge = Judge(limits, tolerance, workers)
        self._lock = threading.Lock()
        self._cache = VerdictCache(CACHED_VERDICTS)
        self._counts: Counter[Status] = Counter()

    def grade(self, answers: Sequence[Answer]) -> list[Verdict]:
        """The verdicts in the order of the answers. Raises E0741 and E0742 where no process can run programs."""
        keys = [_key(answer) for answer in answers]
        with self._lock:
            known = {key: kept for key in dict.fromkeys(keys) if (kept := self._cache.get(key)) is not None}
            fresh = {
                key: _program(answer) for key, answer in zip(keys, answers, strict=True) if key not in known
            }
            runs = {key: one for key, one in fresh.items() if isinstance(one, tuple)}
            outcomes = dict(zip(runs, self._judge.judge(list(runs.values())), strict=True))
        verdicts = {
            key: one if isinstance(one, Verdict) else _VERDICTS[outcomes[key]] for key, one in fresh.items()
        }
        for key, verdict in verdicts.items():
            self._cache.put(key, verdict)
        seen = set(known)
        graded = []
        for key in keys:
            verdict = known.get(key) or verdicts[key]
            again = key in seen and verdict.status == "checked"
            graded.append(Verdict(verdict.correct, "cached") if again else verdict)
            seen.add(key)
        self._counts.update(verdict.status for verdict in graded)
        return graded

    def stats(self) -> Stats:
        """How many answers were run, how many were known, and how many were not judged to their end."""
        counts = self._counts
        return Stats(
            cached=counts["cached"],
            checked=counts["checked"],
            timeout=counts["timeout"],
            failed=counts["failed"],
        )

    def close(self) -> None:
        """End its processes; grading again starts new ones."""
        self._judge.close()

    def pids(self) -> list[int]:
        """The numbers of the processes that it has now."""
        return self._judge.pids()


def _program(answer: Answer) -> tuple[str, Tests] | Verdict:
    """Return a program with its tests, or the verdict on what is not run."""
    if not answer.text.strip():
        return _VERDICTS["wrong"]
    if len(answer.text) > LONGEST_PROGRAM:
        return _VERDICTS["failed"]
    try:
        return answer.text, read_tests(tuple(answer.gold.split(SEPARATOR)), answer.meta)
    except Unreadable:
        # Reading the data has said so already, unless they were not read here.
        return _VERDICTS["failed"]


def _key(answer: Answer) -> Answer:
    """What a verdict is kept by: programs and tests are too long to keep themselves."""
    whole = "\0".join((answer.text, answer.gold, answer.meta))
    return Answer(hashlib.sha256(whole.encode("utf-8", "surrogatepass")).hexdigest(), "")
