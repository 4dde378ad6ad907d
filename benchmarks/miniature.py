"""Write docs/EVIDENCE.md's tables of the two ways and of the readings from the tables of finished runs.

    python -m benchmarks.miniature TABLE=RUN…   # add the seeds of runs to benchmarks/tables/, and write the page's tables
    python -m benchmarks.miniature              # write the page's tables from the numbers that are kept

Tables are `two_ways`, `two_ways_early`, `two_ways_tuned` and `readings`. Each seed may be a run of its own
(`two_ways=RUN two_ways=RUN`); a seed that a table has already is replaced. Two arms are compared seed by seed, so that what
a seed does to both drops out, with Student's 95% interval over seeds. With one seed there is no interval, and no pair
counts as apart.
"""

from __future__ import annotations

import argparse
import csv
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path
from statistics import fmean, stdev

from benchmarks.ordering import PAGE, ROOT, placed
from reodsl.numbers.probabilities import t_quantile

KEPT = ROOT / "benchmarks" / "tables"
CONFIDENCE = 0.95
MEASURES = ("accuracy", "length", "reg")
WAYS = ("two_ways", "two_ways_early", "two_ways_tuned")
READINGS = {
    "vanilla_once": ("vanilla", "one epoch in place of two"),
    "reo_exp_once": ("reo_exp", "one epoch in place of two"),
    "vanilla_batch": ("vanilla", "advantages normalised over the batch as well"),
    "reo_exp_batch": ("reo_exp", "advantages normalised over the batch as well"),
    "reo_exp_printed": ("reo_exp", "credit as printed"),
    "reo_qspec_printed": ("reo_qspec", "weights as printed"),
    "mrt_all": ("mrt", "a step compared with all rollouts"),
}

Numbers = Mapping[str, Mapping[int, float]]
"""A measure of each arm by seed."""


@dataclass(frozen=True, slots=True)
class Difference:
    """One arm less another: the mean over their common seeds, and how far its interval reaches; None with one seed."""

    mean: float
    reach: float | None

    @property
    def apart(self) -> bool:
        """Whether the interval leaves out 0."""
        return self.reach is not None and abs(self.mean) > self.reach


def compare(one: Mapping[int, float], two: Mapping[int, float]) -> Difference:
    """`one` less `two`, paired by seed."""
    gaps = [one[seed] - two[seed] for seed in sorted(set(one) & set(two))]
    if len(gaps) < 2:
        return Difference(fmean(gaps), None)
    quantile = t_quantile((1 + CONFIDENCE) / 2, len(gaps) - 1)
    return Difference(fmean(gaps), quantile * stdev(gaps) / math.sqrt(len(gaps)))


def keep(table: str, run: Path) -> None:
    """Add the seeds of a run to a table in `benchmarks/tables/`; a seed that the table has already is replaced.

    A run has all arms of the table, else this ends with a message: only arms of one run have the same frontier, which
    then drops out of their difference, and means of arms are comparable over the same seeds alone.
    """
    import polars as pl

    path = KEPT / f"{table}.csv"
    rounded = [pl.col(measure).round(4) for measure in MEASURES]
    added = pl.read_parquet(run / "tables" / "per_seed.parquet").select("arm", "seed", "benchmark", *rounded)
    parts = [added]
    if path.exists():
        kept = pl.read_csv(path, schema=added.schema)
        check_same_arms(path, kept["arm"].to_list(), run, added["arm"].to_list())
        parts.insert(0, kept.filter(~pl.col("seed").is_in(added["seed"].unique().to_list())))
    KEPT.mkdir(exist_ok=True)
    ranks = [
        pl.col(name).replace_strict(names, range(len(names)))
        for name in ("arm", "benchmark")
        for names in [added[name].unique(maintain_order=True).to_list()]
    ]
    pl.concat(parts).sort(*ranks, "seed").write_csv(path)


def check_same_arms(path: Path, kept: Sequence[str], run: Path, added: Sequence[str]) -> None:
    """End with a message if a run has other arms than a kept table."""
    differing = [
        *(f"no `{arm}`" for arm in dict.fromkeys(kept) if arm not in added),
        *(f"`{arm}`, which the table lacks" for arm in dict.fromkeys(added) if arm not in kept),
    ]
    if differing:
        raise SystemExit(
            f"{run} has {', '.join(differing)}: add runs of the same arms to {path}, or delete it to begin anew"
        )


def numbers(study: str, measure: str, benchmark: str = "mean") -> Numbers:
    """A measure of every arm by seed, arms in the study's order."""
    by_arm: dict[str, dict[int, float]] = {}
    with (KEPT / f"{study}.csv").open() as file:
        for row in csv.DictReader(file):
            if row["benchmark"] == benchmark and row[measure]:
                by_arm.setdefault(row["arm"], {})[int(row["seed"])] = float(row[measure])
    return by_arm


def benchmarks_of(study: str) -> list[str]:
    """The benchmarks of a kept study, their mean left out, in their order."""
    with (KEPT / f"{study}.csv").open() as file:
        names = dict.fromkeys(row["benchmark"] for row in csv.DictReader(file))
    return [name for name in names if name != "mean"]


def signed(difference: Difference, scale: float = 1.0) -> str:
    """A difference with its interval, as in `-3.1 ± 0.8`."""
    text = f"{scale * difference.mean:+.1f}"
    return text if difference.reach is None else f"{text} ± {scale * difference.reach:.1f}"


def arms_table(study: str) -> str:
    """A row for each arm: means over seeds, its REG less vanilla RL's, and accuracy and length on each benchmark."""
    accuracy, length, gap = (numbers(study, measure) for measure in MEASURES)
    parts = benchmarks_of(study)
    seeds = sorted({seed for of_arm in gap.values() for seed in of_arm})
    by_part = {part: (numbers(study, "accuracy", part), numbers(study, "length", part)) for part in parts}
    lines = [
        f"| {counted(len(seeds))} | accuracy | length | REG | less vanilla RL's | "
        + " | ".join(part.replace("_", " ") for part in parts)
        + " | REG by seed |",
        "| --- | ---: | ---: | ---: | ---: |" + " ---: |" * len(parts) + " --- |",
    ]
    for arm in gap:
        cells = [
            f"{100 * fmean(right[arm].values()):.0f}% in {fmean(long[arm].values()):.0f}"
            for right, long in by_part.values()
        ]
        lines.append(
            f"| {arm} | {100 * fmean(accuracy[arm].values()):.1f}% | {fmean(length[arm].values()):.1f} | "
            f"{fmean(gap[arm].values()):.1f} | "
            f"{'' if arm == 'vanilla' else signed(compare(gap[arm], gap['vanilla']))} | {' | '.join(cells)} | "
            f"{', '.join(f'{value:.1f}' for _, value in sorted(gap[arm].items()))} |"
        )
    return "\n".join(lines)


def counted(seeds: int) -> str:
    """How many seeds a table is of."""
    return "1 seed" if seeds == 1 else f"mean of {seeds} seeds"


UNEQUAL = ("budget_80", "budget_40")
"""Arms of the two ways whose kept numbers are of trainings with fewer steps, or with a smaller summed learning rate.

The specs train them as the others now. This goes once the runs are made again.
"""


def separated(study: str, left_out: Sequence[str] = ("base", *UNEQUAL)) -> str:
    """Return how many pairs of trained arms are apart in REG, each by its own interval, and which arms each one is below."""
    gap = numbers(study, "reg")
    pairs = [pair for pair in combinations(gap, 2) if not set(pair) & set(left_out)]
    compared = [(one, two, compare(gap[one], gap[two])) for one, two in pairs]
    apart = [
        (one, two, each) if each.mean < 0 else (two, one, each) for one, two, each in compared if each.apart
    ]
    if all(each.reach is None for _, _, each in compared):
        return "One seed does not say how much trainings vary, so no pair of arms counts as different."
    beaten: dict[str, list[str]] = {}
    for low, high, _ in apart:
        beaten.setdefault(low, []).append(high)
    listed = "".join(f"\n- {low} is below {', '.join(highs)}." for low, highs in beaten.items())
    chance = f"If all were equal, about {0.05 * len(pairs):.1f} would be by chance."
    summary = f"{len(apart)} of {len(pairs)} pairs of trained arms differ in REG. {chance}"
    return f"{summary}\n{listed}" if listed else summary


def readings_table() -> str:
    """A row for each reading: its differences from the usual one, paired by seed."""
    accuracy, length, gap = (numbers("readings", measure) for measure in MEASURES)
    seeds = {seed for of_arm in gap.values() for seed in of_arm}
    lines = [
        f"| {counted(len(seeds))} | arm | accuracy | length | REG | accuracy, points | length | REG, tokens |",
        "| --- | --- | ---: | ---: | ---: | ---: | ---: | ---: |",
    ]
    for arm, (usual, what) in READINGS.items():
        lines.append(
            f"| {what} | {usual} | {100 * fmean(accuracy[arm].values()):.1f}% | {fmean(length[arm].values()):.1f} | "
            f"{fmean(gap[arm].values()):.1f} | {signed(compare(accuracy[arm], accuracy[usual]), 100)} | "
            f"{signed(compare(length[arm], length[usual]))} | {signed(compare(gap[arm], gap[usual]))} |"
        )
    return "\n".join(lines)


def tables() -> dict[str, str]:
    """By the name of its markers in the page, every table whose numbers are kept."""
    texts = {}
    for study in WAYS:
        if (KEPT / f"{study}.csv").exists():
            texts[study] = f"{arms_table(study)}\n\n{separated(study)}"
    if (KEPT / "readings.csv").exists():
        texts["readings"] = readings_table()
    return texts


def written(page: str) -> str:
    """The page with all tables in their places."""
    for name, text in tables().items():
        page = placed(page, name, text)
    return page


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("runs", nargs="*", metavar="TABLE=RUN")
    for argument in parser.parse_args().runs:
        table, _, run = argument.partition("=")
        if table not in (*WAYS, "readings"):
            raise SystemExit(
                f"there is no table `{table}`: write one of {', '.join((*WAYS, 'readings'))}, then `=RUN`"
            )
        keep(table, Path(run))
    PAGE.write_text(written(PAGE.read_text()))


if __name__ == "__main__":
    main()
