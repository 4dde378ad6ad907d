"""Load the questions that a PPO stage can train on, where their responses are split, and the reference's samples."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import polars as pl

from reodsl.diagnostics import problem
from reodsl.graph.job import Job
from reodsl.ir.model import Model
from reodsl.ir.reward import Exits, QuestionBudgets, Reward, Steps
from reodsl.ir.training import Ppo
from runners.draws import met
from runners.rewards.splits import budget_places, question_places
from runners.rollout.questions import Question, fitting_questions, read_table, repeated_rows
from runners.train.rollouts import Reference


@dataclass(frozen=True, slots=True)
class Pool:
    """A stage's questions, the splits of their responses in tokens, and the reference's samples.

    All questions share `places`, or each has its `own_places`. `facts` are those of `StageRunner`.
    """

    questions: list[Question]
    places: tuple[int, ...] | None
    own_places: dict[str, tuple[int, ...]]
    references: dict[str, Reference]
    facts: dict[str, int]


def load_pool(method: Ppo, model: Model, job: Job, tokenizer: Any, seed: int) -> Pool:
    """Return the questions that can be trained on.

    Raises E0927 where none fits, E0930 where reference samples do not cover all alike, and E0932 where none has a budget.
    """
    table = read_table(job.inputs["data"])
    questions, too_long = fitting_questions(table, model.prompt, tokenizer, method.max_prompt)
    places, own_places = _places(method.reward, job, method.rollout.max_tokens, questions)
    asked = len(questions)
    if places is None and not _own_steps(method.reward):
        questions = [question for question in questions if question.id in own_places]
    references = _references(job, method) if "reference" in job.inputs else {}
    draws = int(job.task.payload["stage"]["steps"]) * (1 + method.resample)
    places_met = met(seed, draws, method.batch.prompts, len(questions))
    _require([questions[at] for at in places_met], references, job)
    facts = {
        "questions": len(questions),
        "left_out_too_long": too_long,
        "left_out_without_budget": asked - len(questions),
        **repeated_rows(job.inputs["data"]),
    }
    return Pool(questions, places, own_places, references, facts)


def _places(
    reward: Reward, job: Job, longest: int, questions: Sequence[Question]
) -> tuple[tuple[int, ...] | None, dict[str, tuple[int, ...]]]:
    """Return the splits that all questions share, or each question's own; neither where responses have their own."""
    split = reward.splits
    if split is None:
        return (longest,), {}
    chosen = (
        json.loads((job.inputs["budgets"] / "budgets.json").read_text("utf-8"))
        if "budgets" in job.inputs
        else None
    )
    if isinstance(split, QuestionBudgets):
        return None, dict(question_places(split, chosen, [question.id for question in questions]))
    return budget_places(split, chosen), {}


def _own_steps(reward: Reward) -> bool:
    """Return whether each response is split at places of its own: reasoning steps, or exits."""
    return isinstance(reward.splits, (Steps, Exits))


def _references(job: Job, method: Ppo) -> dict[str, Reference]:
    """Return lengths (tokens) and verdicts of the reference's samples by question."""
    table = pl.read_parquet(
        job.inputs["reference"] / "samples.parquet", columns=["question", "tokens", "correct"], glob=False
    )
    grouped = table.group_by("question", maintain_order=True).agg("tokens", "correct")
    references = {}
    for name, tokens, correct in grouped.iter_rows():
        kept = slice(0, method.reference_samples)
        references[name] = Reference(tuple(map(float, tokens[kept])), tuple(map(float, correct[kept])))
    return references


def _require(questions: list[Question], references: dict[str, Reference], job: Job) -> None:
    if not questions:
        raise problem(
            "E0932",
            "every question was dropped, because none has a budget",
            where=job.task.id,
            help="train on the questions that the budgets were found for, or keep the unsolved ones: `unsolved = l_max`",
        )
    sizes = (
        {len(references[q.id].lengths) if q.id in references else 0 for q in questions} if references else {1}
    )
    if len(sizes) > 1 or 0 in sizes:
        raise problem(
            "E0930",
            "the reference samples do not cover the questions alike",
            where="samples.parquet",
            notes=[f"samples a question: {', '.join(str(size) for size in sorted(sizes))}"],
            help="sample the same number of responses to every training question",
        )
