"""Read questions: their texts and references, their prompts as tokens, and the numbers that they are given."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import polars as pl

from reodsl.diagnostics import problem
from reodsl.ir.model import Prompt
from runners.prompts import prompt_tokens


@dataclass(frozen=True, slots=True)
class Question:
    """A question as a rollout is asked it.

    `meta` is its JSON metadata. `benchmark` is empty for training data. `prompt` has the tokens that a model reads, none
    before they are rendered; the last `trained_prefix` of them are trained with the response. `asked` are those that a
    teacher reads in their place, none where it reads the same. A reward may read the numbers `given`: those at the top of
    the metadata, and those of its wording.
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


def questions_of(table: pl.DataFrame, benchmark: str = "") -> list[Question]:
    """Return the questions of a table in their order, without prompts."""
    metas = table["meta"] if "meta" in table.columns else [None] * table.height
    rows = zip(table["id"], table["question"], table["answer"], metas, strict=True)
    return [
        Question(str(name), str(text), str(gold), str(meta or ""), benchmark)
        for name, text, gold, meta in rows
    ]


def render_questions(questions: Sequence[Question], prompt: Prompt, tokenizer: Any) -> list[Question]:
    """Return the questions with their prompts and the numbers of their metadata."""
    prompts = prompt_tokens(prompt, tokenizer, [q.text for q in questions], [q.meta for q in questions])
    return [
        replace(question, prompt=tokens, given=_numbers(question.meta))
        for question, tokens in zip(questions, prompts, strict=True)
    ]


def fitting_questions(
    table: pl.DataFrame, prompt: Prompt, tokenizer: Any, longest: int
) -> tuple[list[Question], int]:
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


def _numbers(meta: str) -> dict[str, float]:
    """Return the numbers at the top of a question's JSON metadata."""
    try:
        fields = json.loads(meta)
    except ValueError:
        return {}
    if not isinstance(fields, dict):
        return {}
    return {
        str(name): float(value)
        for name, value in fields.items()
        if isinstance(value, (int, float)) and not isinstance(value, bool)
    }


def shared_numbers(questions: Sequence[Question]) -> dict[str, list[float]]:
    """Return the given numbers that all of these questions have, by name, each in the order of the questions."""
    names = set.intersection(*(set(question.given) for question in questions)) if questions else set()
    return {name: [question.given[name] for question in questions] for name in sorted(names)}
