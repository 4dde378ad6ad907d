"""Find references that no parser reads, so that only their own text counts as right."""

from __future__ import annotations

import importlib.util
from collections.abc import Sequence

from runners.verify.answer import SEPARATOR, Answer
from runners.verify.checks import Checks
from runners.verify.judge import expressions

SECONDS, MEMORY_MIB = 5.0, 1024


def unread(references: Sequence[str], workers: int = 1) -> list[bool]:
    """Return whether a mathematical verifier reads none of the answers that a reference stands for, one verdict a reference.

    It reads numbers, choices and words itself, and asks math-verify for the rest. What math-verify takes longer than
    `SECONDS` for is unread. Without math-verify on this machine nothing that it would be asked for is.
    """
    parts = {each: expressions(each) for text in references for each in text.split(SEPARATOR)}
    asked = dict.fromkeys(each for answers in parts.values() for each in answers if each)
    known = dict.fromkeys(asked, True)
    if asked and importlib.util.find_spec("math_verify") is not None:
        checks = Checks("math_references", workers, SECONDS, MEMORY_MIB, confined=False)
        try:
            verdicts = checks.check([Answer("", each) for each in asked])
        finally:
            checks.close()
        known = {each: verdict.correct for each, verdict in zip(asked, verdicts, strict=True)}
    read = {text: all(each and known[each] for each in answers) for text, answers in parts.items()}
    return [not any(read[each] for each in text.split(SEPARATOR)) for text in references]
