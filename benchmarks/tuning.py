"""Tune a study of REO-RL against length rewards: each arm's learning rate and constant, on seeds that no test sees.

    python -m benchmarks.tuning TASK FOLDER SEED…   # train what is missing of `two_ways` or `chain`, with runs in FOLDER
    python -m benchmarks.tuning                     # print the best rate and constant of each arm

The grid is every rate with every constant, for all arms alike. Results are kept in benchmarks/tables/tuning.csv.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping
from itertools import product
from pathlib import Path

import polars as pl

from benchmarks.tables import ROOT, markdown, path_of

RATES = ("5e-4", "1e-3", "2e-3", "4e-3")
CONSTANTS: Mapping[str, tuple[str, tuple[str, ...]]] = {
    "norm": ("alpha", ("0.2", "0.4", "0.6", "0.8", "1")),
    "harmony": ("gamma", ("0.5", "1", "2", "4", "8")),
    "budget": ("cap", ("20 tokens", "28 tokens", "40 tokens", "56 tokens", "80 tokens")),
}
"""The parameter of each rival's constant, and its grid."""
LONGEST = {"two_ways": 160, "chain": 128}
"""The longest response of each task, in tokens."""
SETTINGS = ["task", "seed", "arm", "rate", "constant"]


def train(task: str, seed: int, rate: str, index: int, out: Path) -> None:
    """Train and evaluate all arms with a rate and the constants at an index; finished tasks are not run again."""
    values = [f"seeds=[{seed}]", *(f"{name}={constants[index]}" for name, constants in CONSTANTS.values())]
    values += [f"lr_{arm}={rate}" for arm in ("vanilla", "reo", *CONSTANTS)]
    words = [word for value in values for word in ("--set", value)]
    spec = ROOT / "specs" / "miniature" / f"equal_{task}.reo"
    program = Path(sys.executable).with_name("reodsl")
    subprocess.run([program, "run", spec, "--local", "-q", "--out", out, *words], check=True)


def measure_distance(curve: pl.DataFrame, longest: int) -> float:
    """Return the area between a curve and an accuracy of 1, in tokens: REG against a perfect frontier.

    Args:
        curve: Columns `budget` (tokens) and `accuracy` (0 to 1).
        longest: The budget at which the area ends.
    """
    points = curve.filter(pl.col("budget") <= longest).sort("budget")
    widths = pl.col("budget").diff()
    missed = 1 - (pl.col("accuracy") + pl.col("accuracy").shift()) / 2
    return float(points.select((widths * missed).sum()).item())


def read_run(task: str, seed: int, rate: str, index: int, out: Path) -> pl.DataFrame:
    """Return a row for each arm of a run: its settings, and accuracy, length and distance as means over benchmarks."""
    tables = {
        name: pl.read_parquet(out / "tables" / f"{name}.parquet").filter(pl.col("benchmark") == "mean")
        for name in ("per_seed", "curves")
    }
    rows = []
    for arm, accuracy, length in tables["per_seed"].select("arm", "accuracy", "length").iter_rows():
        constant = CONSTANTS[arm][1][index].removesuffix(" tokens") if arm in CONSTANTS else ""
        distance = measure_distance(tables["curves"].filter(pl.col("arm") == arm), LONGEST[task])
        rows.append(
            (task, seed, arm, rate, constant, round(accuracy, 4), round(length, 4), round(distance, 4))
        )
    return pl.DataFrame(rows, schema=[*SETTINGS, "accuracy", "length", "distance"], orient="row")


def keep_rows(rows: pl.DataFrame) -> None:
    """Add rows to the kept table; rows of the same settings are replaced."""
    path = path_of("tuning")
    parts = [pl.read_csv(path, schema=rows.schema).fill_null("")] if path.exists() else []
    kept = pl.concat([*parts, rows]).unique(SETTINGS, keep="last", maintain_order=True)
    kept.sort(
        "task", "seed", "arm", pl.col("rate").cast(float), pl.col("constant").cast(float, strict=False)
    ).write_csv(path)


def list_best(rows: pl.DataFrame) -> pl.DataFrame:
    """Return each arm's settings with the least mean distance over seeds.

    Args:
        rows: The kept table.

    Returns:
        Columns `task`, `arm`, `rate`, `constant`, `seeds`, `accuracy`, `length` and `distance`.
    """
    means = rows.filter(pl.col("arm") != "base").group_by(
        "task", "arm", "rate", "constant", maintain_order=True
    )
    table = means.agg(pl.len().alias("seeds"), pl.col("accuracy", "length", "distance").mean())
    return table.sort("distance").group_by("task", "arm").first().sort("task", "distance")


def main() -> None:
    """Train what is missing, or print the best settings."""
    if not sys.argv[1:]:
        best = list_best(
            pl.read_csv(
                path_of("tuning"), schema_overrides={"rate": pl.String(), "constant": pl.String()}
            ).fill_null("")
        )
        print(
            markdown(
                best.columns, best.with_columns(pl.col("accuracy", "length", "distance").round(3)).iter_rows()
            )
        )
        return
    task, folder = sys.argv[1], Path(sys.argv[2])
    for seed, rate, index in product(map(int, sys.argv[3:]), RATES, range(5)):
        out = folder / f"{task}-{seed}-{rate}-{index}"
        if not (out / "tables" / "curves.parquet").exists():
            train(task, seed, rate, index, out)
        keep_rows(read_run(task, seed, rate, index, out))


if __name__ == "__main__":
    main()
