"""Write docs/EVIDENCE.md's tables of the real language model from its finished run.

    python -m benchmarks.language_model RUN STORE   # keep the run's numbers, write the page's tables
    python -m benchmarks.language_model             # write the page's tables from the numbers that are kept

RUN is the folder of the report, STORE the store of `specs/smollm2_reo_exp.reo`. Numbers are kept in `benchmarks/tables/`.
"""

from __future__ import annotations

import argparse
import csv
from collections.abc import Mapping, Sequence
from pathlib import Path

from benchmarks.tables import ROOT, difference, markdown, path_of, read_rows, rewrite
from reodsl.diagnostics import in_percent
from reodsl.store.runs import records
from reodsl.store.store import Store

PAGE = ROOT / "docs" / "EVIDENCE.md"
STUDY = "smollm2_reo_exp"
ARMS = ("base", "vanilla", "reo_exp", "group_norm")
MEASURES = ("accuracy", "length", "reg", "difference", "accuracy_change")
RESULTS = (
    "arm",
    "benchmark",
    *(f"{measure}{end}" for measure in MEASURES for end in ("", "_low", "_high")),
    "difference_star",
)
HOURS = ("task", "seconds", "processor_seconds", "peak_memory", "device_model")

Row = Mapping[str, str]
Rows = Sequence[Row]


def keep(run: Path, store: Store) -> None:
    """Keep scores, and what each task took."""
    with (run / "tables" / "main.csv").open(newline="", encoding="utf-8") as file:
        write("results", RESULTS, list(csv.DictReader(file)))
    tasks = next(record.tasks for record in reversed(records(store)) if record.study == STUDY)
    provenance = [manifest.provenance for key in tasks.values() if (manifest := store.get(key)) is not None]
    write("hours", HOURS, [{column: str(each.get(column, "")) for column in HOURS} for each in provenance])


def write(name: str, columns: Sequence[str], rows: Rows) -> None:
    """Write a kept table with these columns."""
    with path_of(f"smollm2_{name}").open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, columns, extrasaction="ignore", lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)


def scores(rows: Rows) -> str:
    """Return a row for each arm: the mean over benchmarks with intervals, then accuracy and length of each benchmark."""
    names = [name for name in dict.fromkeys(row["benchmark"] for row in rows) if name != "mean"]
    lines = []
    for arm in ARMS:
        each = {row["benchmark"]: row for row in rows if row["arm"] == arm}
        whole = each["mean"]
        means = (around(whole, "reg"), around(whole, "accuracy", 100), around(whole, "length"))
        parts = [f"{in_percent(float(each[n]['accuracy']))}%, {float(each[n]['length']):.0f}" for n in names]
        lines.append((arm, difference(whole), *means, *parts))
    head = ("arm", ">REG vs. vanilla", ">REG", ">accuracy (%)", ">length", *(f">{name}" for name in names))
    return markdown(head, lines)


def around(row: Row, column: str, scale: float = 1.0) -> str:
    """Return a number with its interval, as in `43.2 [39.1, 47.4]`."""
    value, low, high = (scale * float(row[column + end]) for end in ("", "_low", "_high"))
    return f"{value:.1f} [{low:.1f}, {high:.1f}]"


def hours(rows: Rows) -> str:
    """Return the time that each part took by the clock and of a processor, and its most memory."""
    named = {"SFT": "start.train", "RL, three arms": ".train", "evaluation, four arms": ".eval"}
    parts: dict[str, list[Row]] = {part: [] for part in named}
    for row in rows:
        for part in [part for part, word in named.items() if word in row["task"]][:1]:
            parts[part].append(row)
    lines = [
        (
            *(part, *(f"{sum(float(row[name]) for row in of) / 3600:.1f} h" for name in HOURS[1:3])),
            f"{max(float(row['peak_memory']) for row in of) / 2**30:.1f} GiB",
        )
        for part, of in {**parts, "all": rows}.items()
    ]
    return markdown(("part", ">by the clock", ">of a core", ">memory"), lines)


def texts() -> dict[str, str]:
    """Return the page's tables by the names of their markers."""
    made = {"scores": (scores, "results"), "hours": (hours, "hours")}
    return {name: table(read_rows(f"smollm2_{kept}")) for name, (table, kept) in made.items()}


def main() -> None:
    """Keep a run, if one is named, and write the page."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("run", type=Path, nargs="?")
    parser.add_argument("store", type=Path, nargs="?")
    asked = parser.parse_args()
    if asked.run is not None:
        if asked.store is None:
            parser.error("name the store as well")
        keep(asked.run, Store(asked.store))
    rewrite(PAGE, texts())


if __name__ == "__main__":
    main()
