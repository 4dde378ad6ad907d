"""Responses that somebody else's run left: found by question in a table, and made into tokens again."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import polars as pl

from reodsl.diagnostics import problem
from reodsl.graph.job import Job
from runners.engine.protocol import NO_NUMBERS, Generation
from runners.models.marks import encode_traces

Texts = Mapping[tuple[str, str], Sequence[tuple[str, bool, int]]]
"""Responses by benchmark and question, in order: each its text, whether it ended, and its tokens in the table."""
CHECKED_RESPONSES = 64
"""Responses whose tokens are counted before anything is asked."""
_COUNT_TOLERANCE = 0.05
"""The share by which these counts may be apart from the table's."""


def name_responses(job: Job, benchmarks: Iterable[str]) -> pl.DataFrame:
    """Return the responses of the model that `base` in a task's work names, by the questions that its inputs have."""
    base = job.task.work["base"]
    frame = pl.scan_parquet(job.folder / base.path, glob=False).filter(model=base.of)
    named = pl.concat(
        [_name(frame, job.inputs[f"data:{name}"] / "questions.parquet", name) for name in benchmarks]
    )
    return named.with_columns(
        pl.col("finish").fill_null("stop"), pl.col("sample").rank("dense").over("benchmark", "question") - 1
    )


def read_texts(job: Job, benchmarks: Iterable[str]) -> Texts:
    """Return the texts of the responses that `name_responses` finds. Raises E0438 if a response has no text."""
    rows = name_responses(job, benchmarks).sort("benchmark", "question", "sample")
    if rows["response"].null_count():
        raise _misfit(
            job,
            f"{rows['response'].null_count()} responses have no text, out of which answers could be forced",
            "import them with their texts: `--column response=NAME`",
        )
    texts: dict[tuple[str, str], list[tuple[str, bool, int]]] = {}
    columns = ("benchmark", "question", "response", "finish", "tokens")
    for benchmark, question, text, finish, tokens in rows.select(columns).iter_rows():
        texts.setdefault((benchmark, question), []).append((text, finish == "stop", tokens or 0))
    return texts


def require_own_tokens(job: Job, texts: Texts, tokenizer: Any) -> None:
    """Check that a tokenizer counts about as many tokens as the table has. Raises E0438 for another model's tokenizer."""
    rows = [row for responses in texts.values() for row in responses][:CHECKED_RESPONSES]
    read = encode_traces(tokenizer, [text for text, _, _ in rows])
    tokenized = sum(map(len, read)) + sum(finished for _, finished, _ in rows)
    recorded = sum(tokens for _, _, tokens in rows)
    if recorded and abs(tokenized - recorded) > _COUNT_TOLERANCE * recorded + len(rows):
        raise _misfit(
            job,
            f"its first {len(rows)} responses have {recorded:,} tokens in the table, and {tokenized:,} by the tokenizer of"
            " the model that is to force answers",
            "name the model that wrote them, `at: forced(MODEL)`, and import whole texts, with their reasoning",
        )


def respond_again(text: str, finished: bool, tokenizer: Any, stop: Sequence[int]) -> Generation:
    """Return a stored text as a response with its stop token; special tokens that no model writes stay text (E0815)."""
    end = tuple(stop[:1]) if finished else ()
    return Generation(
        (*encode_traces(tokenizer, [text])[0], *end),
        NO_NUMBERS,
        NO_NUMBERS,
        "stop" if finished else "length",
        (0,),
    )


def _name(frame: pl.LazyFrame, path: Path, benchmark: str) -> pl.DataFrame:
    """Return the responses to a benchmark with the ids, texts and references that its questions have in the suite.

    Questions are the same by their ids, or else by their texts. Raises E0438 for a question that one of both lacks.
    """
    mine = frame.filter(benchmark=benchmark).collect(engine="streaming")
    questions = pl.read_parquet(path, columns=["id", "question", "answer"], glob=False)
    ids = pl.col("id").cast(pl.String).alias("question")
    suite = questions.select(ids, pl.col("question").alias("text"), pl.col("answer").alias("gold"))
    if not set(mine["question"]) <= set(suite["question"]) and mine["text"].null_count() == 0:
        texts = suite.select(pl.col("question").alias("own"), pl.col("text").str.strip_chars())
        mine = mine.with_columns(pl.col("text").str.strip_chars()).join(texts, on="text", how="left")
        mine = mine.with_columns(question=pl.coalesce("own", "question"))
    theirs, ours = set(mine["question"]), set(suite["question"])
    if theirs != ours:
        lack, more = sorted(ours - theirs), sorted(theirs - ours)
        raise problem(
            "E0438",
            f"these are not the {len(ours)} questions of `{benchmark}`: {len(lack)} have no response, and {len(more)} are"
            " others",
            notes=[
                f"{label}: {', '.join(names[:3])}"
                for label, names in (("without a response", lack), ("not in the benchmark", more))
                if names
            ],
            help="name questions by the ids that the data has (`--column question=NAME` of `reodsl import`), or import their"
            " texts, by which they are found too",
        )
    return mine.drop("text", "gold").join(suite, on="question", maintain_order="left")


def _misfit(job: Job, words: str, help: str) -> Exception:
    base = job.task.work["base"]
    return problem("E0438", words, where=str(job.folder / base.path), help=help)
