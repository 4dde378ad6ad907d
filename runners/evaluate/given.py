"""Imported responses of another run: found by question in a table, and converted to tokens again."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import polars as pl

from reodsl.diagnostics import group, problem
from reodsl.graph.job import Job
from runners.engine.protocol import NO_NUMBERS, Generation
from runners.models.marks import encode_traces

Texts = Mapping[tuple[str, str], Sequence[tuple[str, bool, int]]]
"""The responses to each (benchmark, question), in order: the text, whether it ended, and its number of tokens."""
CHECKED_RESPONSES = 64
"""The number of responses whose tokens are counted before answers are forced."""
_COUNT_TOLERANCE = 0.05
"""The relative tolerance between the tokenizer's counts and the table's."""


def name_responses(job: Job, benchmarks: Iterable[str]) -> pl.DataFrame:
    """Return the imported responses of a task's base model, with the suite's ids of their questions.

    `sample` counts the responses to a question from 0. A missing `finish` becomes `stop`.

    Args:
        job: The job, with the imported table and the model's name in its work, and the questions among its inputs.
        benchmarks: The names of the benchmarks.
    """
    base = job.task.work["base"]
    frame = pl.scan_parquet(job.folder / base.path, glob=False).filter(model=base.of)
    responses = pl.concat(
        [_match(frame, job.inputs[f"data:{name}"] / "questions.parquet", name) for name in benchmarks]
    )
    return responses.with_columns(
        pl.col("finish").fill_null("stop"), pl.col("sample").rank("dense").over("benchmark", "question") - 1
    )


def read_texts(job: Job, benchmarks: Iterable[str]) -> Texts:
    """Return the texts of the imported responses by benchmark and question, as `Texts` describes.

    Raises:
        Problem: E0438, if a response has no text, or the imported questions are not those of the suite.
    """
    rows = name_responses(job, benchmarks).sort("benchmark", "question", "sample")
    if rows["response"].null_count():
        raise _misfit(
            job,
            f"{rows['response'].null_count()} responses have no text, so no answers can be forced",
            "import them with their texts: `--column response=NAME`",
        )
    columns = ("benchmark", "question", "response", "finish", "tokens")
    return group(
        ((benchmark, question), (text, finish == "stop", tokens or 0))
        for benchmark, question, text, finish, tokens in rows.select(columns).iter_rows()
    )


def require_own_tokens(job: Job, texts: Texts, tokenizer: Any) -> None:
    """Check that a tokenizer counts about as many tokens in the first texts as the imported table says.

    A table without counts passes.

    Args:
        job: The job, for the message.
        texts: The imported responses.
        tokenizer: The tokenizer of the model that forces answers.

    Raises:
        Problem: E0438, if the counts differ, so that another model must have written the texts.
    """
    rows = [row for responses in texts.values() for row in responses][:CHECKED_RESPONSES]
    encoded = encode_traces(tokenizer, [text for text, _, _ in rows])
    tokenized = sum(map(len, encoded)) + sum(finished for _, finished, _ in rows)
    recorded = sum(tokens for _, _, tokens in rows)
    if recorded and abs(tokenized - recorded) > _COUNT_TOLERANCE * recorded + len(rows):
        raise _misfit(
            job,
            f"its first {len(rows)} responses have {recorded:,} tokens in the table, and {tokenized:,} by the tokenizer of"
            " the model that forces answers",
            "name the model that wrote the responses, `at: forced(MODEL)`, and import full texts with their reasoning",
        )


def respond_again(text: str, finished: bool, tokenizer: Any, stop: Sequence[int]) -> Generation:
    """Return a stored text as an engine's response without log-probabilities.

    Args:
        text: The text. Special tokens that models do not write stay plain text.
        finished: Whether the response ended, so that a stop token follows.
        tokenizer: The model's tokenizer.
        stop: Token ids that end a response.

    Raises:
        Problem: E0815, if the tokenizer can write a mark only as a control token.
    """
    end = tuple(stop[:1]) if finished else ()
    return Generation(
        (*encode_traces(tokenizer, [text])[0], *end),
        NO_NUMBERS,
        NO_NUMBERS,
        "stop" if finished else "length",
        (0,),
    )


def _match(frame: pl.LazyFrame, path: Path, benchmark: str) -> pl.DataFrame:
    """Return the imported responses to a benchmark, with the suite's ids, texts and reference answers.

    Questions are matched by id. If some ids are unknown and the imported rows have texts, they are matched by text first.

    Args:
        frame: The imported responses of a model.
        path: The questions of the benchmark.
        benchmark: The benchmark's name.

    Raises:
        Problem: E0438, if a question has no response, or a response has an unknown question.
    """
    responses = frame.filter(benchmark=benchmark).collect(engine="streaming")
    questions = pl.read_parquet(path, columns=["id", "question", "answer"], glob=False)
    ids = pl.col("id").cast(pl.String).alias("question")
    suite = questions.select(ids, pl.col("question").alias("text"), pl.col("answer").alias("gold"))
    if not set(responses["question"]) <= set(suite["question"]) and responses["text"].null_count() == 0:
        ids_by_text = suite.select(pl.col("question").alias("own"), pl.col("text").str.strip_chars())
        responses = responses.with_columns(pl.col("text").str.strip_chars()).join(
            ids_by_text, on="text", how="left"
        )
        responses = responses.with_columns(question=pl.coalesce("own", "question"))
    response_ids, suite_ids = set(responses["question"]), set(suite["question"])
    if response_ids != suite_ids:
        missing, unknown = sorted(suite_ids - response_ids), sorted(response_ids - suite_ids)
        raise problem(
            "E0438",
            f"these are not the {len(suite_ids)} questions of `{benchmark}`: {len(missing)} have no response, and"
            f" {len(unknown)} are unknown",
            notes=[
                f"{label}: {', '.join(names[:3])}"
                for label, names in (("without a response", missing), ("not in the benchmark", unknown))
                if names
            ],
            help="name questions by the data's ids (`--column question=NAME` of `reodsl import`), or import their texts,"
            " by which questions are found too",
        )
    return responses.drop("text", "gold").join(suite, on="question", maintain_order="left")


def _misfit(job: Job, message: str, help: str) -> Exception:
    """Return E0438 about the imported table of a task, with a message and a remedy."""
    base = job.task.work["base"]
    return problem("E0438", message, where=str(job.folder / base.path), help=help)
