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
"""The character between the references of a question that has several right answers (ASCII's record separator)."""


@dataclass(frozen=True, slots=True)
class Claim:
    """An answer to grade: the answer read from a response, with its reference answer and question."""

    text: str
    """The answer; empty if the response has none."""
    gold: str
    """The reference answer, or several joined by `SEPARATOR`: the answer is right if it agrees with any of them."""
    meta: str = ""
    """The question's metadata as JSON, for the scorer of a package or the user's verifier."""
    question: str = ""
    """The question's text, for the user's verifier."""
    which: str = field(default="", compare=False)
    """The index of the answer among all answers to its question. Equality of claims ignores it."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """A verdict on an answer, and how the verdict was reached.

    The status is `fast` if this process decided, `cached` for a repeated answer, `checked` if a worker process decided,
    `timeout` if the worker had to be stopped, and `failed` if the worker could not decide (an error, its memory limit, a
    text too long to send). A time-out and a failure count as wrong. `why` is the reason of a failure, if there is one.
    """

    correct: bool
    status: Status
    why: str = field(default="", compare=False)

    @property
    def unsettled(self) -> str | None:
        """Return the status `timeout` or `failed`, with the reason after a colon; None for any other status.

        An answer with one of the two statuses could not be judged.
        """
        if self.status not in ("timeout", "failed"):
            return None
        return f"{self.status}: {shown(self.why)}" if self.why else self.status


class Verifier(Protocol):
    """A verifier: an object that grades answers."""

    def grade(self, answers: Sequence[Claim]) -> list[Verdict]:
        """Return a verdict for each answer, in the order of the answers."""

    def close(self) -> None:
        """End the processes of this verifier; no answer can be graded afterwards."""


CACHED_VERDICTS = 200_000
LONGEST_CACHED_TEXT = 2_000
"""The most characters of reference, answer and metadata together with which a verdict is cached."""


class CachedVerifier:
    """A verifier that checks equal answers once. Many threads may use it.

    It keeps the last `CACHED_VERDICTS` verdicts that were used.
    """

    def __init__(
        self,
        check: Callable[[Sequence[Claim]], list[Verdict]],
        close: Callable[[], None],
        key_of: Callable[[Claim], Claim] = lambda answer: answer,
    ) -> None:
        """Wrap a function that checks answers.

        Args:
            check: Returns the verdicts on different answers, in their order.
            close: Ends the processes that `check` uses.
            key_of: Returns the key of an answer in the cache; by default the answer itself.
        """
        self._check, self.close, self._key_of = check, close, key_of
        self._cache: OrderedDict[Claim, Verdict] = OrderedDict()
        self._lock = threading.Lock()

    def grade(self, answers: Sequence[Claim]) -> list[Verdict]:
        """Return the verdicts in the order of the answers.

        Answers with the same key are checked once. An answer whose key was checked before, in this call or an earlier
        one, has the status `cached` instead of `checked`; other statuses stay.

        Raises:
            Problem: The `check` of this verifier raised it.
        """
        keys = [self._key_of(answer) for answer in answers]
        with self._lock:
            cached = {key: self._cache.pop(key) for key in dict.fromkeys(keys) if key in self._cache}
            self._cache |= cached
            new = {key: answer for key, answer in zip(keys, answers, strict=True) if key not in cached}
            verdicts = dict(zip(new, self._check(list(new.values())) if new else (), strict=True))
            self._cache |= {
                key: verdict
                for key, verdict in verdicts.items()
                if len(key.text) + len(key.gold) + len(key.meta) <= LONGEST_CACHED_TEXT
            }
            while len(self._cache) > CACHED_VERDICTS:
                self._cache.popitem(last=False)
        graded = []
        for key in keys:
            verdict = cached.get(key) or verdicts[key]
            is_repeated = key in cached and verdict.status == "checked"
            graded.append(Verdict(verdict.correct, "cached") if is_repeated else verdict)
            cached[key] = graded[-1]
        return graded
