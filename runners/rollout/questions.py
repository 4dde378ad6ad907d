"""Questions and their prompts: read from a table, rendered, and put into the wordings of a method."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal

import polars as pl

from reodsl.diagnostics import Diagnostic, error, problem, refuse
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
    """The question's id in the data."""
    text: str
    """The question's text, without a template."""
    gold: str
    """The reference answer."""
    meta: str = ""
    """The question's metadata as JSON."""
    benchmark: str = ""
    """The benchmark's name; empty for training data."""
    prompt: tuple[int, ...] = ()
    """Token ids of the prompt; empty before the prompt is rendered."""
    trained_prefix: int = 0
    """The number of tokens at the end of the prompt that are trained with the response."""
    teacher_prompt: tuple[int, ...] = ()
    """Token ids of a teacher's prompt; empty if the teacher reads the same prompt."""
    features: Mapping[str, float] = field(default_factory=dict)
    """The numbers that a reward may read: of the metadata by their paths, and `mode` and `budget` of the wording."""


def read_table(folder: Path) -> pl.DataFrame:
    """Return the questions of a `data` task's result as a table."""
    return pl.read_parquet(folder / "questions.parquet", glob=False)


def repeated_rows(folder: Path) -> dict[str, int]:
    """Return how many repeated rows a `data` task left out, as a count for `train.json`; empty if none."""
    path = folder / "left_out.json"
    return {"left_out_repeated": json.loads(path.read_bytes())["left_out_repeated"]} if path.exists() else {}


def questions_of(table: pl.DataFrame, benchmark: str = "") -> list[PromptedQuestion]:
    """Return the questions of a table in their order, without prompts.

    Args:
        table: The questions, with the columns `id`, `question`, `answer` and perhaps `meta`.
        benchmark: The name of the benchmark; empty for training data.
    """
    metas = table["meta"] if "meta" in table.columns else [None] * table.height
    rows = zip(table["id"], table["question"], table["answer"], metas, strict=True)
    return [
        PromptedQuestion(str(name), str(text), str(gold), str(meta or ""), benchmark)
        for name, text, gold, meta in rows
    ]


def render_questions(
    questions: Sequence[PromptedQuestion], prompt: Prompt, tokenizer: Any
) -> list[PromptedQuestion]:
    """Return questions with their prompts, and with the numbers of their metadata as features."""
    prompts = prompt_tokens(prompt, tokenizer, [question.text for question in questions])
    return [
        replace(question, prompt=tokens, features=read_numbers(question.meta))
        for question, tokens in zip(questions, prompts, strict=True)
    ]


def fitting_questions(
    table: pl.DataFrame, prompt: Prompt, tokenizer: Any, max_tokens: int
) -> tuple[list[PromptedQuestion], int]:
    """Return the questions whose prompts fit into `max_tokens`, and the number of questions with longer prompts.

    Args:
        table: The questions.
        prompt: The prompt's settings.
        tokenizer: The model's tokenizer.
        max_tokens: The largest number of tokens of a prompt.

    Raises:
        Problem: E0927, if no prompt fits.
    """
    questions = render_questions(questions_of(table), prompt, tokenizer)
    fitting = [question for question in questions if len(question.prompt) <= max_tokens]
    if not fitting:
        shortest = min((len(question.prompt) for question in questions), default=0)
        raise problem(
            "E0927",
            f"no question's prompt fits into `max_prompt`, {max_tokens} tokens",
            where="questions.parquet",
            notes=[f"{table.height} questions, the shortest prompt has {shortest} tokens"],
            help=f"set `max_prompt` to at least {shortest} tokens",
        )
    return fitting, table.height - len(fitting)


def require_numbers(readers: Iterable[tuple[str, str]], questions: Sequence[PromptedQuestion]) -> None:
    """Check that all questions have the numbers that settings read.

    Args:
        readers: Pairs of a setting in words, such as "the reward `paid`", and the number that it reads.
        questions: The questions.

    Raises:
        Problem: E0922, for the first number that a question lacks.
    """
    for reader, name in readers:
        refuse(find_missing_number(reader, name, ((q.id, read_facts(q.meta)) for q in questions)))


def shared_numbers(questions: Sequence[PromptedQuestion]) -> dict[str, list[float]]:
    """Return the features that all of these questions have, by name, as values in the order of the questions."""
    names = set.intersection(*(set(question.features) for question in questions)) if questions else set()
    return {name: [question.features[name] for question in questions] for name in sorted(names)}


@dataclass(frozen=True, slots=True)
class Reference:
    """The starting model's samples of a question: tokens, verdicts (1 or 0), and tokens of thinking if counted."""

    lengths: tuple[float, ...]
    correct: tuple[float, ...]
    thinking: tuple[float, ...] = ()

    def responses(self) -> tuple[RewardedResponse, ...]:
        """Return the samples in the form that a reward reads."""
        pairs = zip(self.lengths, self.correct, strict=True)
        features = [{"thinking": count} for count in self.thinking] or [{}] * len(self.lengths)
        return tuple(
            RewardedResponse(int(length), bool(is_correct), features=numbers)
            for (length, is_correct), numbers in zip(pairs, features, strict=True)
        )


def read_references(folder: Path, count: int) -> dict[str, Reference]:
    """Return the first `count` responses to each question of a `sample` task's result, by question id.

    Thinking tokens are empty if the task did not count thinking.
    """
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
    """Return the index of the first wording that a question's properties select, or None.

    A wording is selected if its condition `when` holds and a random number is below its `share`. The random number is
    derived from the seed, the question's id and the wording's index. The result is None if no wording has a condition
    or a share, or if none is selected.

    Args:
        wordings: The wordings.
        references: The starting model's samples by question id, which conditions may read.
        seed: The task's seed.
        question: The question.
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
    """Return questions with their numbers as features, and the index of their wording as the feature `mode`.

    A question for which `choose_wording` returns None gets the first wording, index 0.

    Args:
        questions: The questions.
        wordings: The wordings.
        references: The starting model's samples by question id, which conditions may read.
        seed: The task's seed.

    Raises:
        Problem: E0922, if a question lacks a number that a condition reads.
    """
    require_numbers(list_choosers(wordings), questions)
    result = []
    for unplaced in questions:
        question = replace(unplaced, features=read_numbers(unplaced.meta))
        mode = choose_wording(wordings, references, seed, question) or 0
        result.append(replace(question, features={**question.features, "mode": float(mode)}))
    return result


@dataclass(frozen=True)
class Wordings:
    """The wordings of a stage's questions, i.e. variants of the prompt; without variants, a question has one prompt."""

    prompt: Prompt
    """The model's template."""
    tokenizer: Any
    """The model's tokenizer."""
    seed: int
    """The stage's seed."""
    wordings: tuple[Wording, ...] = ()
    """The variants of the prompt."""
    per: Literal["rollout", "question"] = "rollout"
    """With `rollout`, rollouts of a question take turns through the wordings; with `question` they share a random one."""
    learn_prefix: bool = False
    """True if a wording's prefix is trained with the response."""
    longest: int | None = None
    """The largest number of tokens of a prompt, without the wording's prefix."""
    teacher: Wording | None = None
    """The wording of a teacher's prompts; None if the teacher reads the policy's prompts."""
    choose: Callable[[PromptedQuestion], int | None] = lambda _: None
    """Returns the index of the wording that the question's properties select; None to choose by `per`."""

    @staticmethod
    def of(
        method: Ppo, model: Model, tokenizer: Any, seed: int, choose: Callable[[PromptedQuestion], int | None]
    ) -> Wordings:
        """Return the wordings of a stage.

        Args:
            method: The settings of the stage.
            model: The model's declaration, with its prompt.
            tokenizer: The model's tokenizer.
            seed: The stage's seed.
            choose: Returns the index of the wording that a question's properties select; None to choose by `per`.
        """
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
        self, question: PromptedQuestion, draw: int, question_index: int, rollouts: int
    ) -> list[PromptedQuestion]:
        """Return a question with the prompt of each of its rollouts.

        If `choose` returns a wording, all rollouts get it. Otherwise they take turns through the wordings, or share a
        random wording, as `per` says. The rollouts share one random budget. The features get `mode`, the index of the
        wording, and `budget`, if the wording has a budget. Without wordings the prompt stays unchanged, but a teacher's
        prompt is added if there is a teacher's wording.

        Args:
            question: The question.
            draw: The number of the sample of questions, counted over the stage.
            question_index: The index of the question in the sample. The stage's seed, `draw` and `question_index`
                determine the random choices.
            rollouts: The number of rollouts.

        Raises:
            Problem: E0933, if a wording makes the prompt too long.
        """
        if self.teacher is not None:
            wording, text = fill_answer(self.teacher, question, self.tokenizer)
            prompt, _ = render(self.prompt, wording, text, self.tokenizer)
            self._require_short(len(prompt), question, "the teacher's wording")
            question = replace(question, teacher_prompt=prompt)
        if not self.wordings:
            return [question] * rollouts
        count = len(self.wordings)
        if (mode := self.choose(question)) is not None:
            return [self._word(question, mode, draw, question_index)] * rollouts
        shared_mode = derive_seed(self.seed, "wording", draw, question_index) % count
        modes = [shared_mode if self.per == "question" else i % count for i in range(rollouts)]
        by_mode = {mode: self._word(question, mode, draw, question_index) for mode in set(modes)}
        return [by_mode[mode] for mode in modes]

    def require_room(self, question: PromptedQuestion) -> None:
        """Check that a question's prompt is at most `longest` tokens in every wording, with every budget.

        A range of budgets is checked at its two ends only. A wording's prefix is not counted.

        Raises:
            Problem: E0933, if a prompt is too long.
        """
        for wording in self.wordings:
            budgets = wording.budgets or ((wording.low, wording.high) if wording.draws else (None,))
            for budget in budgets:
                worded = with_budget(wording, budget)
                prompt, prefix = render(self.prompt, worded, question.text, self.tokenizer)
                self._require_short(len(prompt) - prefix, question, "its wording")

    def _word(self, question: PromptedQuestion, mode: int, draw: int, index: int) -> PromptedQuestion:
        """Return a question in a wording, with its prompt and features.

        Args:
            question: The question.
            mode: The index of the wording.
            draw: The number of the sample of questions, counted over the stage.
            index: The index of the question in the sample.

        Raises:
            Problem: E0933, if the prompt is too long.
        """
        wording = self.wordings[mode]
        features = {**question.features, "mode": float(mode)}
        budget: int | None = None
        if wording.draws:
            budget = choose_budget(wording, derive_seed(self.seed, "budget", draw, index))
            features["budget"] = float(budget)
        prompt, prefix = render(self.prompt, with_budget(wording, budget), question.text, self.tokenizer)
        self._require_short(len(prompt) - prefix, question, "its wording")
        trained = prefix if self.learn_prefix else 0
        return replace(question, prompt=prompt, trained_prefix=trained, features=features)

    def _require_short(self, count: int, question: PromptedQuestion, wording: str) -> None:
        """Raise E0933 if a prompt has more than `longest` tokens; nothing is checked if `longest` is None.

        Args:
            count: The number of tokens of the prompt.
            question: The question, for the message.
            wording: The wording in words, e.g. "the teacher's wording", for the message.
        """
        if self.longest is not None and count > self.longest:
            raise problem(
                "E0933",
                f"a prompt has {count} tokens with {wording}, and `max_prompt` is {self.longest}",
                where=f"question {question.id}",
                help=f"set `max_prompt` to {count} tokens or more",
            )


def choose_budget(wording: Wording, draw: int) -> int:
    """Return a budget in tokens from a wording's list or range, all equally likely.

    Args:
        wording: The wording.
        draw: A random 64-bit number, which decides.
    """
    if wording.budgets:
        return wording.budgets[draw % len(wording.budgets)]
    assert wording.low is not None
    assert wording.high is not None
    return wording.low + draw % (wording.high - wording.low + 1)


def with_budget(wording: Wording, budget: int | None) -> Wording:
    """Return a wording with `{budget}` replaced by a number of tokens in its texts; unchanged if the budget is None."""
    if budget is None:
        return wording
    texts = {"question": wording.question, "system": wording.system, "prefix": wording.prefix}
    filled = {name: text.replace("{budget}", str(budget)) if text else text for name, text in texts.items()}
    return wording.model_copy(update=filled)


def fill_answer(wording: Wording, question: PromptedQuestion, tokenizer: Any) -> tuple[Wording, str]:
    """Fill the question and its reference answer into a wording that contains `{answer}`.

    A wording without `{answer}` is returned unchanged, with the question's text. Text of the question or the answer that
    looks like a placeholder is not filled. If there are several reference answers, the first is used.

    Args:
        wording: The wording of a teacher.
        question: The question.
        tokenizer: The tokenizer, whose marks in the wording stay control tokens.

    Returns:
        A wording whose question template is `{question}` alone, and the filled text that replaces it.
    """
    if not ANSWER.search(wording.question):
        return wording, question.text
    values = {"{question}": question.text, "{answer}": question.gold.split(SEPARATOR)[0]}
    template = marks_of(tokenizer).keep(wording.question)
    text = re.sub(f"{{question}}|{ANSWER.pattern}", lambda match: values[match[0]], template)
    return wording.model_copy(update={"question": "{question}"}), text


def longest_prefix(wordings: Sequence[Wording], tokenizer: Any) -> int:
    """Return the largest number of tokens of the wordings' prefixes, over all budgets; 0 without wordings.

    All budgets of a range are tried, because a larger number may have fewer tokens.
    """
    longest = 0
    for wording in wordings:
        budget_varies = wording.draws and "{budget}" in wording.prefix
        budget_range = range(wording.low or 0, (wording.high or 0) + 1)
        for budget in (wording.budgets or budget_range) if budget_varies else (None,):
            prefix = with_budget(wording, budget).prefix
            longest = max(longest, len(continuation_tokens(tokenizer, prefix)))
    return longest


@lru_cache(maxsize=4096)
def render(prompt: Prompt, wording: Wording, text: str, tokenizer: Any) -> tuple[tuple[int, ...], int]:
    """Return the token ids of a question's prompt in a wording, with the wording's prefix at its end.

    Args:
        prompt: The model's own prompt, which the wording overrides.
        wording: The wording.
        text: The text of the question.
        tokenizer: The model's tokenizer.

    Returns:
        The token ids, and the number of tokens of the wording's prefix.
    """
    without_prefix = wording.over(prompt).model_copy(update={"prefix": prompt.prefix})
    prefix = continuation_tokens(tokenizer, wording.prefix) if wording.prefix else ()
    return (*render_prompt(without_prefix, text, tokenizer), *prefix), len(prefix)


_MAX_EXAMPLES = 3
"""The largest number of questions that a message names."""


def read_facts(meta: str) -> dict[str, Any]:
    """Return the values of a question's JSON metadata by path, e.g. `info.level` for a value in an inner object.

    The result is empty if the text is not JSON or is not a JSON object.
    """
    try:
        fields = json.loads(meta)
    except ValueError:
        return {}
    return dict(_iter_leaves(fields, "")) if isinstance(fields, dict) else {}


def _iter_leaves(record: Mapping[str, Any], path: str) -> Iterator[tuple[str, Any]]:
    """Yield the values in a JSON object and in its inner objects, with their paths after the prefix `path`."""
    for name, value in record.items():
        if isinstance(value, dict):
            yield from _iter_leaves(value, f"{path}{name}.")
        else:
            yield f"{path}{name}", value


def is_number(value: object) -> bool:
    """Return whether a value of metadata is a number; `true` and `false` are no numbers."""
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def read_numbers(meta: str) -> dict[str, float]:
    """Return the numbers of a question's JSON metadata by path."""
    return {name: float(value) for name, value in read_facts(meta).items() if is_number(value)}


def list_fields(expression: IR | Node) -> list[str]:
    """Return the names of the question's numbers that a reward or a condition reads, without repetition.

    Attributes in `READINGS`, such as `ended(y)`, are computed from the response, and are left out.
    """
    fields = dict.fromkeys(node.field for node in values_of(expression, Attribute))
    return [field for field in fields if field.partition("@")[0] not in READINGS]


def list_readers(method: Ppo) -> Iterator[tuple[str, str]]:
    """Yield pairs of a setting of the method and a number of the question that it reads.

    The settings are the reward and the wordings' conditions, in words such as "the reward `paid`". The reward's `budget`
    is left out if there are wordings, because it then comes from the wording.
    """
    for number in list_fields(method.reward):
        if number != "budget" or not method.wordings:
            yield f"the reward `{method.reward.name}`", number
    yield from list_choosers(method.wordings)


def list_choosers(wordings: Sequence[Wording]) -> Iterator[tuple[str, str]]:
    """Yield pairs of a wording, in words, and a number of the question that its condition reads."""
    for index, wording in enumerate(wordings):
        name = f"the wording `{wording.name}`" if wording.name else f"wording {index + 1}"
        for number in list_fields(wording.when) if wording.when is not None else ():
            yield name, number


def find_missing_number(
    reader: str, field: str, questions: Iterable[tuple[str, Mapping[str, Any]]]
) -> Diagnostic | None:
    """Return E0922 if a question lacks a number, or has a value there that is not a number; else None.

    Args:
        reader: The setting that reads the number, in words, such as "the reward `paid`".
        field: The path of the number in the metadata.
        questions: Pairs of a question's id and the result of `read_facts`.
    """
    rows = list(questions)
    wrong = [(name, facts.get(field)) for name, facts in rows if not is_number(facts.get(field))]
    if not wrong:
        return None
    not_numbers = [(name, value) for name, value in wrong if value is not None]
    examples = [
        f"question {name}: {json.dumps(value, default=str)[:60]}" if value is not None else f"question {name}"
        for name, value in (not_numbers or wrong)[:_MAX_EXAMPLES]
    ]
    if not_numbers:
        kind = (
            "true or false"
            if isinstance(not_numbers[0][1], bool)
            else "a list"
            if isinstance(not_numbers[0][1], list)
            else "text"
        )
        fault = f"is {kind} in {len(not_numbers)} of {len(rows)} questions"
        advice = "write a number in each row of that column"
    elif len(wrong) < len(rows):
        fault = f"{len(wrong)} of {len(rows)} questions do not have"
        advice = "give each question the number, or remove these rows from the data"
    else:
        numbers = {name for _, facts in rows[:1000] for name, value in facts.items() if is_number(value)}
        fault, examples = "no question has", []
        advice = (
            suggest(field, numbers, "the questions have the numbers")
            if numbers
            else "add it to the questions' `meta`"
        )
    return error(
        "E0922",
        f"{reader} reads `x.{field}`, which {fault}",
        where=reader.removeprefix("the ").replace("`", ""),
        notes=examples,
        help=advice,
    )
