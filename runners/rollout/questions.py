"""Questions and their prompts: read from a table, rendered, and worded in the ways that a method draws."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal

import polars as pl

from reodsl.diagnostics import Diagnostic, Problem, error, problem
from reodsl.ir.base import IR, Node, values_of
from reodsl.ir.expression import READINGS, Attribute
from reodsl.ir.model import Model, Prompt
from reodsl.ir.reward import ResponseGroup, RewardedResponse
from reodsl.ir.training import Ppo
from reodsl.ir.wording import ANSWER, Wording
from reodsl.language.suggest import suggest
from runners.data.draws import derive_seed
from runners.grade import SEPARATOR
from runners.models.marks import marks_of
from runners.rewards.interpret import measure
from runners.rollout.prompts import continuation_tokens, prompt_tokens, render_prompt


@dataclass(frozen=True, slots=True)
class PromptedQuestion:
    """A question with the prompt of a rollout."""

    id: str
    """Its id in the data."""
    text: str
    """Its text, without a template."""
    gold: str
    """The reference answer."""
    meta: str = ""
    """Its JSON metadata."""
    benchmark: str = ""
    """The benchmark's name; empty for training data."""
    prompt: tuple[int, ...] = ()
    """Token ids that the model reads; none before they are rendered."""
    trained_prefix: int = 0
    """The number of tokens at the end of the prompt that are trained with the response."""
    teacher_prompt: tuple[int, ...] = ()
    """Token ids that a teacher reads instead; none if it reads the same."""
    features: Mapping[str, float] = field(default_factory=dict)
    """The numbers that a reward may read: those of the metadata by their paths, and those of the wording."""


def read_table(folder: Path) -> pl.DataFrame:
    """Return the questions of a `data` artifact as they are stored."""
    return pl.read_parquet(folder / "questions.parquet", glob=False)


def repeated_rows(folder: Path) -> dict[str, int]:
    """Return how many repeated rows a `data` artifact dropped, as a fact of `train.json`; empty without any."""
    path = folder / "left_out.json"
    return {"left_out_repeated": json.loads(path.read_bytes())["left_out_repeated"]} if path.exists() else {}


def questions_of(table: pl.DataFrame, benchmark: str = "") -> list[PromptedQuestion]:
    """Return the questions of a table in their order, without prompts."""
    metas = table["meta"] if "meta" in table.columns else [None] * table.height
    rows = zip(table["id"], table["question"], table["answer"], metas, strict=True)
    return [
        PromptedQuestion(str(name), str(text), str(gold), str(meta or ""), benchmark)
        for name, text, gold, meta in rows
    ]


def render_questions(
    questions: Sequence[PromptedQuestion], prompt: Prompt, tokenizer: Any
) -> list[PromptedQuestion]:
    """Return the questions with their prompts and the numbers of their metadata."""
    prompts = prompt_tokens(prompt, tokenizer, [question.text for question in questions])
    return [
        replace(question, prompt=tokens, features=read_numbers(question.meta))
        for question, tokens in zip(questions, prompts, strict=True)
    ]


def fitting_questions(
    table: pl.DataFrame, prompt: Prompt, tokenizer: Any, longest: int
) -> tuple[list[PromptedQuestion], int]:
    """Return the questions whose prompts have at most `longest` tokens, and how many have more.

    Raises E0927 if none fits.
    """
    questions = render_questions(questions_of(table), prompt, tokenizer)
    fitting = [question for question in questions if len(question.prompt) <= longest]
    if not fitting:
        shortest = min((len(question.prompt) for question in questions), default=0)
        raise problem(
            "E0927",
            f"no question's prompt fits into `max_prompt`, {longest} tokens",
            where="questions.parquet",
            notes=[f"{table.height} questions, the shortest prompt has {shortest} tokens"],
            help=f"set `max_prompt` to at least {shortest} tokens",
        )
    return fitting, table.height - len(fitting)


def require_numbers(readers: Iterable[tuple[str, str]], questions: Sequence[PromptedQuestion]) -> None:
    """Raise E0922 for the first number that its reader, such as "the reward `paid`", reads and that a question lacks."""
    for asker, name in readers:
        missing = find_missing_number(asker, name, ((q.id, read_facts(q.meta)) for q in questions))
        if missing is not None:
            raise Problem(missing)


def shared_numbers(questions: Sequence[PromptedQuestion]) -> dict[str, list[float]]:
    """Return the numbers that all of these questions have.

    Returns:
        Values in the order of the questions, by name.
    """
    names = set.intersection(*(set(question.features) for question in questions)) if questions else set()
    return {name: [question.features[name] for question in questions] for name in sorted(names)}


@dataclass(frozen=True, slots=True)
class Reference:
    """The starting model's samples of a question: tokens, verdicts (1 or 0), and tokens of thinking if counted."""

    lengths: tuple[float, ...]
    correct: tuple[float, ...]
    thinking: tuple[float, ...] = ()

    def responses(self) -> tuple[RewardedResponse, ...]:
        """Return the samples as a reward reads them."""
        pairs = zip(self.lengths, self.correct, strict=True)
        features = [{"thinking": count} for count in self.thinking] or [{}] * len(self.lengths)
        return tuple(
            RewardedResponse(int(length), bool(right), features=more)
            for (length, right), more in zip(pairs, features, strict=True)
        )


def read_references(folder: Path, count: int) -> dict[str, Reference]:
    """Return lengths (tokens) and verdicts of the first `count` responses of a `sample` artifact, by question."""
    path = folder / "samples.parquet"
    lazily = pl.scan_parquet(path, glob=False)
    columns = ["question", "tokens", "correct", *["thinking"] * ("thinking" in lazily.collect_schema())]
    table = lazily.select(columns).collect()
    grouped = table.group_by("question", maintain_order=True).agg(pl.all().head(count))
    return {
        row["question"]: Reference(*(tuple(map(float, row[name])) for name in columns[1:]))
        for row in grouped.iter_rows(named=True)
    }


def choose_wording(
    wordings: Sequence[Wording], references: Mapping[str, Reference], seed: int, question: PromptedQuestion
) -> int | None:
    """Return the index of the first wording whose condition holds for a question; None if no wording has a condition.

    Of the questions for which a `when` holds, `share` get its wording: a draw of the task's `seed`, the question's id
    and the index alone. `references` are the starting model's samples of each question.
    """
    if not any(wording.selective for wording in wordings):
        return None
    reference = references.get(question.id)
    group = ResponseGroup(question.id, (), () if reference is None else reference.responses())
    responses = {"y": RewardedResponse(0, False, features=question.features)}
    for index, wording in enumerate(wordings):
        name = f"wording `{wording.name}`" if wording.name else f"wording {index + 1}"
        holds = wording.when is None or measure(name, wording.when, group, responses, {})
        if holds and derive_seed(seed, f"share\0{question.id}", index) < wording.share * 2**64:
            return index
    return None


def place_wordings(
    questions: Sequence[PromptedQuestion],
    wordings: Sequence[Wording],
    references: Mapping[str, Reference],
    seed: int,
) -> list[PromptedQuestion]:
    """Return questions with their numbers, of which `mode` is the index of the question's wording. Raises E0922."""
    require_numbers(list_choosers(wordings), questions)
    result = []
    for each in questions:
        question = replace(each, features=read_numbers(each.meta))
        mode = choose_wording(wordings, references, seed, question) or 0
        result.append(replace(question, features={**question.features, "mode": float(mode)}))
    return result


@dataclass(frozen=True)
class Wordings:
    """The wordings of a stage's questions. Without any, each rollout has the question's own prompt."""

    prompt: Prompt
    """The model's template."""
    tokenizer: Any
    """The model's tokenizer."""
    seed: int
    """The stage's seed."""
    wordings: tuple[Wording, ...] = ()
    """The variants of the prompt."""
    per: Literal["rollout", "question"] = "rollout"
    """True if each rollout draws a wording or the question as a group."""
    learn_prefix: bool = False
    """True if a wording's prefix is trained with the response."""
    longest: int | None = None
    """The most tokens of a prompt without a trained prefix."""
    teacher: Wording | None = None
    """The wording that a teacher reads; None if it reads what the policy does."""
    choose: Callable[[PromptedQuestion], int | None] = lambda _: None
    """Returns the index of a question's wording, if a property of the question decides."""

    @staticmethod
    def of(
        method: Ppo, model: Model, tokenizer: Any, seed: int, choose: Callable[[PromptedQuestion], int | None]
    ) -> Wordings:
        """Return the wordings of a stage with a method."""
        return Wordings(
            model.prompt,
            tokenizer,
            seed,
            method.wordings,
            method.wordings_per,
            method.learns_prefix,
            method.max_prompt,
            method.teacher_wording,
            choose,
        )

    def ask(
        self, question: PromptedQuestion, draw: int, position: int, rollouts: int
    ) -> list[PromptedQuestion]:
        """Return the question with the prompt of each of its rollouts.

        The budget, and a wording of all rollouts, are a function of seed, draw and position, and all rollouts share the
        budget. The numbers of a wording are `mode`, its index, and `budget` if one is drawn. Raises E0933 if a wording
        makes the prompt too long.
        """
        if self.teacher is not None:
            words, text = fill_answer(self.teacher, question, self.tokenizer)
            prompt, _ = render(self.prompt, words, text, self.tokenizer)
            self._require_short(len(prompt), question, "the teacher's wording")
            question = replace(question, teacher_prompt=prompt)
        if not self.wordings:
            return [question] * rollouts
        count = len(self.wordings)
        if (mode := self.choose(question)) is not None:
            return [self._word(question, mode, draw, position)] * rollouts
        chosen = derive_seed(self.seed, "wording", draw, position) % count
        modes = [chosen if self.per == "question" else i % count for i in range(rollouts)]
        by_mode = {mode: self._word(question, mode, draw, position) for mode in set(modes)}
        return [by_mode[mode] for mode in modes]

    def require_room(self, question: PromptedQuestion) -> None:
        """Raise E0933 if a wording makes a question's prompt too long, with any of the budgets that it draws."""
        for wording in self.wordings:
            budgets = wording.budgets or ((wording.low, wording.high) if wording.draws else (None,))
            for budget in budgets:
                worded = with_budget(wording, budget)
                prompt, prefix = render(self.prompt, worded, question.text, self.tokenizer)
                self._require_short(len(prompt) - prefix, question, "its wording")

    def _word(self, question: PromptedQuestion, mode: int, draw: int, position: int) -> PromptedQuestion:
        """Return the question in the wording of a mode, with its numbers."""
        wording = self.wordings[mode]
        features = {**question.features, "mode": float(mode)}
        budget: int | None = None
        if wording.draws:
            budget = choose_budget(wording, derive_seed(self.seed, "budget", draw, position))
            features["budget"] = float(budget)
        prompt, prefix = render(self.prompt, with_budget(wording, budget), question.text, self.tokenizer)
        self._require_short(len(prompt) - prefix, question, "its wording")
        trained = prefix if self.learn_prefix else 0
        return replace(question, prompt=prompt, trained_prefix=trained, features=features)

    def _require_short(self, count: int, question: PromptedQuestion, wording: str) -> None:
        if self.longest is not None and count > self.longest:
            raise problem(
                "E0933",
                f"a prompt has {count} tokens with {wording}, and `max_prompt` is {self.longest}",
                where=f"question {question.id}",
                help=f"set `max_prompt` to {count} tokens or more",
            )


def choose_budget(wording: Wording, draw: int) -> int:
    """Return the budget in tokens that a 64-bit draw chooses from the wording's list or range, all equally likely."""
    if wording.budgets:
        return wording.budgets[draw % len(wording.budgets)]
    assert wording.low is not None
    assert wording.high is not None
    return wording.low + draw % (wording.high - wording.low + 1)


def with_budget(wording: Wording, budget: int | None) -> Wording:
    """Return the wording with its budget filled in."""
    if budget is None:
        return wording
    texts = {"question": wording.question, "system": wording.system, "prefix": wording.prefix}
    filled = {name: text.replace("{budget}", str(budget)) if text else text for name, text in texts.items()}
    return wording.model_copy(update=filled)


def fill_answer(wording: Wording, question: PromptedQuestion, tokenizer: Any) -> tuple[Wording, str]:
    """Return the wording, and the text that it asks: the question, or also its answer if the wording tells the answer.

    The answer is the first of several. Placeholders are filled only in the wording, not in either text.
    """
    if not ANSWER.search(wording.question):
        return wording, question.text
    values = {"{question}": question.text, "{answer}": question.gold.split(SEPARATOR)[0]}
    frame = marks_of(tokenizer).keep(wording.question)
    text = re.sub(f"{{question}}|{ANSWER.pattern}", lambda match: values[match[0]], frame)
    return wording.model_copy(update={"question": "{question}"}), text


def longest_prefix(wordings: Sequence[Wording], tokenizer: Any) -> int:
    """Return the most tokens that any wording puts behind a prompt, whatever budget is filled in."""
    longest = 0
    for wording in wordings:
        varies = wording.draws and "{budget}" in wording.prefix
        ranged = range(wording.low or 0, (wording.high or 0) + 1)
        for budget in (wording.budgets or ranged) if varies else (None,):
            prefix = with_budget(wording, budget).prefix
            longest = max(longest, len(continuation_tokens(tokenizer, prefix)))
    return longest


@lru_cache(maxsize=4096)
def render(prompt: Prompt, wording: Wording, text: str, tokenizer: Any) -> tuple[tuple[int, ...], int]:
    """Return a question's tokens in a wording, its prefix at the end, and how many tokens the prefix has."""
    bare = wording.over(prompt).model_copy(update={"prefix": prompt.prefix})
    prefix = continuation_tokens(tokenizer, wording.prefix) if wording.prefix else ()
    return (*render_prompt(bare, text, tokenizer), *prefix), len(prefix)


_MAX_EXAMPLES = 3
"""The most questions that a message names."""


def read_facts(meta: str) -> dict[str, Any]:
    """Return the values of a question's JSON metadata, each by its path: `info.level` for a number in a record."""
    try:
        fields = json.loads(meta)
    except ValueError:
        return {}
    return dict(_walk(fields, "")) if isinstance(fields, dict) else {}


def _walk(record: Mapping[str, Any], path: str) -> Iterator[tuple[str, Any]]:
    for name, value in record.items():
        if isinstance(value, dict):
            yield from _walk(value, f"{path}{name}.")
        else:
            yield f"{path}{name}", value


def is_number(value: object) -> bool:
    """Return whether a value of metadata is a number, which `true` and `false` are not."""
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def read_numbers(meta: str) -> dict[str, float]:
    """Return the numbers of a question's JSON metadata.

    Returns:
        Values by their paths.
    """
    return {name: float(value) for name, value in read_facts(meta).items() if is_number(value)}


def list_fields(rule: IR | Node) -> list[str]:
    """Return the numbers of a question that a reward or a condition reads, each once."""
    fields = dict.fromkeys(node.field for node in values_of(rule, Attribute))
    return [field for field in fields if field.partition("@")[0] not in READINGS]


def list_readers(method: Ppo) -> Iterator[tuple[str, str]]:
    """Yield who reads a number of a training's questions, such as "the reward `paid`", and which; not a wording's budget."""
    for number in list_fields(method.reward):
        if number != "budget" or not method.wordings:
            yield f"the reward `{method.reward.name}`", number
    yield from list_choosers(method.wordings)


def list_choosers(wordings: Sequence[Wording]) -> Iterator[tuple[str, str]]:
    """Yield each wording that is chosen by a number of the questions, and the number."""
    for index, wording in enumerate(wordings):
        name = f"the wording `{wording.name}`" if wording.name else f"wording {index + 1}"
        for number in list_fields(wording.when) if wording.when is not None else ():
            yield name, number


def find_missing_number(
    asker: str, field: str, questions: Iterable[tuple[str, Mapping[str, Any]]]
) -> Diagnostic | None:
    """Return E0922 if questions lack a number that is read: none has it, some lack it, or it is no number.

    `questions` are ids with the result of `read_facts`.
    """
    rows = list(questions)
    wrong = [(name, facts.get(field)) for name, facts in rows if not is_number(facts.get(field))]
    if not wrong:
        return None
    other = [(name, value) for name, value in wrong if value is not None]
    examples = [
        f"question {name}: {json.dumps(value, default=str)[:60]}" if value is not None else f"question {name}"
        for name, value in (other or wrong)[:_MAX_EXAMPLES]
    ]
    if other:
        kind = (
            "true or false"
            if isinstance(other[0][1], bool)
            else "a list"
            if isinstance(other[0][1], list)
            else "text"
        )
        says = f"is {kind} in {len(other)} of {len(rows)} questions"
        helps = "write a number in each row of that column"
    elif len(wrong) < len(rows):
        says = f"{len(wrong)} of {len(rows)} questions do not have"
        helps = "give each question the number, or take these rows out of the data"
    else:
        numbers = {name for _, facts in rows[:1000] for name, value in facts.items() if is_number(value)}
        says, examples = "no question has", []
        helps = (
            suggest(field, numbers, "the questions have the numbers")
            if numbers
            else "add it to the questions' `meta`"
        )
    return error(
        "E0922",
        f"{asker} reads `x.{field}`, which {says}",
        where=asker.removeprefix("the ").replace("`", ""),
        notes=examples,
        help=helps,
    )
