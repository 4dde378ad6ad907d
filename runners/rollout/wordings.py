"""Ask questions: each rollout's prompt, its trained prefix, and the numbers that it is given."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Literal

from reodsl.diagnostics import problem
from reodsl.ir.model import Model, Prompt, Wording
from reodsl.ir.training import Ppo
from runners.prompts import continuation_tokens, render_prompt
from runners.rollout.questions import Question
from runners.seeds import purpose


@dataclass(frozen=True, slots=True)
class Asked:
    """What one rollout is generated from: `prompt` with the prefix at its end, the `lead` tokens of which are learnt.

    `given` are numbers that a reward may read: `mode`, the position of its wording, and `budget` where one was drawn.
    """

    prompt: tuple[int, ...]
    lead: int
    given: Mapping[str, float]


@dataclass(frozen=True)
class Asking:
    """How a stage asks its questions. Without wordings each rollout has the question's own prompt.

    `learn_prefix` makes a wording's prefix part of what is trained.
    """

    prompt: Prompt
    tokenizer: Any
    rollouts: int
    seed: int
    wordings: tuple[Wording, ...] = ()
    per: Literal["rollout", "question"] = "rollout"
    learn_prefix: bool = False
    longest: int | None = None

    @staticmethod
    def of(method: Ppo, model: Model, tokenizer: Any, seed: int) -> Asking:
        """Return the prompts' settings of a stage with this method."""
        return Asking(
            model.prompt,
            tokenizer,
            method.batch.rollouts,
            seed,
            method.wordings,
            method.wordings_per,
            method.learns_prefix,
            method.max_prompt,
        )

    def ask(self, question: Question, number: int, position: int) -> list[Asked]:
        """One for each rollout; the budget and the question's wording are a function of seed, step and position.

        All rollouts of a question share its budget. Raises E0933 where a wording makes the prompt too long.
        """
        if not self.wordings:
            return [Asked(question.prompt, 0, {})] * self.rollouts
        count = len(self.wordings)
        chosen = purpose(self.seed, "wording", number, position) % count
        modes = [chosen if self.per == "question" else i % count for i in range(self.rollouts)]
        by_mode = {mode: self._asked(question, mode, number, position) for mode in set(modes)}
        return [by_mode[mode] for mode in modes]

    def _asked(self, question: Question, mode: int, number: int, position: int) -> Asked:
        wording = self.wordings[mode]
        given = {"mode": float(mode)}
        budget: int | None = None
        if wording.draws:
            draw = purpose(self.seed, "budget", number, position)
            budget = drawn_budget(wording, draw)
            given["budget"] = float(budget)
        prompt, lead = rendered(
            self.prompt, filled(wording, budget), question.text, self.tokenizer, question.meta
        )
        if self.longest is not None and len(prompt) - lead > self.longest:
            raise problem(
                "E0933",
                f"a prompt has {len(prompt) - lead} tokens with its wording, and `max_prompt` is {self.longest}",
                where=f"question {question.id}",
                help=f"set `max_prompt` to {len(prompt) - lead} tokens or more",
            )
        return Asked(prompt, lead if self.learn_prefix else 0, given)


def drawn_budget(wording: Wording, draw: int) -> int:
    """The budget that a 64-bit draw stands for: one of the wording's list, or of its range, each as likely."""
    if wording.budgets:
        return wording.budgets[draw % len(wording.budgets)]
    assert wording.low is not None
    assert wording.high is not None
    return wording.low + draw % (wording.high - wording.low + 1)


def filled(wording: Wording, budget: int | None) -> Wording:
    """The wording with its budget written in."""
    if budget is None:
        return wording
    texts = {"question": wording.question, "system": wording.system, "prefix": wording.prefix}
    done = {name: text.replace("{budget}", str(budget)) if text else text for name, text in texts.items()}
    return wording.model_copy(update=done)


def longest_prefix(wordings: Sequence[Wording], tokenizer: Any) -> int:
    """The most tokens that any wording puts behind a prompt, whatever budget is written into it."""
    longest = 0
    for wording in wordings:
        drawn = wording.draws and "{budget}" in wording.prefix
        ranged = range(wording.low or 0, (wording.high or 0) + 1)
        for budget in (wording.budgets or ranged) if drawn else (None,):
            longest = max(longest, len(continuation_tokens(tokenizer, filled(wording, budget).prefix)))
    return longest


def longest_of(method: Ppo, tokenizer: Any) -> int:
    """The most tokens that a sequence of the stage can have: prompt with its wording's prefix, response, forcing text
    and answer."""
    longest = method.max_prompt + longest_prefix(method.wordings, tokenizer) + method.rollout.max_tokens
    if method.forcing is not None:
        longest += len(continuation_tokens(tokenizer, method.forcing.text)) + method.forcing.answer_tokens
    return longest


@lru_cache(maxsize=4096)
def rendered(
    prompt: Prompt, wording: Wording, text: str, tokenizer: Any, meta: str = ""
) -> tuple[tuple[int, ...], int]:
    """A question's tokens in a wording, its prefix at the end, and how many those of the prefix are."""
    bare = wording.over(prompt).model_copy(update={"prefix": prompt.prefix})
    prefix = continuation_tokens(tokenizer, wording.prefix) if wording.prefix else ()
    return (*render_prompt(bare, text, tokenizer, meta), *prefix), len(prefix)


def given_arrays(asked: Sequence[Sequence[Asked]]) -> dict[str, list[list[float]]]:
    """The numbers that every rollout of the step was given, by name: [questions, rollouts]."""
    names = [set(one.given) for group in asked for one in group]
    shared = set.intersection(*names) if names else set()
    return {name: [[one.given[name] for one in group] for group in asked] for name in sorted(shared)}
