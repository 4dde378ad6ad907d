"""Wordings: ways to ask a question, and which questions each of them is for."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, ClassVar

from reodsl.ir.base import IR, locate
from reodsl.ir.expression import Expression
from reodsl.ir.model import Prompt
from reodsl.ir.setting import TOKENS, UTILISED, AnyOf, Condition, ListOf, Range, Text, kind, part_of, setting

ANSWER = re.compile("(?<![A-Za-z]){answer}")
"""The place of the reference answer in a wording: behind a letter, as in LaTeX's `\\boxed{answer}`, it is text."""


@kind("wording", parents=("wording",))
class Wording(IR):
    """A way to ask, laid over a model's prompt.

    `{budget}` in its texts is a whole number of tokens, drawn evenly from `budgets` or from `low..high`.
    """

    presentation = frozenset({"name"})
    name: str = ""
    question: str = setting(
        Text(),
        "the text around `{question}`; in a `teacher_wording`, `{answer}` is the first reference answer",
        default="{question}",
    )
    system: str | None = setting(Text(nonempty=False), "a system message, for chat", default=None)
    prefix: str = setting(Text(nonempty=False), "the text that the response begins with", default="")
    budget: ClassVar[Any] = setting(
        AnyOf((ListOf(TOKENS), Range(TOKENS))),
        "the list or range that `{budget}` is drawn from for each question",
        "budget = 100 tokens..4000 tokens",
        required=False,
    )
    when: Expression | None = setting(
        Condition(),
        "a condition on the question: in a list of wordings each question takes the first whose "
        "`when` holds, and the last has none. It reads numbers of the question (`x.level`) and "
        "responses of the reference model (`ref`)",
        "when = mean(len(z) for z in ref) < 1K tokens",
        default=None,
        later=True,
    )
    share: float = setting(
        UTILISED,
        "the share of the admitted questions that take this wording, drawn by the seed and the "
        "question's id; the rest go on to the next wording",
        "share = 50%",
        default=1.0,
        later=True,
    )
    budgets: tuple[int, ...] = part_of("budget", default=())
    low: int | None = part_of("budget", default=None)
    high: int | None = part_of("budget", default=None)

    @property
    def draws(self) -> bool:
        """Return whether the wording draws a random budget for each question."""
        return bool(self.budgets) or self.low is not None

    @property
    def selective(self) -> bool:
        """Return whether the wording is for some questions only."""
        return self.when is not None or self.share < 1

    def over(self, prompt: Prompt) -> Prompt:
        """Return a model's prompt with the texts of this wording.

        The wording's question is put into the prompt's template, and its `system` text replaces the prompt's, if it
        has any. Its `prefix`, the text with which a response begins, is appended to the prompt's prefix.
        """
        changes = {
            "template": prompt.template.replace("{question}", self.question),
            "system": prompt.system if self.system is None else self.system,
            "prefix": prompt.prefix + self.prefix,
        }
        origins = {
            "template" if name == "question" else name: origin for name, origin in self.given_at.items()
        }
        return locate(prompt.model_copy(update=changes), {**prompt.given_at, **origins})


def name_wordings(wordings: Sequence[Wording]) -> tuple[str, ...]:
    """Return a name for each wording of a list: its own, or `number 2` for an unnamed second wording."""
    return tuple(wording.name or f"number {i}" for i, wording in enumerate(wordings, 1))
