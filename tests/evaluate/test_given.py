"""Answers forced out of texts that somebody else left: those of the model's own responses, wherever these came from."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import polars as pl
import pytest

from reodsl.diagnostics import Problem
from reodsl.graph.job import Job
from reodsl.numbers.responses import COLUMNS
from runners.evaluate import run
from runners.results.table import FORCED
from tests.evaluate.conftest import MakeJob, payload


def left(samples: pl.DataFrame, place: Path, **changes: pl.Expr) -> None:
    """The responses of a run as a table that `reodsl import` writes, without forced answers."""
    rows = samples.with_columns(
        model=pl.lit("mine"), seed=None, at=pl.lit(None, dtype=FORCED), correct=pl.lit(False), **changes
    )
    rows.with_columns(pl.col("seed").cast(pl.Int64)).select(COLUMNS).write_parquet(place)


def test_answers_are_forced_out_of_texts(job: MakeJob, checkpoint: Path, questions: Path) -> None:
    """The forced answers, curves and lengths of the run that left the texts, and its grades and not the table's."""
    inputs = {"start": checkpoint, "data:one": questions, "data:two": questions}
    own = job("evaluate", payload(samples=2), inputs, "own")
    run.evaluate(own)
    samples = pl.read_parquet(own.out / "samples.parquet")
    left(samples, own.out.parents[1] / "theirs.parquet")
    base = {"base": {"kind": "results", "path": "theirs.parquet", "of": "mine"}}
    given: Job = job("evaluate", payload(samples=5) | base, inputs, "given")
    run.evaluate(given)
    for name in ("samples", "forced", "examples"):
        mine = pl.read_parquet(given.out / f"{name}.parquet")
        assert mine.equals(pl.read_parquet(own.out / f"{name}.parquet"), null_equal=True), name
    curves = json.loads((own.out / "curves.json").read_text())
    marked = {name: curve | {"inexact": ["retokenised"]} for name, curve in curves.items()}
    assert json.loads((given.out / "curves.json").read_text()) == marked

    for change, words in (
        ({"response": pl.lit(None, dtype=pl.String)}, "28 responses have no text"),
        ({"tokens": pl.col("tokens") * 2}, "by the tokenizer of the model"),
    ):
        left(samples, own.out.parents[1] / "theirs.parquet", **change)
        with pytest.raises(Problem, match=words) as caught:
            run.evaluate(replace(given, work=given.work / words[:2]))
        assert caught.value.diagnostics[0].code == "E0438"
