"""docs/EVIDENCE.md is what the kept numbers say; two arms are compared seed by seed."""

from __future__ import annotations

from pathlib import Path

import polars as pl
import pytest

import benchmarks.miniature as miniature
from benchmarks import ordering
from benchmarks.ordering import PAGE


def test_the_page_is_made_of_the_kept_numbers() -> None:
    page = PAGE.read_text()
    assert miniature.written(page) == page
    assert ordering.written(page) == page


def test_arms_are_compared_by_their_common_seeds() -> None:
    """Differences 1, 2 and 3: mean 2, standard error 1/sqrt(3); Student's quantile of two degrees of freedom is 4.3027."""
    found = miniature.compare({1: 2.0, 2: 4.0, 3: 6.0, 4: 9.0}, {1: 1.0, 2: 2.0, 3: 3.0})
    assert found.mean == pytest.approx(2)
    assert found.reach == pytest.approx(4.3027 / 3**0.5, rel=1e-4)
    assert not found.apart
    assert miniature.compare({1: 10.0, 2: 11.0, 3: 12.5}, {1: 0.0, 2: 1.0, 3: 2.0}).apart


def test_one_seed_tells_no_pair_apart() -> None:
    found = miniature.compare({1: 5.0}, {1: 1.0})
    assert (found.mean, found.reach, found.apart) == (4.0, None, False)
    assert miniature.signed(found) == "+4.0"


def test_a_run_is_kept_and_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Three seeds of three arms, of which one is far below the others."""
    rows = [
        {
            "arm": arm,
            "seed": seed,
            "benchmark": part,
            "accuracy": 0.5,
            "length": 10.0,
            "reg": level + seed / 100 * sign,
        }
        for arm, level, sign in (("base", 50.0, 1), ("vanilla", 20.0, 1), ("short", 2.0, 2))
        for seed in (1, 2, 3)
        for part in ("easy", "mean")
    ]
    (tmp_path / "run" / "tables").mkdir(parents=True)
    pl.DataFrame(rows).write_parquet(tmp_path / "run" / "tables" / "per_seed.parquet")
    monkeypatch.setattr(miniature, "KEPT", tmp_path / "kept")
    miniature.keep("two_ways", tmp_path / "run")
    table = miniature.arms_table("two_ways").splitlines()
    assert table[0].startswith("| mean of 3 seeds | accuracy")
    assert table[-1] == "| short | 50.0% | 10.0 | 2.0 | -18.0 ± 0.0 | 50% in 10 | 2.0, 2.0, 2.1 |"
    assert miniature.separated("two_ways").startswith("1 of 1 pairs of trained arms differ in REG")


def test_what_the_page_says_of_the_readings() -> None:
    """In REG none is apart; the printed credit is in length, MRT with all rollouts in accuracy, and nothing else is."""
    apart = {
        (measure, arm)
        for arm, (usual, _) in miniature.READINGS.items()
        for measure in miniature.MEASURES
        for values in [miniature.numbers("readings", measure)]
        if miniature.compare(values[arm], values[usual]).apart
    }
    assert apart == {("length", "reo_exp_printed"), ("accuracy", "mrt_all")}
