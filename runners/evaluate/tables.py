"""Tables of evaluated responses: rows, curves and summaries, and chunks kept as work goes on."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import polars as pl

from reodsl.store.files import sync
from reodsl.store.live import mark_kept
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
    for result in graded:
        question, response, (answer, verdict) = (
            result.rollout.question,
            result.rollout.response,
            result.answer,
        )
        rows.append(
            (
                question.benchmark,
                question.id,
                question.text,
                question.gold,
                result.rollout.number,
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
    graded: Sequence[GradedRollout], grid: Sequence[int], text: Text, example_ids: frozenset[tuple[str, str]]
) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Return rows of `forced.parquet` at every budget of the grid, and rows of `examples.parquet`.

    A response that is no longer than a budget has the verdict on its own answer there.

    Args:
        graded: graded responses.
        grid: budgets in tokens.
        text: decodes tokens.
        example_ids: benchmark and id of each question whose first sample is an example.
    """
    rows, examples = [], []
    for result in graded:
        question, response, number = result.rollout.question, result.rollout.response, result.rollout.number
        words = {forced.cut: forced.tokens for forced in result.rollout.forced}
        for budget in grid:
            forced = budget in result.forced
            answer, verdict = result.forced.get(budget, result.answer)
            keys = (question.benchmark, question.id, number, budget)
            verdict_columns = (answer.text or None, verdict.correct)
            rows.append((*keys, forced, *verdict_columns, verdict.unsettled if forced else None))
            if number == 0 and keys[:2] in example_ids:
                characters = len(text(response.sequence(min(budget, len(response.tokens)))))
                examples.append(
                    (*keys, characters, text(words[budget]) if forced else None, *verdict_columns)
                )
    return (
        pl.DataFrame(rows, schema=FORCED, orient="row"),
        pl.DataFrame(examples, schema=EXAMPLES, orient="row"),
    )


MEAN = "mean"


def curves(forced: Path, benchmarks: Sequence[str]) -> dict[str, dict[str, list[float]]]:
    """Return J(L), the mean verdict on forced answers over questions and samples.

    Args:
        forced: `forced.parquet` of an evaluation.
        benchmarks: names in the order of the result.

    Returns:
        `budgets` in tokens and `accuracy` (0 to 1) of each benchmark.
    """
    frame = (
        pl.scan_parquet(forced, glob=False)
        .group_by("benchmark", "budget")
        .agg(pl.col("correct").cast(pl.Float64).mean().alias("accuracy"))
        .sort("benchmark", "budget")
        .collect(engine="streaming")
    )
    by_benchmark = {}
    for name in benchmarks:
        rows = frame.filter(pl.col("benchmark") == name)
        by_benchmark[name] = {"budgets": rows["budget"].to_list(), "accuracy": rows["accuracy"].to_list()}
    return by_benchmark


UNSETTLED = {"verifier_timeouts": "timeout", "verifier_failures": "failed"}
"""Counts of answers that were never judged, and so count as wrong, by what stopped the verifier."""


def summary(samples: Path, forced: Path, benchmarks: Sequence[str]) -> dict[str, dict[str, Any]]:
    """Return each benchmark's accuracy, mean length in tokens, unfinished share and counts; `mean` averages them.

    Answers that were never judged are counted, forced or not.
    """
    frame = (
        pl.scan_parquet(samples, glob=False)
        .group_by("benchmark")
        .agg(
            pl.col("correct").cast(pl.Float64).mean().alias("accuracy"),
            pl.col("tokens").mean().alias("length"),
            pl.col("question").n_unique().alias("questions"),
            (pl.col("sample").max() + 1).alias("samples"),
            (pl.col("finish") == "length").cast(pl.Float64).mean().alias("unfinished"),
        )
        .collect(engine="streaming")
    )
    rows = {row.pop("benchmark"): row for row in frame.to_dicts()}
    unsettled = _unsettled((samples, forced))
    by_benchmark: dict[str, dict[str, Any]] = {
        name: rows[name] | {key: unsettled.get((name, why), 0) for key, why in UNSETTLED.items()}
        for name in benchmarks
    }
    measures = ("accuracy", "length", "unfinished")
    by_benchmark[MEAN] = {
        m: sum(by_benchmark[name][m] for name in benchmarks) / len(benchmarks) for m in measures
    } | {
        "questions": sum(by_benchmark[name]["questions"] for name in benchmarks),
        "samples": max(by_benchmark[name]["samples"] for name in benchmarks),
        **{key: sum(by_benchmark[name][key] for name in benchmarks) for key in UNSETTLED},
    }
    return by_benchmark


def _unsettled(files: Sequence[Path]) -> dict[tuple[str, str], int]:
    """Return how many answers of a benchmark were never judged, by the reason."""
    rows = [
        pl.scan_parquet(file, glob=False)
        .filter(pl.col("unsettled").is_not_null())
        # What comes after it is the reason.
        .group_by("benchmark", pl.col("unsettled").str.extract(r"^(\w+)"))
        .len()
        .collect(engine="streaming")
        for file in files
    ]
    totals = pl.concat(rows).group_by("benchmark", "unsettled").agg(pl.col("len").sum())
    return {(benchmark, why): int(count) for benchmark, why, count in totals.iter_rows()}


class Chunks:
    """Chunks of a task's tables, kept in its work folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        for unfinished in folder.glob("*.part"):
            shutil.rmtree(unfinished)

    def done(self, index: int) -> bool:
        """Return whether a chunk is complete."""
        return self._path(index).is_dir()

    def put(self, index: int, tables: Mapping[str, pl.DataFrame]) -> None:
        """Store a chunk's tables: written to the disk under another name, then renamed at once."""
        folder = self._folder / f"{index:07d}.part"
        folder.mkdir()
        for name, frame in tables.items():
            path = folder / f"{name}.parquet"
            frame.write_parquet(path)
            sync(path)
        folder.rename(self._path(index))
        mark_kept(self._folder.parent, sum(1 for _ in self._folder.iterdir()))

    def get(self, index: int, table: str, columns: Sequence[str]) -> pl.DataFrame:
        """Return the given columns of a chunk's table."""
        return pl.read_parquet(self._path(index) / f"{table}.parquet", columns=list(columns), glob=False)

    def join(self, count: int, table: str, path: Path) -> None:
        """Write a table of the chunks 0 … count - 1 in their order to a single file, without holding it in memory."""
        parts = [self._path(index) / f"{table}.parquet" for index in range(count)]
        pl.scan_parquet(parts, glob=False).sink_parquet(path, maintain_order=True)

    def _path(self, index: int) -> Path:
        return self._folder / f"{index:07d}"
