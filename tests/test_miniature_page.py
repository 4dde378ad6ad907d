"""docs/EVIDENCE.md is what the kept numbers say; two arms are compared seed by seed."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import polars as pl
import pytest

import benchmarks.miniature as miniature
from benchmarks import ordering, tables
from benchmarks.miniature import PAGE


def test_the_page_is_made_of_the_kept_numbers() -> None:
    page = PAGE.read_text()
    assert tables.place(page, {**miniature.texts(), **ordering.texts()}) == page


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


def write_run(folder: Path, levels: dict[str, float], seeds: Sequence[int], shift: float = 0.0) -> Path:
    """Write the table of a run; `shift` is added to every REG, as by another frontier."""
    rows = [
        {
            "arm": arm,
            "seed": seed,
            "benchmark": part,
            "accuracy": 0.5,
            "length": 10.0,
            "reg": shift + level + seed / 100 * (1 + (arm == "short")),
        }
        for arm, level in levels.items()
        for part in ("easy", "mean")
        for seed in seeds
    ]
    (folder / "tables").mkdir(parents=True)
    pl.DataFrame(rows).write_parquet(folder / "tables" / "per_seed.parquet")
    return folder


LEVELS = {"vanilla": 20.0, "base": 50.0, "short": 2.0}


def test_a_run_is_kept_and_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Three seeds of three arms, of which one is far below the others."""
    monkeypatch.setattr(tables, "KEPT", tmp_path / "kept")
    miniature.keep("two_ways", write_run(tmp_path / "run", LEVELS, (1, 2, 3)))
    table = miniature.arms_table("two_ways").splitlines()
    assert table[0].startswith("| mean of 3 seeds | accuracy")
    assert table[-1] == "| short | 50.0% | 10.0 | 2.0 | -18.0 ± 0.0 |"
    assert miniature.separated("two_ways").startswith(
        "1 of 1 pairs of trained arms differ in REG by Student's test over the seeds alone, corrected for all 3 pairs"
    )


def test_seeds_may_be_runs_of_their_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In any order they make the table of one run of all seeds; a seed that is added again is replaced."""
    at_once, one_by_one = tmp_path / "at_once", tmp_path / "one_by_one"
    monkeypatch.setattr(tables, "KEPT", at_once)
    miniature.keep("two_ways", write_run(tmp_path / "all", LEVELS, (1, 2, 10)))
    monkeypatch.setattr(tables, "KEPT", one_by_one)
    miniature.keep("two_ways", write_run(tmp_path / "wrong", LEVELS, (10,), shift=5.0))
    for seed in (2, 10, 1):
        miniature.keep("two_ways", write_run(tmp_path / f"seed {seed}", LEVELS, (seed,)))
    assert (one_by_one / "two_ways.csv").read_text() == (at_once / "two_ways.csv").read_text()


def test_the_frontier_of_a_run_drops_out_of_differences(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Seed 2 has all its REG 5 tokens higher, as against another frontier."""
    monkeypatch.setattr(tables, "KEPT", tmp_path / "kept")
    for seed, shift in ((1, 0.0), (2, 5.0), (3, -1.0)):
        miniature.keep("two_ways", write_run(tmp_path / f"seed {seed}", LEVELS, (seed,), shift))
    assert "| 3.4 | -18.0 ± 0.0 |" in miniature.arms_table("two_ways").splitlines()[-1]


def test_a_run_of_other_arms_is_not_added(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tables, "KEPT", tmp_path / "kept")
    miniature.keep("two_ways", write_run(tmp_path / "run", LEVELS, (1,)))
    before = (tmp_path / "kept" / "two_ways.csv").read_bytes()
    for name, levels, found in (
        ("less", {"vanilla": 1.0, "base": 2.0}, "less has no `short`: "),
        ("more", LEVELS | {"new": 3.0}, "more has `new`, which the table lacks: "),
    ):
        with pytest.raises(SystemExit) as ended:
            miniature.keep("two_ways", write_run(tmp_path / name, levels, (2,)))
        assert found in str(ended.value)
    assert (tmp_path / "kept" / "two_ways.csv").read_bytes() == before


def test_several_runs_are_added_by_one_call(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page = tmp_path / "page.md"
    page.write_text("<!-- two_ways: begin -->\n<!-- two_ways: end -->\n")
    monkeypatch.setattr(miniature, "PAGE", page)
    monkeypatch.setattr(tables, "KEPT", tmp_path / "kept")
    runs = [write_run(tmp_path / f"seed{seed}", LEVELS, (seed,)) for seed in (1, 2)]
    monkeypatch.setattr("sys.argv", ["miniature", *(f"two_ways={run}" for run in runs)])
    miniature.main()
    assert "| mean of 2 seeds | accuracy" in page.read_text()


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
