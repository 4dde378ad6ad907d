"""docs/EVIDENCE.md's tables and pictures: the finished run of a real language model in, the page's numbers out.

    python -m benchmarks.language_model RUN STORE   # keep the run's numbers, draw its pictures, write the page's tables
    python -m benchmarks.language_model             # write the page's tables from the numbers that are kept

RUN is the folder of the report, STORE the store of `specs/smollm2_reo_exp.reo`. Numbers are kept in benchmarks/tables/.
Pictures of the report need Chromium.
"""

from __future__ import annotations

import argparse
import csv
from collections.abc import Mapping, Sequence
from pathlib import Path

from benchmarks.figure import write_figure
from benchmarks.ordering import BEGIN, END, ROOT, worded
from benchmarks.picture import browser, picture
from reodsl.store.runs import records
from reodsl.store.store import Store

PAGE = ROOT / "docs" / "EVIDENCE.md"
KEPT = ROOT / "benchmarks" / "tables"
STUDY = "smollm2_reo_exp"
ARMS = ("base", "vanilla", "reo_exp", "group_norm")
SPAN = 5
"""Steps over which the beginning and the end of a training are averaged."""
MEASURES = ("accuracy", "length", "reg", "difference", "accuracy_change")
RESULTS = ("arm", "benchmark", *(f"{measure}{end}" for measure in MEASURES for end in ("", "_low", "_high")))
STEPS = ("arm", "method", "step", "accuracy", "length", "loss", "unfinished", "mismatch_median")
HOURS = ("task", "seconds", "processor_seconds", "peak_memory", "device_model")

Rows = Sequence[Mapping[str, str]]


def keep(run: Path, store: Store) -> None:
    """Copies what the page's tables are made of: scores, steps of trainings, and what each task took."""
    for name, columns, source in (("results", RESULTS, "main.csv"), ("steps", STEPS, "training.csv")):
        with (run / "tables" / source).open(newline="", encoding="utf-8") as file:
            write(name, columns, list(csv.DictReader(file)))
    tasks = next(record.tasks for record in reversed(records(store)) if record.study == STUDY)
    provenance = [manifest.provenance for key in tasks.values() if (manifest := store.get(key)) is not None]
    write("hours", HOURS, [{column: str(each.get(column, "")) for column in HOURS} for each in provenance])


def write(name: str, columns: Sequence[str], rows: Rows) -> None:
    """A kept table, with these columns."""
    with (KEPT / f"smollm2_{name}.csv").open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, columns, extrasaction="ignore", lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)


def kept(name: str) -> list[dict[str, str]]:
    """The rows of a kept table."""
    with (KEPT / f"smollm2_{name}.csv").open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def scores(rows: Rows) -> str:
    """Each arm by the mean over benchmarks, its difference from vanilla first; then the benchmarks, accuracy and length."""
    benchmarks = [name for name in dict.fromkeys(row["benchmark"] for row in rows) if name != "mean"]
    lines = [
        "| arm | REG − vanilla's | REG | accuracy (%) | length | " + " | ".join(benchmarks) + " |",
        "| --- | ---: | ---: | ---: | ---: |" + " ---: |" * len(benchmarks),
    ]
    for arm in ARMS:
        each = {row["benchmark"]: row for row in rows if row["arm"] == arm}
        whole = each["mean"]
        value, low, high = (number(whole, f"difference{end}") for end in ("", "_low", "_high"))
        lines.append(
            f"| {arm} | {worded(value, low, high)} | {around(whole, 'reg')} | {around(whole, 'accuracy', 100)} "
            f"| {around(whole, 'length')} | "
            + " | ".join(
                f"{100 * float(row['accuracy']):.0f}%, {float(row['length']):.0f}"
                for row in (each[name] for name in benchmarks)
            )
            + " |"
        )
    return "\n".join(lines)


def number(row: Mapping[str, str], column: str) -> float | None:
    return float(row[column]) if row[column] else None


def around(row: Mapping[str, str], column: str, scale: float = 1.0) -> str:
    """A number with its interval: `43.2 [39.1, 47.4]`."""
    value, low, high = (scale * float(row[column + end]) for end in ("", "_low", "_high"))
    return f"{value:.1f} [{low:.1f}, {high:.1f}]"


def trainings(rows: Rows) -> str:
    """What each reinforcement learning did: accuracy and length of its first and its last steps."""
    lines = [
        f"| arm | steps | accuracy, first {SPAN} | last {SPAN} | length, first {SPAN} | last {SPAN} | cut off, last |",
        "| --- | ---: | ---: | ---: | ---: | ---: | ---: |",
    ]
    for arm in ARMS[1:]:
        steps = sorted(
            (r for r in rows if r["arm"] == arm and r["method"] == "ppo"), key=lambda r: int(r["step"])
        )
        first, last = steps[:SPAN], steps[-SPAN:]
        accuracies = [100 * mean(part, "accuracy") for part in (first, last)]
        lengths = [mean(part, "length") for part in (first, last)]
        lines.append(
            f"| {arm} | {len(steps)} | {accuracies[0]:.0f}% | {accuracies[1]:.0f}% | {lengths[0]:.0f} | {lengths[1]:.0f} "
            f"| {100 * mean(last, 'unfinished'):.1f}% |"
        )
    return "\n".join(lines)


def mean(rows: Rows, column: str) -> float:
    return sum(float(row[column]) for row in rows) / len(rows)


def hours(rows: Rows) -> str:
    """What the parts took of a processor and by the clock, and the most memory."""
    parts = {"SFT": "start.train", "RL, three arms": ".train", "evaluation, four arms": ".eval"}
    left = list(rows)
    lines = ["| part | by the clock | of a core | memory |", "| --- | ---: | ---: | ---: |"]
    for part, named in parts.items():
        here = [row for row in left if named in row["task"]]
        left = [row for row in left if row not in here]
        lines.append(row_of(part, here))
    return "\n".join([*lines, row_of("all", rows)])


def row_of(part: str, rows: Rows) -> str:
    clock, core = (
        sum(float(row[column]) for row in rows) / 3600 for column in ("seconds", "processor_seconds")
    )
    memory = max(float(row["peak_memory"]) for row in rows) / 2**30
    return f"| {part} | {clock:.1f} h | {core:.1f} h | {memory:.1f} GiB |"


def page(text: str) -> str:
    """The page with its tables anew."""
    tables = {
        "scores": scores(kept("results")),
        "trainings": trainings(kept("steps")),
        "hours": hours(kept("hours")),
    }
    for name, table in tables.items():
        before, begin, rest = text.partition(BEGIN.format(name))
        _, end, after = rest.partition(END.format(name))
        if not end:
            raise SystemExit(f"{PAGE} has no markers named {name}")
        text = f"{before}{begin}\n{table}\n{end}{after}"
    return text


def main() -> None:
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
        program = browser()
        for dark, end in ((False, ""), (True, "-dark")):
            write_figure(asked.run, ROOT / "docs" / f"smollm2-curves{end}.png", dark=dark)
            if program is not None:
                picture(
                    asked.run / "report.html", ROOT / "docs" / f"smollm2-report{end}.png", program, dark=dark
                )
    PAGE.write_text(page(PAGE.read_text("utf-8")), "utf-8")


if __name__ == "__main__":
    main()
