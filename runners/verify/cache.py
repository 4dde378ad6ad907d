"""A bounded cache of verdicts by reference and answer, and what grades behind one; the oldest leave first."""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections import Counter, OrderedDict
from collections.abc import Sequence

from runners.verify.answer import Answer, Stats, Status, Verdict

CACHED_VERDICTS = 200_000
LONGEST_KEPT = 2_000
"""Characters of reference, answer and metadata together beyond which a verdict is not kept."""


class VerdictCache:
    """At most `entries` verdicts; a hit makes an entry young again. Safe to share between threads."""

    def __init__(self, entries: int) -> None:
        self._entries = entries
        self._lock = threading.Lock()
        self._kept: OrderedDict[Answer, Verdict] = OrderedDict()

    def get(self, answer: Answer) -> Verdict | None:
        """The verdict kept for this answer, as it was put."""
        with self._lock:
            verdict = self._kept.get(answer)
            if verdict is not None:
                self._kept.move_to_end(answer)
            return verdict

    def put(self, answer: Answer, verdict: Verdict) -> None:
        """Keep a verdict, dropping the oldest when full."""
        if len(answer.text) + len(answer.gold) + len(answer.meta) + len(answer.turns) > LONGEST_KEPT:
            return
        with self._lock:
            self._kept[answer] = verdict
            self._kept.move_to_end(answer)
            while len(self._kept) > self._entries:
                self._kept.popitem(last=False)

    def __len__(self) -> int:
        return len(self._kept)


class CachedVerifier(ABC):
    """A verifier that checks each answer once: equal ones share a verdict. Usable from many threads."""

    def __init__(self) -> None:
        self._cache = VerdictCache(CACHED_VERDICTS)
        self._lock = threading.Lock()
        self._counts: Counter[Status] = Counter()

    @abstractmethod
    def check(self, answers: Sequence[Answer]) -> list[Verdict]:
        """Return the verdicts on answers of which no two are equal."""

    def key_of(self, answer: Answer) -> Answer:
        """Return what a verdict is kept by."""
        return answer

    def grade(self, answers: Sequence[Answer]) -> list[Verdict]:
        """Return the verdicts in the order of the answers. Raises as `check` does."""
        keys = [self.key_of(answer) for answer in answers]
        with self._lock:
            known = {key: kept for key in dict.fromkeys(keys) if (kept := self._cache.get(key)) is not None}
            fresh = {key: answer for key, answer in zip(keys, answers, strict=True) if key not in known}
            verdicts = dict(zip(fresh, self.check(list(fresh.values())) if fresh else (), strict=True))
        for key, verdict in verdicts.items():
            self._cache.put(key, verdict)
        graded = []
        for key in keys:
            graded.append(seen_again(known[key]) if key in known else verdicts[key])
            known[key] = graded[-1]
        self._counts.update(verdict.status for verdict in graded)
        return graded

    def stats(self) -> Stats:
        """Return how many answers were checked, how many were known, and how many were not judged to their end."""
        counts = self._counts
        return Stats(
            cached=counts["cached"],
            checked=counts["checked"],
            timeout=counts["timeout"],
            failed=counts["failed"],
        )


def seen_again(verdict: Verdict) -> Verdict:
    """Return a verdict met once more: `cached`, but a time-out or failure stays one, so that it is counted as such."""
    return Verdict(verdict.correct, "cached") if verdict.status == "checked" else verdict
