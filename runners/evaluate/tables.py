"""Tables of evaluated responses: their rows, curves and summaries, and the chunks that are stored during the work."""

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
"""A function from the token ids of a response to its text without the stop token."""

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
    """Return the rows of `samples.parquet`, one per response, with the verdict on the response's own answer.

    Args:
        graded: The graded responses.
        text: Decodes the tokens of a response.
    """
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
    """Return the rows of `forced.parquet`, one per response and budget, and of `examples.parquet`.

    At a budget that is at least the response's length, or if no answer was forced, the row has the verdict on the full
    response. Its column `forced` is then false.

    Args:
        graded: The graded responses.
        grid: The budgets in tokens.
        text: Decodes tokens.
        example_ids: The benchmark and id of each question whose first sample is an example.
    """
    rows, examples = [], []
    for result in graded:
        question, response, sample = result.rollout.question, result.rollout.response, result.rollout.number
        forced_tokens = {forced.cut: forced.tokens for forced in result.rollout.forced}
        for budget in grid:
            forced = budget in result.forced
            answer, verdict = result.forced.get(budget, result.answer)
            keys = (question.benchmark, question.id, sample, budget)
            verdict_columns = (answer.text or None, verdict.correct)
            rows.append((*keys, forced, *verdict_columns, verdict.unsettled if forced else None))
            if sample == 0 and keys[:2] in example_ids:
                characters = len(text(response.sequence(min(budget, len(response.tokens)))))
                examples.append(
                    (*keys, characters, text(forced_tokens[budget]) if forced else None, *verdict_columns)
                )
    return (
        pl.DataFrame(rows, schema=FORCED, orient="row"),
        pl.DataFrame(examples, schema=EXAMPLES, orient="row"),
    )


MEAN = "mean"


def curves(forced: Path, benchmarks: Sequence[str]) -> dict[str, dict[str, list[float]]]:
    """Return the curve J(L) of each benchmark: the mean verdict on forced answers over questions and samples.

    Args:
        forced: `forced.parquet` of an evaluation.
        benchmarks: The benchmarks, in the order of the result.

    Returns:
        For each benchmark, `budgets` in tokens and `accuracy` (0 to 1).
    """
    frame = (
        pl.scan_parquet(forced, glob=False)
        .group_by("benchmark", "budget")
        .agg(pl.col("correct").cast(pl.Float64).mean().alias("accuracy"))
        .sort("benchmark", "budget")
        .collect(engine="streaming")
    )
    frames = {name: frame.filter(pl.col("benchmark") == name) for name in benchmarks}
    return {
        name: {"budgets": curve["budget"].to_list(), "accuracy": curve["accuracy"].to_list()}
        for name, curve in frames.items()
    }


UNSETTLED = {"verifier_timeouts": "timeout", "verifier_failures": "failed"}
"""The columns of counts of answers that were not judged, and so count as wrong, with the verifier's reason for each."""


def summary(samples: Path, forced: Path, benchmarks: Sequence[str]) -> dict[str, dict[str, Any]]:
    """Return each benchmark's accuracy, mean length in tokens, share of unfinished responses, and counts.

    Args:
        samples: `samples.parquet` of an evaluation.
        forced: `forced.parquet` of the evaluation.
        benchmarks: The benchmarks, in the order of the result.

    Returns:
        The numbers by benchmark. The further key `mean` has averages over benchmarks, sums of counts, and the largest
        number of samples.
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
    unsettled = _count_unjudged((samples, forced))
    by_benchmark: dict[str, dict[str, Any]] = {
        name: rows[name] | {key: unsettled.get((name, reason), 0) for key, reason in UNSETTLED.items()}
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


def _count_unjudged(files: Sequence[Path]) -> dict[tuple[str, str], int]:
    """Return how many answers in the files were not judged, by (benchmark, kind of failure), e.g. `timeout`."""
    rows = [
        pl.scan_parquet(file, glob=False)
        .filter(pl.col("unsettled").is_not_null())
        # The first word is the kind of failure.
        .group_by("benchmark", pl.col("unsettled").str.extract(r"^(\w+)"))
        .len()
        .collect(engine="streaming")
        for file in files
    ]
    totals = pl.concat(rows).group_by("benchmark", "unsettled").agg(pl.col("len").sum())
    return {(benchmark, reason): int(count) for benchmark, reason, count in totals.iter_rows()}


class Chunks:
    """The chunks of a task's tables, stored in a folder."""

    def __init__(self, folder: Path) -> None:
        """Open the folder, and remove chunks that were not completed."""
        self._folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        for unfinished in folder.glob("*.part"):
            shutil.rmtree(unfinished)

    def done(self, index: int) -> bool:
        """Return whether a chunk is stored."""
        return self._path(index).is_dir()

    def put(self, index: int, tables: Mapping[str, pl.DataFrame]) -> None:
        """Store the tables of a chunk atomically: they are written under another name, which is then changed."""
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
        """Write a table of the chunks 0 … count - 1 in their order to a single file, without loading it into memory."""
        files = [self._path(index) / f"{table}.parquet" for index in range(count)]
        pl.scan_parquet(files, glob=False).sink_parquet(path, maintain_order=True)

    def _path(self, index: int) -> Path:
        """Return the folder of a stored chunk."""
        return self._folder / f"{index:07d}"
