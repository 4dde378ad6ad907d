"""`reodsl check` on the largest spec, cold: whole processes, the median of wall and CPU seconds."""

from __future__ import annotations

import argparse
import json
import resource
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

SPECS = Path(__file__).resolve().parent.parent / "specs"


def measure(rounds: int) -> dict[str, Any]:
    """Medians over rounds of a process that checks one file and ends."""
    largest = max(SPECS.rglob("*.reo"), key=lambda path: path.stat().st_size)
    walls, cpus = [], []
    for _ in range(rounds + 1):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        began = time.perf_counter()
        subprocess.run(
            [sys.executable, "-m", "reodsl.cli.main", "check", str(largest)], check=True, capture_output=True
        )
        walls.append(time.perf_counter() - began)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        cpus.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    # The first run may write the parser's cache.
    return {
        "spec": str(largest.relative_to(SPECS.parent)),
        "lines": len(largest.read_text().splitlines()),
        "wall_seconds": round(statistics.median(walls[1:]), 3),
        "cpu_seconds": round(statistics.median(cpus[1:]), 3),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=9)
    print(json.dumps(measure(parser.parse_args().rounds), indent=2))


if __name__ == "__main__":
    main()
