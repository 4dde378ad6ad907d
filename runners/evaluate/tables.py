"""Lay out graded rollouts as rows: samples, forced answers and examples."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import polars as pl

from runners.rollout.grader import GradedRollout

Tables = Mapping[str, pl.DataFrame]
Text = Callable[[Sequence[int]], str]
"""The text of a response's tokens, without its stop token."""

SAMPLES = {
    "benchmark": pl.String,
    "question": pl.String,
    "text": pl.String,
    "gold": pl.String,
    "sample": pl.Int64,
    "response": pl.String,
    "tokens": pl.Int64,
    "finish": pl.String,
    "answer": pl.String,
    "correct": pl.Boolean,
    "unsettled": pl.String,
}
FORCED = {
    "benchmark": pl.String,
    "question": pl.String,
    "sample": pl.Int64,
    "budget": pl.Int64,
    "forced": pl.Boolean,
    "answer": pl.String,
    "correct": pl.Boolean,
    "unsettled": pl.String,
}
EXAMPLES = {
    "benchmark": pl.String,
    "question": pl.String,
    "sample": pl.Int64,
    "budget": pl.Int64,
    "characters": pl.Int64,
    "forced_text": pl.String,
    "answer": pl.String,
    "correct": pl.Boolean,
}


def sample_rows(graded: Sequence[GradedRollout], text: Text) -> pl.DataFrame:
    """Return rows of `samples.parquet`."""
    rows = []
    for one in graded:
        question, response, (answer, verdict) = one.rollout.question, one.rollout.response, one.whole
        rows.append(
            (
                question.benchmark,
                question.id,
                question.text,
                question.gold,
                one.rollout.number,
                text(response.sequence()),
                len(response.tokens),
                response.finish,
                answer.text or None,
                verdict.correct,
                verdict.unsettled,
            )
        )
    return pl.DataFrame(rows, schema=SAMPLES, orient="row")


def forced_rows(
    graded: Sequence[GradedRollout], grid: Sequence[int], text: Text, shown: frozenset[tuple[str, str]]
) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Return rows of `forced.parquet` at every budget of the grid, and of `examples.parquet` for the questions `shown`.

    A response that nothing was forced out of at a budget, because it is no longer, has the verdict on the whole of it.
    """
    rows, examples = [], []
    for one in graded:
        question, response, number = one.rollout.question, one.rollout.response, one.rollout.number
        words = {forced.cut: forced.tokens for forced in one.rollout.forced}
        for budget in grid:
            forced = budget in one.forced
            answer, verdict = one.forced.get(budget, one.whole)
            keys = (question.benchmark, question.id, number, budget)
            given = (answer.text or None, verdict.correct)
            rows.append((*keys, forced, *given, verdict.unsettled if forced else None))
            if number == 0 and keys[:2] in shown:
                characters = len(text(response.sequence(min(budget, len(response.tokens)))))
                examples.append((*keys, characters, text(words[budget]) if forced else None, *given))
    return (
        pl.DataFrame(rows, schema=FORCED, orient="row"),
        pl.DataFrame(examples, schema=EXAMPLES, orient="row"),
    )
