"""Type hints for the file of a user's function: its arguments and its result; `docs/OWN_CODE.md` has examples.

    from reodsl.own import Answer

    def check(answer: Answer) -> bool:
        return answer.text.strip() == answer.reference

The name of the parameter says how it is called: `answer` is one at a time, `answers` a list of them. It imports nothing of
this project, because the processes that run own code wait for it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class Response:
    """A response to reward: `def score(response: Response) -> float`, or of `responses: list[Response]` a list.

    `text` is all of it (of several turns, the last), `tokens` its length, `answer` what was read of it, and `correct` what
    the verifier said. The others are as those of an `Answer`.
    """

    question: str
    text: str
    answer: str
    correct: bool
    tokens: int
    reference: str
    references: Sequence[str] = ()
    meta: Mapping[str, Any] = field(default_factory=dict)
    turns: Sequence[Mapping[str, Any]] = ()


@dataclass(frozen=True, slots=True)
class Question:
    """A question that a task draws: `def make(random: Random) -> Question`, of an own `Random` for each.

    `meta` is what verifiers, rewards (`x.NAME`, its numbers) and others may know of it; `trace` a worked solution, for SFT.
    """

    question: str
    answer: str
    meta: Mapping[str, Any] = field(default_factory=dict)
    trace: str = ""


@dataclass(frozen=True, slots=True)
class Answer:
    """An answer to judge: `def check(answer: Answer) -> bool`, or `def check(answers: list[Answer]) -> list[bool]`.

    `text` is what was read of the response, by the data's `answer` setting, and empty where nothing was. `reference` is
    the question's answer in the data, the first of `references` where there are several; `meta` is what else the data has
    of the question. `turns` are those before the last, each with its `text`, its `calls` of tools, and the `replies`.
    """

    question: str
    text: str
    reference: str
    references: Sequence[str] = ()
    meta: Mapping[str, Any] = field(default_factory=dict)
    turns: Sequence[Mapping[str, Any]] = ()
