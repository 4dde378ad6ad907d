"""`make scale`: measure planning, scheduling and reports as studies grow, for SCALE.md and scale.json."""

from __future__ import annotations

import argparse
import json
import os
import platform
import sys
from pathlib import Path
from typing import Any

from benchmarks.__main__ import HERE, run
from benchmarks.tables import markdown
from reodsl.price.machine import processor

PHASES = ("summaries", "frontier", "score", "report")
PLANS = {"nothing_done": "nothing done, s", "all_done": "all done, s", "all_changed": "all changed, s"}
PARTS: dict[str, tuple[str, dict[str, str]]] = {
    "plan": (
        "Planning: `reodsl plan`, cold, by the arms of the study",
        {"arms": "arms", "tasks": "tasks"}
        | {
            f"{plan}_{end}": words if end == "wall" else "of processor"
            for plan, words in PLANS.items()
            for end in ("wall", "cpu")
        },
    ),
    "tasks": (
        "Scheduling: small tasks on Ray, by how many there are",
        {
            "tasks": "tasks",
            "bare_ray_ms": "bare Ray, ms each",
            "ours_ms": "ours, ms each",
            "added_ms": "added",
        }
        | {"added_processor_ms": "added processor time", "driver_peak_mb": "driver's peak, MB"},
    ),
    "report": (
        "Reports: from graded responses to the page, by how many there are, 25 forced answers each",
        {"arms": "arms", "responses": "responses", "megabytes": "MB on disk", "seconds": "seconds"}
        | {"processor_seconds": "of processor"}
        | {
            f"{phase}_{what}": words
            for phase in PHASES
            for what, words in (("seconds", f"{phase}, s"), ("peak_mb", "peak, MB"))
        },
    ),
}
"""By part: the title of its table, and the heads of its columns by name."""


def text(results: dict[str, Any]) -> str:
    """Return the results as a page with a table for each part."""
    machine = results["machine"]
    blocks = [
        "# Growth",
        f"Made by `make scale` on {machine['processor']}, {machine['cores']} cores with a load of {machine['load']} "
        f"meanwhile,\nPython {machine['python']}. Where a machine has other work, trust processor time before time by the "
        "clock.",
    ]
    for part, (title, columns) in PARTS.items():
        rows = [
            [f"{row[name]:,}" if isinstance(row[name], int) else row[name] for name in columns]
            for row in results[part]
        ]
        blocks += [f"## {title}", markdown([f">{head}" for head in columns.values()], rows)]
    return "\n\n".join(blocks) + "\n"


def save(results: dict[str, Any], folder: Path) -> None:
    """Write both files."""
    (folder / "scale.json").write_text(json.dumps(results, indent=1) + "\n")
    (folder / "SCALE.md").write_text(text(results))


def main() -> None:
    """Measure the parts that are asked for."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", choices=PARTS, nargs="+", default=PARTS, help="keep the others as they are")
    args = parser.parse_args()
    place = HERE / "scale.json"
    results: dict[str, Any] = json.loads(place.read_text()) if place.exists() else {}
    for part in args.only:
        results[part] = run(f"benchmarks.scale_{part}")
        print(json.dumps(results[part], indent=1), file=sys.stderr)
    cores, load = len(os.sched_getaffinity(0)), round(os.getloadavg()[2], 1)
    machine = {"processor": processor(), "cores": cores, "load": load, "python": platform.python_version()}
    save(results | {"machine": machine}, HERE)


if __name__ == "__main__":
    main()
