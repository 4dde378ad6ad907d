"""Answers to grade, their verdicts, and a verifier that keeps verdicts."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Literal, Protocol

from runners.sandbox.untrusted import shown

Status = Literal["fast", "cached", "checked", "timeout", "failed"]


SEPARATOR = "\x1e"
"""Stands between the references of a question that has several right answers (ASCII's record separator)."""


@dataclass(frozen=True, slots=True)
class Claim:
    """An extracted answer and its reference; `text` is empty if a response holds no answer.

    A reference may be several joined by `SEPARATOR`: the answer is right if it agrees with any of them.
    `meta` is the question's JSON metadata for the scorer of a package or the user's verifier, and `question` its text for
    the user's verifier. `which` numbers the answers to a question; equal answers are equal whatever their numbers.
    """

    text: str
    gold: str
    meta: str = ""
    question: str = ""
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


class Verifier(Protocol):
    """Grades answers."""

    def grade(self, answers: Sequence[Claim]) -> list[Verdict]:
        """Verdicts in the order of the answers."""

    def close(self) -> None:
        """End the processes of this verifier, which grades no more."""


CACHED_VERDICTS = 200_000
LONGEST_CACHED_TEXT = 2_000
"""Characters of reference, answer and metadata together beyond which a verdict is not kept."""


class VerdictCache(OrderedDict[Claim, Verdict]):
    """Verdicts, at most `entries` of them; a hit makes an entry young again."""

    def __init__(self, entries: int) -> None:
        super().__init__()
        self._entries = entries

    def find(self, answer: Claim) -> Verdict | None:
        """Return the stored verdict for this answer, or None."""
        if answer in self:
            self.move_to_end(answer)
        return self.get(answer)

    def put(self, answer: Claim, verdict: Verdict) -> None:
        """Keep a verdict, dropping the oldest when full."""
        if len(answer.text) + len(answer.gold) + len(answer.meta) <= LONGEST_CACHED_TEXT:
            self[answer] = verdict
            self.move_to_end(answer)
            while len(self) > self._entries:
                self.popitem(last=False)


class CachedVerifier:
    """A verifier that checks equal answers once. Usable from many threads.

    `check` returns the verdicts on distinct answers, `close` ends the processes that it uses, and `key_of` gives an answer's
    key in the cache.
    """

    def __init__(
        self,
        check: Callable[[Sequence[Claim]], list[Verdict]],
        close: Callable[[], None],
        key_of: Callable[[Claim], Claim] = lambda answer: answer,
    ) -> None:
        self._check, self.close, self._key_of = check, close, key_of
        self._cache = VerdictCache(CACHED_VERDICTS)
        self._lock = threading.Lock()

    def grade(self, answers: Sequence[Claim]) -> list[Verdict]:
        """Return the verdicts in the order of the answers. Raises as `check` does."""
        keys = [self._key_of(answer) for answer in answers]
        with self._lock:
            cached = {key: hit for key in dict.fromkeys(keys) if (hit := self._cache.find(key)) is not None}
            fresh = {key: answer for key, answer in zip(keys, answers, strict=True) if key not in cached}
            verdicts = dict(zip(fresh, self._check(list(fresh.values())) if fresh else (), strict=True))
            for key, verdict in verdicts.items():
                self._cache.put(key, verdict)
        graded = []
        for key in keys:
            graded.append(mark_cached(cached[key]) if key in cached else verdicts[key])
            cached[key] = graded[-1]
        return graded


def mark_cached(verdict: Verdict) -> Verdict:
    """Return a repeated verdict with the status `cached`; a time-out or failure keeps its status, so that it is counted."""
    return Verdict(verdict.correct, "cached") if verdict.status == "checked" else verdict
