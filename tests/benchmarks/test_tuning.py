"""The tuning of a study measures a curve's distance from perfect, and chooses by it."""

from __future__ import annotations

import polars as pl
import pytest

from benchmarks.tables import path_of
from benchmarks.tuning import CONSTANTS, RATES, list_best, measure_distance


def test_a_distance_is_the_area_above_a_curve() -> None:
    curve = pl.DataFrame({"budget": [8, 0, 4, 16], "accuracy": [1.0, 0.0, 0.5, 0.0]})
    assert measure_distance(curve, 8) == pytest.approx(4 * 0.75 + 4 * 0.25)
    assert measure_distance(curve, 16) == pytest.approx(4 + 8 * 0.5)


def test_every_arm_has_its_nearest_settings_of_the_grid() -> None:
    rows = pl.read_csv(path_of("tuning"), schema_overrides={"rate": str, "constant": str}).fill_null("")
    best = list_best(rows)
    assert set(best["arm"]) == {"vanilla", "reo_5", *CONSTANTS}
    assert set(best["rate"]) < set(RATES), "an optimum lies inside the grid of rates"
    for row in best.iter_rows(named=True):
        means = (
            rows.filter(task=row["task"], arm=row["arm"])
            .group_by("rate", "constant")
            .agg(pl.col("distance").mean())
        )
        assert row["distance"] == pytest.approx(means["distance"].min())
