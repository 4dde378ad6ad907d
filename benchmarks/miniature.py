"""Write docs/EVIDENCE.md's tables of the two ways and of the readings from the tables of finished runs.

    python -m benchmarks.miniature TABLE=RUN…   # add the seeds of runs to benchmarks/tables/, and write the page's tables
    python -m benchmarks.miniature              # write the page's tables from the numbers that are kept

Tables are `two_ways`, `two_ways_early`, `two_ways_tuned` and `readings`. Each seed may be a run of its own
(`two_ways=RUN two_ways=RUN`); a seed that a table has already is replaced. Two arms are compared seed by seed, so that what
a seed does to both drops out, with Student's 95% interval over seeds. A star and a sentence are about differences that are
significant with all pairs of their table corrected for, as those of a report are. With one seed there is no interval, and
no difference is significant.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path
from statistics import fmean, stdev

import polars as pl

from benchmarks.tables import ROOT, markdown, number, path_of, read_rows, rewrite
from reodsl.diagnostics import in_percent
from reodsl.numbers.intervals import Interval, correct
from reodsl.numbers.reg import t_probability, t_quantile

PAGE = ROOT / "docs" / "EVIDENCE.md"
CONFIDENCE = 0.95
MEASURES = ("accuracy", "length", "reg")
WAYS = ("two_ways", "two_ways_early", "two_ways_tuned")
READINGS = {
    "vanilla_once": ("vanilla", "one epoch"),
    "reo_exp_once": ("reo_exp", "one epoch"),
    "vanilla_batch": ("vanilla", "batch-normalised advantages"),
    "reo_exp_batch": ("reo_exp", "batch-normalised advantages"),
    "reo_exp_printed": ("reo_exp", "credit as printed"),
    "reo_qspec_printed": ("reo_qspec", "weights as printed"),
    "mrt_all": ("mrt", "all rollouts compared"),
}

Numbers = Mapping[str, Mapping[int, float]]
"""A measure of each arm by seed, in the study's order of arms."""


@dataclass(frozen=True, slots=True)
class Difference:
    """A mean difference of two arms over their common seeds, and the half width of its interval; None with one seed."""

    mean: float
    reach: float | None

    @property
    def apart(self) -> bool:
        """Return whether the interval excludes 0."""
        return self.reach is not None and abs(self.mean) > self.reach


def compare(one: Mapping[int, float], two: Mapping[int, float]) -> Difference:
    """Return `one` less `two`, paired by seed."""
    gaps = gaps_of(one, two)
    if len(gaps) < 2:
        return Difference(fmean(gaps), None)
    return Difference(fmean(gaps), t_quantile((1 + CONFIDENCE) / 2, len(gaps) - 1) * standard_error(gaps))


def gaps_of(one: Mapping[int, float], two: Mapping[int, float]) -> list[float]:
    """Return the differences at the common seeds."""
    return [one[seed] - two[seed] for seed in sorted(set(one) & set(two))]


def standard_error(gaps: Sequence[float]) -> float:
    """Return the standard error of the mean of two or more differences."""
    return stdev(gaps) / math.sqrt(len(gaps))


def keep(table: str, run: Path) -> None:
    """Add the seeds of a run to a table in `benchmarks/tables/`; a seed that the table has already is replaced.

    A run has all arms of the table, else this ends with a message: only arms of one run have the same frontier, which
    then drops out of their difference, and means of arms are comparable over the same seeds alone.
    """
    path = path_of(table)
    rounded = [pl.col(measure).round(4) for measure in MEASURES]
    added = pl.read_parquet(run / "tables" / "per_seed.parquet").select("arm", "seed", "benchmark", *rounded)
    parts = [added]
    if path.exists():
        kept = pl.read_csv(path, schema=added.schema)
        check_same_arms(path, kept["arm"].to_list(), run, added["arm"].to_list())
        parts.insert(0, kept.filter(~pl.col("seed").is_in(added["seed"].unique().to_list())))
    path.parent.mkdir(exist_ok=True)
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
    """Return a measure of every arm by seed; empty for a study that is not kept."""
    by_arm: dict[str, dict[int, float]] = {}
    for row in read_rows(study) if path_of(study).exists() else ():
        value = number(row[measure])
        if row["benchmark"] == benchmark and value is not None:
            by_arm.setdefault(row["arm"], {})[int(row["seed"])] = value
    return by_arm


def signed(difference: Difference, scale: float = 1.0, digits: int = 1) -> str:
    """Return a difference with its interval, as in `-3.1 ± 0.8`."""
    reach = "" if difference.reach is None else f" ± {scale * difference.reach:.{digits}f}"
    return f"{scale * difference.mean:+.{digits}f}{reach}"


def means(study: str, arm: str, digits: int = 1) -> tuple[str, str, str]:
    """Return accuracy, length and REG of an arm, each a mean over seeds."""
    accuracy, length, reg = (fmean(numbers(study, measure)[arm].values()) for measure in MEASURES)
    return f"{in_percent(accuracy, 1)}%", f"{length:.1f}", f"{reg:.{digits}f}"


def p_value(one: Mapping[int, float], two: Mapping[int, float]) -> float:
    """Return the two-sided probability of a paired difference at least as large if the two were equal (Student)."""
    gaps = gaps_of(one, two)
    error = standard_error(gaps)
    if error == 0:
        return float(fmean(gaps) == 0)
    return 2 * (1 - t_probability(abs(fmean(gaps)) / error, len(gaps) - 1))


def compare_all(measure: Numbers) -> dict[tuple[str, str], Interval]:
    """Return the difference of every two arms, the lower one first, corrected for all of them."""
    found = {}
    for one, two in combinations(sorted(measure, key=lambda arm: fmean(measure[arm].values())), 2):
        of = compare(measure[one], measure[two])
        found[one, two] = (
            Interval(of.mean)
            if of.reach is None
            else Interval(
                of.mean, of.mean - of.reach, of.mean + of.reach, p_value(measure[one], measure[two])
            )
        )
    return dict(zip(found, correct(list(found.values()), CONFIDENCE), strict=True))


def arms_table(study: str) -> str:
    """Return a row for each arm: means over seeds, and REG less vanilla RL's."""
    gap = numbers(study, "reg")

    def versus_vanilla(arm: str) -> str:
        return "" if arm == "vanilla" else signed(compare(gap[arm], gap["vanilla"]))

    rows = [(arm, *means(study, arm), versus_vanilla(arm)) for arm in gap]
    return markdown((counted(gap), ">accuracy", ">length", ">REG", ">REG vs. vanilla"), rows)


def counted(measure: Numbers) -> str:
    """Return how many seeds a table is of."""
    seeds = len({seed for of_arm in measure.values() for seed in of_arm})
    return "1 seed" if seeds == 1 else f"mean of {seeds} seeds"


def separated(study: str, left_out: Sequence[str] = ("base",)) -> str:
    """Return how many pairs of trained arms differ in REG by a test of the seeds, and which arms each one is below."""
    every = compare_all(numbers(study, "reg"))
    if all(each.p is None for each in every.values()):
        return "One seed does not say how much trainings vary, so nothing is tested."
    trained = {pair: each for pair, each in every.items() if not set(pair) & set(left_out)}
    beaten: dict[str, list[str]] = {}
    for (low, high), each in trained.items():
        if each.significant:
            beaten.setdefault(low, []).append(high)
    listed = "".join(f"\n- {low} is below {', '.join(highs)}." for low, highs in beaten.items())
    summary = (
        f"{sum(map(len, beaten.values()))} of {len(trained)} pairs of trained arms differ in REG by Student's test over the "
        f"seeds alone, corrected for all {len(every)} pairs of the table (Holm)."
    )
    return f"{summary}\n{listed}" if listed else summary


def readings_table() -> str:
    """Return a row for each reading: its differences from the usual one, paired by seed."""
    by_seed = {measure: numbers("readings", measure) for measure in MEASURES}
    rows = [
        (
            *(what, usual),
            *(
                signed(compare(of[arm], of[usual]), 100 if m == "accuracy" else 1)
                for m, of in by_seed.items()
            ),
        )
        for arm, (usual, what) in READINGS.items()
    ]
    names = ("accuracy, points", "length", "REG, tokens")
    return markdown((counted(by_seed["reg"]), "arm", *(f">{name}" for name in names)), rows)


def texts() -> dict[str, str]:
    """Return every table whose numbers are kept, by the name of its markers in the page."""
    kept = {study: f"{arms_table(study)}\n\n{separated(study)}" for study in WAYS if path_of(study).exists()}
    return kept | ({"readings": readings_table()} if path_of("readings").exists() else {})


def main() -> None:
    """Keep the runs that are named, and write the page."""
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
    rewrite(PAGE, texts())


if __name__ == "__main__":
    main()
