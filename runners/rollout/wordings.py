"""Word questions: each rollout's prompt, its trained prefix, and the numbers that it is given."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, Literal

from reodsl.diagnostics import problem
from reodsl.ir.model import Model, Prompt, Wording
from reodsl.ir.training import Ppo
from runners.draws import purpose
from runners.prompts import continuation_tokens, render_prompt
from runners.rollout.questions import Question


@dataclass(frozen=True)
class Wordings:
    """The wordings of a stage's questions. Without any, each rollout has the question's own prompt.

    `learn_prefix` makes a wording's prefix part of what is trained. `longest` bounds a prompt without it. A teacher is asked
    in the words of `teacher`, or reads what the policy does.
    """

    prompt: Prompt
    tokenizer: Any
    seed: int
    wordings: tuple[Wording, ...] = ()
    per: Literal["rollout", "question"] = "rollout"
    learn_prefix: bool = False
    longest: int | None = None
    teacher: Wording | None = None

    @staticmethod
    def of(method: Ppo, model: Model, tokenizer: Any, seed: int) -> Wordings:
        """Return the wordings of a stage with this method."""
        return Wordings(
            model.prompt,
            tokenizer,
            seed,
            method.wordings,
            method.wordings_per,
            method.learns_prefix,
            method.max_prompt,
            method.teacher_wording,
        )

    def ask(self, question: Question, draw: int, position: int, rollouts: int) -> list[Question]:
        """Return the question as each of its rollouts is asked it.

        The budget and a wording of the whole question are a function of seed, draw and position, and all rollouts share
        the budget. The numbers of a wording are `mode`, its place, and `budget` where one is drawn. Raises E0933 where a
        wording makes the prompt too long.
        """
        if self.teacher is not None:
            prompt, _ = rendered(self.prompt, self.teacher, question.text, self.tokenizer, question.meta)
            self._require_short(len(prompt), question, "the teacher's wording")
            question = replace(question, asked=prompt)
        if not self.wordings:
            return [question] * rollouts
        count = len(self.wordings)
        chosen = purpose(self.seed, "wording", draw, position) % count
        modes = [chosen if self.per == "question" else i % count for i in range(rollouts)]
        by_mode = {mode: self._word(question, mode, draw, position) for mode in set(modes)}
        return [by_mode[mode] for mode in modes]

    def _word(self, question: Question, mode: int, draw: int, position: int) -> Question:
        wording = self.wordings[mode]
        given = {**question.given, "mode": float(mode)}
        budget: int | None = None
        if wording.draws:
            budget = drawn_budget(wording, purpose(self.seed, "budget", draw, position))
            given["budget"] = float(budget)
        prompt, prefix = rendered(
            self.prompt, with_budget(wording, budget), question.text, self.tokenizer, question.meta
        )
        self._require_short(len(prompt) - prefix, question, "its wording")
        trained = prefix if self.learn_prefix else 0
        return replace(question, prompt=prompt, trained_prefix=trained, given=given)

    def _require_short(self, count: int, question: Question, wording: str) -> None:
        if self.longest is not None and count > self.longest:
            raise problem(
                "E0933",
                f"a prompt has {count} tokens with {wording}, and `max_prompt` is {self.longest}",
                where=f"question {question.id}",
                help=f"set `max_prompt` to {count} tokens or more",
            )


def drawn_budget(wording: Wording, draw: int) -> int:
    """Return the budget that a 64-bit draw chooses: one of the wording's list, or of its range, each as likely."""
    if wording.budgets:
        return wording.budgets[draw % len(wording.budgets)]
    assert wording.low is not None
    assert wording.high is not None
    return wording.low + draw % (wording.high - wording.low + 1)


def with_budget(wording: Wording, budget: int | None) -> Wording:
    """Return the wording with its budget written in."""
    if budget is None:
        return wording
    texts = {"question": wording.question, "system": wording.system, "prefix": wording.prefix}
    done = {name: text.replace("{budget}", str(budget)) if text else text for name, text in texts.items()}
    return wording.model_copy(update=done)


def longest_prefix(wordings: Sequence[Wording], tokenizer: Any) -> int:
    """Return the most tokens that any wording puts behind a prompt, whatever budget is written into it."""
    longest = 0
    for wording in wordings:
        drawn = wording.draws and "{budget}" in wording.prefix
        ranged = range(wording.low or 0, (wording.high or 0) + 1)
        for budget in (wording.budgets or ranged) if drawn else (None,):
            prefix = with_budget(wording, budget).prefix
            longest = max(longest, len(continuation_tokens(tokenizer, prefix)))
    return longest


@lru_cache(maxsize=4096)
def rendered(
    prompt: Prompt, wording: Wording, text: str, tokenizer: Any, meta: str = ""
) -> tuple[tuple[int, ...], int]:
    """Return a question's tokens in a wording, its prefix at the end, and how many those of the prefix are."""
    bare = wording.over(prompt).model_copy(update={"prefix": prompt.prefix})
    prefix = continuation_tokens(tokenizer, wording.prefix) if wording.prefix else ()
    return (*render_prompt(bare, text, tokenizer, meta), *prefix), len(prefix)
