"""Lengths by the chart against lengths counted one by one."""

from __future__ import annotations

from collections import Counter

import polars as pl
import pytest

from reodsl.report.length_chart import BINS, length_rows, lengths
from reodsl.report.material import Material


def test_shares_are_those_of_a_count_of_every_response(of_seeds: Material) -> None:
    rows = length_rows(of_seeds)
    size = rows["tokens"].unique().sort()[1]
    for arm in of_seeds.arms:
        counted: Counter[int] = Counter()
        right: Counter[int] = Counter()
        for (name, _), folder in of_seeds.evaluations.items():
            if name == arm:
                for row in pl.read_parquet(folder / "samples.parquet").iter_rows(named=True):
                    counted[row["tokens"] // size * size] += 1
                    right[row["tokens"] // size * size] += row["correct"]
        own = rows.filter(pl.col("arm") == arm)
        assert own["share"].sum() == pytest.approx(1)
        assert own.height <= BINS + 1
        for row in own.to_dicts():
            assert row["share"] == pytest.approx(counted[row["tokens"]] / counted.total())
            if row["right"] is not None:
                assert row["right"] == pytest.approx(right[row["tokens"]] / counted[row["tokens"]])


def test_the_chart_meets_the_schema_and_describes_itself(material: Material) -> None:
    chart = lengths(material, length_rows(material)).to_dict()
    assert "vanilla most often from" in chart["description"]
