"""Write the README's verdict and table from a finished study.

    python -m benchmarks.study runs/quickstart-…   # keep a run's numbers, write the table
    python -m benchmarks.study                     # write the table from the numbers that are kept

The numbers are kept in `benchmarks/tables/`: `study.csv`, `study_seeds.csv` and `study_verdict.json`.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping
from pathlib import Path

import polars as pl

from benchmarks import tables
from benchmarks.tables import ROOT, difference, markdown, number, path_of, read_rows, rewrite

README = ROOT / "README.md"


def keep(run: Path) -> None:
    """Keep the verdict of a run, and its rows of the mean over benchmarks."""
    (tables.KEPT / "study_verdict.json").write_text((run / "verdict.json").read_text())
    for table, name in (("main", "study"), ("per_seed", "study_seeds")):
        rows = pl.read_parquet(run / "tables" / f"{table}.parquet").filter(pl.col("benchmark") == "mean")
        rows.with_columns(pl.selectors.float().round(6)).write_csv(path_of(name))


def text() -> str:
    """Return what the study found, and a row for each arm; brackets are intervals over seeds and questions."""
    rows = [
        (
            row["arm"],
            difference(row),
            f"{with_deviation(row, 'accuracy', 100)}%",
            f"{float(row['length']):.1f}",
        )
        for row in read_rows("study")
    ]
    seeds = len({row["seed"] for row in read_rows("study_seeds")})
    head = [f"mean of {seeds} seeds", ">REG vs. vanilla [95% interval]", ">accuracy ± SD", ">tokens"]
    found, *_, rests_on = json.loads((tables.KEPT / "study_verdict.json").read_text())["sentences"]
    return f"{found} {rests_on}\n\n{markdown(head, rows)}"


def with_deviation(row: Mapping[str, str], measure: str, scale: float = 1.0) -> str:
    """Return a mean with its standard deviation over seeds, if there are several."""
    deviation = number(row.get(f"{measure}_sd"))
    return f"{scale * float(row[measure]):.1f}" + ("" if deviation is None else f" ± {scale * deviation:.1f}")


def main() -> None:
    """Keep a run, if one is named, and write the README."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("run", type=Path, nargs="?")
    run = parser.parse_args().run
    if run is not None:
        keep(run)
    rewrite(README, {"study": text()})


if __name__ == "__main__":
    main()
