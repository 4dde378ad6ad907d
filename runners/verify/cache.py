"""A bounded cache of verdicts by reference and answer; the oldest leave first."""

from __future__ import annotations

import threading
from collections import OrderedDict

from runners.verify.answer import Answer, Verdict

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
