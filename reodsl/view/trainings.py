"""Read the rollouts of a training: of a step, or of a question over all steps."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars as pl
from polars.selectors import by_name

from reodsl.report.examples import MOST_CHARACTERS, shorten
from reodsl.store.store import Store

_SHOWN = [
    "step", "question", "rollout", "tokens", "finish", "correct", "reward", "parts", "advantages",
    "cuts", "forced", "thinking", "thinking_ended", "mode", "budget", "text",
]  # fmt: skip


@dataclass(frozen=True, slots=True)
class Training:
    """The rollouts of a stage."""

    arm: str
    """Name of the arm."""
    task: str
    """Task of the training."""
    key: str
    """Key of its result."""
    files: tuple[Path, ...]
    """Tables of rollouts: one if the stage has ended, else one for each step."""
    data: Path | None
    """Table with the texts of its questions."""
    is_complete: bool
    """True if the stage has ended."""
    wordings: tuple[str, ...] = ()
    """Names of the wordings of its questions."""

    def scan(self) -> pl.LazyFrame:
        """Return the rollouts as a lazy frame."""
        # An earlier version may have written steps before an interruption, with fewer columns.
        return pl.scan_parquet(list(self.files), glob=False, missing_columns="insert", extra_columns="ignore")


def find_training(
    store: Store, arm: str, task: str, key: str, inputs: Mapping[str, str], wordings: tuple[str, ...] = ()
) -> Training | None:
    """Return a training, ended or still running, with its files of rollouts; None if it has no rollouts yet.

    Args:
        store: The store.
        arm: Name of the arm.
        task: Name of the task.
        key: Key of the task's result.
        inputs: Keys of the task's inputs, by role.
        wordings: Names of the wordings of its questions.
    """
    table = store.path(key) / "rollouts.parquet"
    is_complete = table.is_file()
    files = (
        (table,) if is_complete else tuple(sorted((store.root / "work" / key / "rollouts").glob("*.parquet")))
    )
    data = store.path(inputs["data"]) / "questions.parquet" if "data" in inputs else None
    has_data = data is not None and data.is_file()
    return (
        Training(arm, task, key, files, data if has_data else None, is_complete, wordings) if files else None
    )


def list_rollouts(
    training: Training, step: int | None, question: str | None, offset: int, limit: int
) -> dict[str, Any]:
    """Return a page of the rollouts of a step, or of a question over all steps.

    In a step, the question whose rewards have the largest standard deviation comes first.

    Args:
        training: The training.
        step: Number of a step; None for the last step. It does not count if a question is named.
        question: Id of a question, or None.
        offset: Number of rollouts before the page.
        limit: Rollouts on the page at most.

    Returns:
        `steps` and `step`, the last and the shown step; `total`, the number of rollouts of the step or question; `means`
        of reward, length and verdict over all of them; `rollouts`, the page; and `questions`, texts by id.
    """
    table = training.scan()
    steps = int(table.select(pl.col("step").max()).collect().item() or 0)
    step = min(step or steps, steps)
    if question is None:
        spread = pl.col("reward").fill_nan(None).std().over("question").fill_null(0)
        table = table.filter(step=step).sort(spread, descending=True, maintain_order=True)
    else:
        table = table.filter(question=question)
    numbers = pl.col("reward", "tokens", "correct").cast(pl.Float64)
    means = table.select(numbers.mean(), pl.len().alias("total")).collect().row(0, named=True)
    columns = table.slice(offset, limit).select(by_name(_SHOWN, require_all=False))
    page = [_describe_rollout(training, row) for row in columns.collect().to_dicts()]
    question_texts = _read_questions(training.data, {row["question"] for row in page})
    return {
        "steps": steps,
        "step": step,
        "total": means.pop("total"),
        "offset": offset,
        "means": means,
        "rollouts": page,
        "questions": question_texts,
    }


def _describe_rollout(training: Training, row: dict[str, Any]) -> dict[str, Any]:
    """Return a row of the table of rollouts for the page, with a shortened text and the name of its wording."""
    mode = row.pop("mode", None)
    has_name = mode is not None and 0 <= mode < len(training.wordings)
    wording = {"wording": training.wordings[mode]} if has_name else {}
    return row | wording | {"text": shorten(row["text"]) if row.get("text") else None}


def _read_questions(data: Path | None, questions: set[str]) -> dict[str, str]:
    """Return the texts of questions, cut to `MOST_CHARACTERS`, by id.

    Args:
        data: Table of all questions; None gives no texts.
        questions: Ids of the questions.
    """
    if data is None:
        return {}
    table = pl.scan_parquet(data, glob=False).filter(pl.col("id").is_in(list(questions)))
    return dict(table.select("id", pl.col("question").str.slice(0, MOST_CHARACTERS)).collect().iter_rows())
