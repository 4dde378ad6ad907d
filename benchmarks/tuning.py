"""Tune the registered study of docs/PREREGISTERED.md: each arm's learning rate and constant, on seeds that do not test.

    python -m benchmarks.tuning TASK FOLDER SEED…   # train what is missing of `two_ways` or `chain`, with runs in FOLDER
    python -m benchmarks.tuning                     # print the best settings, and write how many seeds the page's tests need

The seeds of `SEEDS` train every rate of `RATES` with every constant, for all arms alike. The first also trains the rates
around them with the middle constants. Further seeds train each arm's two best settings, of which the better one over all
seeds is chosen; they also tell the spread over seeds. The numbers are kept in benchmarks/tables/tuning_TASK.parquet.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from itertools import product
from pathlib import Path

import polars as pl

from benchmarks.equal import LEVEL, LONGEST, MARGIN, PAGE, RIVALS, arrange, keep, read_cells, subtract, train
from benchmarks.tables import KEPT, markdown, rewrite
from reodsl.numbers.extension import extend

SEEDS = (1001, 1002, 1003)
"""The seeds that train every setting."""
RATES = ("1e-3", "2e-3")
AROUND = ("5e-4", "4e-3")
"""Rates on both sides of the grid, which show that the best rate lies inside."""
CONSTANTS: Mapping[str, tuple[str, Mapping[str, tuple[str, ...]]]] = {
    "norm": ("alpha", dict.fromkeys(LONGEST, ("0.2", "0.4", "0.6", "0.8", "1"))),
    "harmony": ("gamma", {"two_ways": ("0.5", "1", "2", "4", "8"), "chain": ("1", "2", "4", "8", "16")}),
    "budget": (
        "cap",
        dict.fromkeys(LONGEST, ("20 tokens", "28 tokens", "40 tokens", "56 tokens", "80 tokens")),
    ),
}
"""The parameter of each rival's constant, and its grid for each task. `alpha` has no values above 1."""
ARMS = ("vanilla", "reo_5", *CONSTANTS)
SETTINGS = ("arm", "rate", "constant")
LEAST = 2.0
"""The difference of REG in tokens that the study is to find."""


def path_of(task: str) -> Path:
    """Return the file of a task's kept numbers."""
    return KEPT / f"tuning_{task}.parquet"


def list_runs(task: str, seed: int) -> list[tuple[str, Mapping[str, str], Mapping[str, int]]]:
    """Return the runs of a seed: a name, the rate of each arm, and the index of each arm's constant in its grid."""
    if seed in SEEDS:
        pairs = [*product(RATES, range(5)), *((rate, 2) for rate in AROUND if seed == SEEDS[0])]
        return [
            (f"{rate}-{index}", dict.fromkeys(ARMS, rate), dict.fromkeys(CONSTANTS, index))
            for rate, index in pairs
        ]
    tried = pl.read_parquet(path_of(task)).filter(pl.col("seed").is_in(SEEDS))
    runs: list[tuple[str, Mapping[str, str], Mapping[str, int]]] = []
    for place, name in enumerate(("best", "second")):
        ranked = list_ranked(tried, place)
        rates, chosen = (dict(ranked.select("arm", column).iter_rows()) for column in ("rate", "constant"))
        places = {
            arm: list(map(trim, grids[task])).index(chosen[arm]) for arm, (_, grids) in CONSTANTS.items()
        }
        runs.append((name, rates, places))
    return runs


def trim(constant: str) -> str:
    """Return a constant as the tables have it, without a unit."""
    return constant.removesuffix(" tokens")


def list_values(task: str, seed: int, rates: Mapping[str, str], places: Mapping[str, int]) -> list[str]:
    """Return the parameters of a run."""
    constants = [f"{name}={grids[task][places[arm]]}" for arm, (name, grids) in CONSTANTS.items()]
    return [f"seeds=[{seed}]", *constants, *(f"lr_{arm.removesuffix('_5')}={rates[arm]}" for arm in ARMS)]


def add_settings(
    rows: pl.DataFrame, task: str, rates: Mapping[str, str], places: Mapping[str, int]
) -> pl.DataFrame:
    """Return a run's rows of trained arms with their settings; an arm without a constant has an empty text."""
    constants = {arm: trim(grids[task][places[arm]]) for arm, (_, grids) in CONSTANTS.items()}
    arm = pl.col("arm")
    settings = [
        arm.replace_strict(rates, return_dtype=pl.String()).alias("rate"),
        arm.replace_strict(constants, default="", return_dtype=pl.String()).alias("constant"),
    ]
    return rows.filter(arm != "base").select(arm, *settings, pl.all().exclude("arm"))


def average(rows: pl.DataFrame) -> pl.DataFrame:
    """Return each setting's number of seeds, and its accuracy, length and area as means over seeds and questions."""
    return rows.group_by(SETTINGS, maintain_order=True).agg(
        pl.col("seed").n_unique().alias("seeds"), pl.col("accuracy", "length", "area").mean()
    )


def list_ranked(rows: pl.DataFrame, place: int = 0) -> pl.DataFrame:
    """Return the settings of each arm at a place, 0 for the least mean area, among its settings with the most seeds."""
    means = average(rows)
    return (
        means.filter(pl.col("seeds") == pl.col("seeds").max().over("arm"))
        .sort("area")
        .group_by("arm", maintain_order=True)
        .agg(pl.all().get(place))
        .sort("area")
    )


def count_seeds(rows: pl.DataFrame) -> list[tuple[str, int | None, int | None]]:
    """Return for each rival how many seeds find `LEAST` after Holm, and how many show two equal arms the same.

    All arms have their best settings. Both counts have a power of 80%, averaged over the variances that the tuning seeds
    allow. A count is None if it is above 100.
    """
    best = rows.join(list_ranked(rows), on=SETTINGS, how="semi")
    seeds, questions = best["seed"].n_unique(), best.select("benchmark", "question").n_unique()
    cells = arrange(best)
    counts = []
    for rival in RIVALS:
        spread = subtract(cells, "reo_5", rival).spreads[-1]
        found, same = (
            extend(
                gap,
                spread,
                seeds=seeds,
                questions=questions,
                level=LEVEL / (len(RIVALS) * len(LONGEST)),
                same_level=LEVEL,
                margin=MARGIN,
            )
            for gap in (LEAST, 0.0)
        )
        counts.append((rival, found.seeds, same.same_seeds))
    return counts


def texts() -> dict[str, str]:
    """Return the page's table of how many seeds its tests need, by the name of its marker."""
    rows = [
        (task, RIVALS[rival], *("more than 100" if count is None else count for count in counts))
        for task in LONGEST
        for rival, *counts in count_seeds(pl.read_parquet(path_of(task)))
    ]
    head = (
        "task",
        "REO-RL against",
        f">seeds for {LEAST:g} tokens",
        f">seeds for the same within {MARGIN:g}",
    )
    return {"equal_power": markdown(head, rows)}


def main() -> None:
    """Train what is missing, or print the best settings and write the page."""
    if not sys.argv[1:]:
        for task in LONGEST:
            best = list_ranked(pl.read_parquet(path_of(task))).with_columns(
                pl.col("accuracy", "length", "area").cast(pl.Float64).round(3)
            )
            print(markdown((task, *best.columns[1:]), best.iter_rows()))
        rewrite(PAGE, texts())
        return
    task, folder = sys.argv[1], Path(sys.argv[2])
    for seed in map(int, sys.argv[3:]):
        for name, rates, places in list_runs(task, seed):
            out = folder / f"{task}-{seed}-{name}"
            if not (out / "tables" / "curves.parquet").exists():
                train(f"tune_{task}", out, list_values(task, seed, rates, places))
            rows = add_settings(read_cells(out, LONGEST[task], seed), task, rates, places)
            keep(rows, path_of(task), (*SETTINGS, "seed", "benchmark", "question"))


if __name__ == "__main__":
    main()
