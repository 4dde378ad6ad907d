"""Questions as they are asked: read from a table, rendered as prompts, and worded in the ways that a method draws."""

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
from reodsl.ir.expression import READINGS, Given
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
class AskedQuestion:
    """A question as a rollout is asked it.

    `meta` is its JSON metadata. `benchmark` is empty for training data. `prompt` has the tokens that a model reads, none
    before they are rendered; the last `trained_prefix` of them are trained with the response. `asked` are those that a
    teacher reads in their place, none where it reads the same. A reward may read the numbers `given`: those of the metadata
    by their paths, and those of its wording.
    """

    id: str
    text: str
    gold: str
    meta: str = ""
    benchmark: str = ""
    prompt: tuple[int, ...] = ()
    trained_prefix: int = 0
    asked: tuple[int, ...] = ()
    given: Mapping[str, float] = field(default_factory=dict)


def read_table(folder: Path) -> pl.DataFrame:
    """Return the questions of a `data` artifact as they are stored."""
    return pl.read_parquet(folder / "questions.parquet", glob=False)


def repeated_rows(folder: Path) -> dict[str, int]:
    """Return how many rows a `data` artifact dropped as repeated, as a fact of `train.json`; empty where none."""
    path = folder / "left_out.json"
    return {"left_out_repeated": json.loads(path.read_bytes())["left_out_repeated"]} if path.exists() else {}


def questions_of(table: pl.DataFrame, benchmark: str = "") -> list[AskedQuestion]:
    """Return the questions of a table in their order, without prompts."""
    metas = table["meta"] if "meta" in table.columns else [None] * table.height
    rows = zip(table["id"], table["question"], table["answer"], metas, strict=True)
    return [
        AskedQuestion(str(name), str(text), str(gold), str(meta or ""), benchmark)
        for name, text, gold, meta in rows
    ]


def render_questions(
    questions: Sequence[AskedQuestion], prompt: Prompt, tokenizer: Any
) -> list[AskedQuestion]:
    """Return the questions with their prompts and the numbers of their metadata."""
    prompts = prompt_tokens(prompt, tokenizer, [question.text for question in questions])
    return [
        replace(question, prompt=tokens, given=read_numbers(question.meta))
        for question, tokens in zip(questions, prompts, strict=True)
    ]


def fitting_questions(
    table: pl.DataFrame, prompt: Prompt, tokenizer: Any, longest: int
) -> tuple[list[AskedQuestion], int]:
    """Return the questions whose prompts have at most `longest` tokens, and how many have more.

    Raises E0927 where none fits.
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


def require_numbers(readers: Iterable[tuple[str, str]], questions: Sequence[AskedQuestion]) -> None:
    """Raise E0922 for the first number that its reader, as "the reward `paid`", reads and that a question lacks."""
    for asker, name in readers:
        missing = find_missing_number(asker, name, ((each.id, read_facts(each.meta)) for each in questions))
        if missing is not None:
            raise Problem(missing)


def shared_numbers(questions: Sequence[AskedQuestion]) -> dict[str, list[float]]:
    """Return the given numbers that all of these questions have, by name, each in the order of the questions."""
    names = set.intersection(*(set(question.given) for question in questions)) if questions else set()
    return {name: [question.given[name] for question in questions] for name in sorted(names)}


@dataclass(frozen=True, slots=True)
class Reference:
    """The reference model's frozen samples of a question: tokens and verdicts (1 or 0), and those of thinking if counted."""

    lengths: tuple[float, ...]
    correct: tuple[float, ...]
    thinking: tuple[float, ...] = ()

    def responses(self) -> tuple[RewardedResponse, ...]:
        """Return them as a reward reads them."""
        pairs = zip(self.lengths, self.correct, strict=True)
        given = [{"thinking": each} for each in self.thinking] or [{}] * len(self.lengths)
        return tuple(
            RewardedResponse(int(length), bool(right), given=more)
            for (length, right), more in zip(pairs, given, strict=True)
        )


def read_references(folder: Path, count: int) -> dict[str, Reference]:
    """Return lengths (tokens) and verdicts of the first `count` of a `sample` artifact's responses, by question."""
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
    wordings: Sequence[Wording], references: Mapping[str, Reference], seed: int, question: AskedQuestion
) -> int | None:
    """Return the place of the first wording that is for a question; None where each is for all.

    Of the questions for which a `when` holds, `share` are asked in its wording: a draw of the task's `seed`, the question's
    id and the place alone. `references` are the reference model's samples of each question.
    """
    if not any(wording.selective for wording in wordings):
        return None
    reference = references.get(question.id)
    group = ResponseGroup(question.id, (), () if reference is None else reference.responses())
    asked = {"y": RewardedResponse(0, False, given=question.given)}
    for place, each in enumerate(wordings):
        name = f"wording `{each.name}`" if each.name else f"wording {place + 1}"
        holds = each.when is None or measure(name, each.when, group, asked, {})
        if holds and derive_seed(seed, f"share\0{question.id}", place) < each.share * 2**64:
            return place
    return None


def place_wordings(
    questions: Sequence[AskedQuestion],
    wordings: Sequence[Wording],
    references: Mapping[str, Reference],
    seed: int,
) -> list[AskedQuestion]:
    """Return questions with their numbers, of which `mode` is the place of the wording of each. Raises E0922."""
    require_numbers(list_choosers(wordings), questions)
    placed = []
    for each in questions:
        question = replace(each, given=read_numbers(each.meta))
        mode = choose_wording(wordings, references, seed, question) or 0
        placed.append(replace(question, given={**question.given, "mode": float(mode)}))
    return placed


@dataclass(frozen=True)
class Wordings:
    """The wordings of a stage's questions. Without any, each rollout has the question's own prompt.

    `learn_prefix` makes a wording's prefix part of what is trained. `longest` bounds a prompt without it. A teacher is asked
    in the words of `teacher`, or reads what the policy does. `choose` gives the place of a question's wording, where a
    property of the question decides.
    """

    prompt: Prompt
    tokenizer: Any
    seed: int
    wordings: tuple[Wording, ...] = ()
    per: Literal["rollout", "question"] = "rollout"
    learn_prefix: bool = False
    longest: int | None = None
    teacher: Wording | None = None
    choose: Callable[[AskedQuestion], int | None] = lambda _: None

    @staticmethod
    def of(
        method: Ppo, model: Model, tokenizer: Any, seed: int, choose: Callable[[AskedQuestion], int | None]
    ) -> Wordings:
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
            choose,
        )

    def ask(self, question: AskedQuestion, draw: int, position: int, rollouts: int) -> list[AskedQuestion]:
        """Return the question as each of its rollouts is asked it.

        The budget and a wording of the whole question are a function of seed, draw and position, and all rollouts share
        the budget. The numbers of a wording are `mode`, its place, and `budget` where one is drawn. Raises E0933 where a
        wording makes the prompt too long.
        """
        if self.teacher is not None:
            words, text = told(self.teacher, question, self.tokenizer)
            prompt, _ = rendered(self.prompt, words, text, self.tokenizer)
            self._require_short(len(prompt), question, "the teacher's wording")
            question = replace(question, asked=prompt)
        if not self.wordings:
            return [question] * rollouts
        count = len(self.wordings)
        if (place := self.choose(question)) is not None:
            return [self._word(question, place, draw, position)] * rollouts
        chosen = derive_seed(self.seed, "wording", draw, position) % count
        modes = [chosen if self.per == "question" else i % count for i in range(rollouts)]
        by_mode = {mode: self._word(question, mode, draw, position) for mode in set(modes)}
        return [by_mode[mode] for mode in modes]

    def require_room(self, question: AskedQuestion) -> None:
        """Raise E0933 where any wording makes a question's prompt too long, with any of the budgets that it draws."""
        for wording in self.wordings:
            budgets = wording.budgets or ((wording.low, wording.high) if wording.draws else (None,))
            for budget in budgets:
                asked = with_budget(wording, budget)
                prompt, prefix = rendered(self.prompt, asked, question.text, self.tokenizer)
                self._require_short(len(prompt) - prefix, question, "its wording")

    def _word(self, question: AskedQuestion, mode: int, draw: int, position: int) -> AskedQuestion:
        wording = self.wordings[mode]
        given = {**question.given, "mode": float(mode)}
        budget: int | None = None
        if wording.draws:
            budget = drawn_budget(wording, derive_seed(self.seed, "budget", draw, position))
            given["budget"] = float(budget)
        prompt, prefix = rendered(self.prompt, with_budget(wording, budget), question.text, self.tokenizer)
        self._require_short(len(prompt) - prefix, question, "its wording")
        trained = prefix if self.learn_prefix else 0
        return replace(question, prompt=prompt, trained_prefix=trained, given=given)

    def _require_short(self, count: int, question: AskedQuestion, wording: str) -> None:
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


def told(wording: Wording, question: AskedQuestion, tokenizer: Any) -> tuple[Wording, str]:
    """Return the wording, and the text that it asks: the question, or also its answer where the wording tells that.

    The answer is the first of several. Neither text is read for a place of the other.
    """
    if not ANSWER.search(wording.question):
        return wording, question.text
    known = {"{question}": question.text, "{answer}": question.gold.split(SEPARATOR)[0]}
    frame = marks_of(tokenizer).keep(wording.question)
    text = re.sub(f"{{question}}|{ANSWER.pattern}", lambda place: known[place[0]], frame)
    return wording.model_copy(update={"question": "{question}"}), text


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
def rendered(prompt: Prompt, wording: Wording, text: str, tokenizer: Any) -> tuple[tuple[int, ...], int]:
    """Return a question's tokens in a wording, its prefix at the end, and how many those of the prefix are."""
    bare = wording.over(prompt).model_copy(update={"prefix": prompt.prefix})
    prefix = continuation_tokens(tokenizer, wording.prefix) if wording.prefix else ()
    return (*render_prompt(bare, text, tokenizer), *prefix), len(prefix)


_EXAMPLES = 3


def read_facts(meta: str) -> dict[str, Any]:
    """Return what a question's JSON metadata holds, each value by its path: `info.level` for a number in a record."""
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
    """Return the numbers of a question's JSON metadata by their paths."""
    return {name: float(value) for name, value in read_facts(meta).items() if is_number(value)}


def list_fields(rule: IR | Node) -> list[str]:
    """Return the numbers of a question that a reward or a condition reads, each once."""
    fields = dict.fromkeys(each.field for each in values_of(rule, Given))
    return [field for field in fields if field.partition("@")[0] not in READINGS]


def list_readers(method: Ppo) -> Iterator[tuple[str, str]]:
    """Yield who reads a number of the questions of a training, as "the reward `paid`", and which; not a wording's budget."""
    for number in list_fields(method.reward):
        if number != "budget" or not method.wordings:
            yield f"the reward `{method.reward.name}`", number
    yield from list_choosers(method.wordings)


def list_choosers(wordings: Sequence[Wording]) -> Iterator[tuple[str, str]]:
    """Yield which wording is chosen by a number of the questions, and by which."""
    for place, wording in enumerate(wordings):
        name = f"the wording `{wording.name}`" if wording.name else f"wording {place + 1}"
        for number in list_fields(wording.when) if wording.when is not None else ():
            yield name, number


def find_missing_number(
    asker: str, field: str, questions: Iterable[tuple[str, Mapping[str, Any]]]
) -> Diagnostic | None:
    """Return E0922 where questions lack a number that is read: none has it, some do not, or it is no number there.

    `questions` are ids with what `read_facts` finds.
    """
    rows = list(questions)
    wrong = [(name, facts.get(field)) for name, facts in rows if not is_number(facts.get(field))]
    if not wrong:
        return None
    other = [(name, value) for name, value in wrong if value is not None]
    shown = [
        f"question {name}: {json.dumps(value, default=str)[:60]}" if value is not None else f"question {name}"
        for name, value in (other or wrong)[:_EXAMPLES]
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
        there = {name for _, facts in rows[:1000] for name, value in facts.items() if is_number(value)}
        says, shown = "no question has", []
        helps = (
            suggest(field, there, "the questions have the numbers")
            if there
            else "add it to the questions' `meta`"
        )
    return error(
        "E0922",
        f"{asker} reads `x.{field}`, which {says}",
        where=asker.removeprefix("the ").replace("`", ""),
        notes=shown,
        help=helps,
    )
