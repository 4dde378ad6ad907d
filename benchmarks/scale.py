"""`make scale`: how planning, scheduling, reports and predictions behave as studies grow, to SCALE.md and scale.json."""

from __future__ import annotations

import argparse
import json
import os
import platform
import sys
from pathlib import Path
from typing import Any

from benchmarks.__main__ import HERE, run
from reodsl.price.machine import processor

PARTS = ("plan", "tasks", "report", "price")
Row = dict[str, Any]


def curve(rows: list[Row], columns: dict[str, str]) -> str:
    """Rows as a table of some of their columns, by the words that head them."""
    lines = ["| " + " | ".join(columns.values()) + " |", "| " + " | ".join("---:" for _ in columns) + " |"]
    for row in rows:
        cells = (f"{value:,}" if isinstance(value := row[name], int) else str(value) for name in columns)
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def text(results: dict[str, Any]) -> str:
    """The results as a page: a growth curve for each claim."""
    machine = results["machine"]
    plan = {
        "arms": "arms",
        "tasks": "tasks",
        "nothing_done_wall": "nothing done, s",
        "nothing_done_cpu": "of processor",
        "all_done_wall": "all done, s",
        "all_done_cpu": "of processor",
        "all_changed_wall": "all changed, s",
        "all_changed_cpu": "of processor",
    }
    tasks = {
        "tasks": "tasks",
        "bare_ray_ms": "bare Ray, ms each",
        "ours_ms": "ours, ms each",
        "added_ms": "added",
        "added_processor_ms": "added processor time",
        "driver_peak_mb": "driver's peak, MB",
    }
    report = {
        "arms": "arms",
        "responses": "responses",
        "megabytes": "MB on disk",
        "seconds": "seconds",
        "processor_seconds": "of processor",
    }
    for phase in ("summaries", "frontier", "score", "report"):
        report |= {f"{phase}_seconds": f"{phase}, s", f"{phase}_peak_mb": "peak, MB"}
    price = {
        "plan": "plan made",
        "task": "task",
        "predicted_seconds": "predicted, s",
        "measured_seconds": "measured, s of processor",
        "predicted_over_measured": "ratio",
        "clock_seconds": "by the clock, s",
    }
    return f"""# Growth

Made by `make scale` on {machine["processor"]}, {machine["cores"]} cores with a load of {machine["load"]} meanwhile,
Python {machine["python"]}. Where a machine has other work, trust processor time before time by the clock.

## Planning: `reodsl plan`, cold, by the arms of the study

{curve(results["plan"], plan)}

## Scheduling: small tasks on Ray, by how many there are

{curve(results["tasks"], tasks)}

## Reports: from graded responses to the page, by how many there are, 25 forced answers each

{curve(results["report"], report)}

## Predictions: the miniature's plan against its run

{curve(results["price"], price)}
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--only", choices=PARTS, nargs="+", default=PARTS, help="the others stay as they were"
    )
    args = parser.parse_args()
    place = HERE / "scale.json"
    results: dict[str, Any] = json.loads(place.read_text()) if place.exists() else {}
    for part in args.only:
        results[part] = run(f"benchmarks.scale_{part}")
        print(json.dumps(results[part], indent=1), file=sys.stderr)
    results["machine"] = {
        "processor": processor(),
        "cores": len(os.sched_getaffinity(0)),
        "load": round(os.getloadavg()[2], 1),
        "python": platform.python_version(),
    }
    save(results, HERE)
    print(text(results))


def save(results: dict[str, Any], folder: Path) -> None:
    """Write both files."""
    (folder / "scale.json").write_text(json.dumps(results, indent=1) + "\n")
    (folder / "SCALE.md").write_text(text(results))


if __name__ == "__main__":
    main()
