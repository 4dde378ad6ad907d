"""The README's table of the study against the numbers that are kept of its run."""

import polars as pl
import pytest

from benchmarks import study


@pytest.mark.skipif(not study.MAIN.exists(), reason="no run is kept")
def test_the_readmes_table_is_written_from_the_kept_numbers() -> None:
    page = study.README.read_text()
    assert study.written(page) == page


def test_a_run_is_kept_and_told_with_holms_stars(tmp_path, monkeypatch) -> None:
    run = tmp_path / "run"
    (run / "tables").mkdir(parents=True)
    for name in ("MAIN", "SEEDS"):
        monkeypatch.setattr(study, name, tmp_path / f"{name}.csv")
    measures = {"accuracy": 0.9612, "reg": 3.25, "reg_plain": 4.0, "length": 30.5}
    row = {"arm": "reo", "benchmark": "mean"} | measures | {"accuracy_sd": 0.01, "reg_sd": 0.5}
    row |= {"difference": -2.0, "difference_low": -3.0, "difference_high": -1.0, "difference_star": False}
    pl.DataFrame([row, row | {"arm": "other", "difference_star": True}]).write_parquet(
        run / "tables" / "main.parquet"
    )
    seeds = [
        {"arm": arm, "seed": s, "benchmark": "mean"} | measures for arm in ("reo", "other") for s in (2, 1)
    ]
    pl.DataFrame([*seeds, seeds[0] | {"benchmark": "easy", "reg": 99.0}]).write_parquet(
        run / "tables" / "per_seed.parquet"
    )
    study.keep(run)
    lines = study.table().splitlines()
    assert lines[0].startswith("| mean of 2 seeds |")
    assert (
        lines[2]
        == "| reo | -2.0 [-3.0, -1.0] | 3.2 ± 0.5 | 4.0 | 96.1 ± 1.0% | 30.5 | 96.1, 96.1 | 3.2, 3.2 |"
    )
    assert lines[3].startswith("| other | -2.0* [-3.0, -1.0] |")
    page = f"before\n{study.BEGIN}\nold\n{study.END}\nafter"
    assert study.written(page) == f"before\n{study.BEGIN}\n{study.table()}\n{study.END}\nafter"
