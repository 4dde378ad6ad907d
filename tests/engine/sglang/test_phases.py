"""Thinking and a solution with tokens of their own, from a real server."""

from __future__ import annotations

import polars as pl
import pytest

from reodsl.graph.job import Resources
from tests.train.conftest import bench as bench
from tests.train.test_phases import PARTS, SHORT, stage

pytestmark = pytest.mark.sglang


@pytest.mark.heavy
@pytest.mark.usefixtures("python")
def test_a_server_thinks_and_answers_and_training_reads_what_it_read(bench) -> None:  # type: ignore[no-untyped-def]
    rule = stage(PARTS)
    out = bench.train(
        rule, "phases_served", start="base", data="questions", resources=Resources(engine="sglang")
    )
    table = pl.read_parquet(out / "rollouts.parquet")
    assert table["thinking_ended"].any()
    assert not table["thinking_ended"].all()
    thinking, solution = SHORT.max_tokens - SHORT.solution, SHORT.solution  # type: ignore[operator]
    for row in table.iter_rows(named=True):
        words = row["text"].split()
        if row["thinking_ended"]:
            assert (row["thinking"], words[thinking]) == (thinking, "</think>")
        elif row["thinking"] < row["tokens"]:
            assert words[row["thinking"] - 1] == "</think>"
        assert row["tokens"] - row["thinking"] <= solution
        assert row["thinking"] <= thinking
    # The server's probability of each token is that of the row which is trained, with what ended the thinking in it.
    assert pl.read_parquet(out / "metrics.parquet")["mismatch_max"].max() < 1.01
