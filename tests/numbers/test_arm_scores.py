"""An arm's scores against loops over its rows, and files that lack some."""

from __future__ import annotations

from pathlib import Path
from statistics import mean

import numpy as np
import polars as pl
import pytest

from reodsl.diagnostics import Problem
from reodsl.numbers.arm_scores import arm_scores

QUESTIONS = {"hard": ["h2", "h1"], "easy": ["e3", "e1", "e2"]}
BUDGETS = (4, 8)


def written(folder: Path) -> tuple[list[dict[str, object]], list[dict[str, object]]]:
    """Write two samples and three forced answers a question, by a draw, and return their rows."""
    draw = np.random.default_rng(7)
    samples, forced = [], []
    for benchmark, questions in QUESTIONS.items():
        for question in questions:
            of = {"benchmark": benchmark, "question": question}
            for _ in range(2):
                samples.append({**of, "correct": bool(draw.integers(2)), "tokens": int(draw.integers(1, 99))})
            for budget in BUDGETS:
                forced += [{**of, "budget": budget, "correct": bool(draw.integers(2))} for _ in range(3)]
    pl.DataFrame(samples).write_parquet(folder / "samples.parquet")
    pl.DataFrame(forced).write_parquet(folder / "forced.parquet")
    return samples, forced


@pytest.mark.parametrize("lot", [1, 7, 1000])
def test_scores_are_means_over_a_questions_rows(tmp_path: Path, lot: int) -> None:
    samples, forced = written(tmp_path)
    found, budgets = arm_scores(tmp_path, "it", lot)
    assert budgets == BUDGETS
    for benchmark, questions in QUESTIONS.items():
        for column, of_questions in (("correct", found.accuracy), ("tokens", found.length)):
            wanted = [mean(row[column] for row in samples if row["question"] == q) for q in sorted(questions)]
            assert of_questions[benchmark].tolist() == pytest.approx(wanted)
        for at, question in enumerate(sorted(questions)):
            for k, budget in enumerate(BUDGETS):
                own = [
                    row["correct"] for row in forced if (row["question"], row["budget"]) == (question, budget)
                ]
                assert found.forced[benchmark][at, k] == pytest.approx(mean(own))


def test_a_question_without_a_budget_is_an_error_that_counts(tmp_path: Path) -> None:
    _, forced = written(tmp_path)
    left = [row for row in forced if (row["question"], row["budget"]) != ("e2", 8)]
    pl.DataFrame(left).write_parquet(tmp_path / "forced.parquet")
    with pytest.raises(Problem) as caught:
        arm_scores(tmp_path, "it")
    (one,) = caught.value.diagnostics
    assert (one.code, one.where) == ("E0431", "easy")
    assert one.message == "`it` has 5 forced scores for 3 questions at 2 budgets"
