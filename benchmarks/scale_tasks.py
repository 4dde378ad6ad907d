"""Time what the scheduler and the store add to small tasks on Ray, over bare tasks that write the same file.

Bare tasks are all submitted at once, which is Ray at its best. Runs of both take turns, so that both see the same machine.
Other work on the machine changes processor time, which includes Ray's own processes, the least.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import statistics
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import psutil

from benchmarks.tables import ROOT
from reodsl.graph.job import Job
from reodsl.graph.task import Graph, Kind, Task
from reodsl.ir import Spec
from reodsl.ir.study import Study
from reodsl.plan.registry import Execution, Machine, Results
from reodsl.plan.verdict import Keys
from reodsl.store import runs
from reodsl.store.store import Store

SIZES = (1000, 3000, 10000)
ROOTS = 20


class Spent(NamedTuple):
    """Seconds by the clock, and of processors."""

    wall: float
    processor: float


def write(folder: Path, n: int) -> None:
    """Do the work of a task: write one small file."""
    folder.mkdir(exist_ok=True)
    (folder / "result.json").write_text(f'{{"n": {n}}}\n')


def runner(job: Job) -> None:
    """Do the same work as a task of a graph."""
    write(job.out, job.task.payload["n"])


def processor_seconds() -> float:
    """Return the processor time of this process and of everything it started, so far."""
    total = 0.0
    for each in (this := psutil.Process(), *this.children(recursive=True)):
        with suppress(psutil.Error):
            spent = each.cpu_times()
            total += spent.user + spent.system + spent.children_user + spent.children_system
    return total


def timed(work: Callable[[], object]) -> Spent:
    """Return the seconds of some work."""
    wall, processor = time.perf_counter(), processor_seconds()
    work()
    return Spent(time.perf_counter() - wall, processor_seconds() - processor)


def bare(tasks: int) -> Spent:
    """Return the seconds of bare Ray tasks."""
    import ray

    remote = ray.remote(max_retries=0)(write)
    with tempfile.TemporaryDirectory() as root:
        return timed(lambda: ray.get([remote.remote(Path(root) / str(n), n) for n in range(tasks)]))


def ours(tasks: int) -> Spent:
    """Return the seconds of as many tasks of a graph: a few that many read, and one that reads them all."""
    from runners.execute import execute

    def inputs(n: int) -> dict[str, str]:
        if n == tasks - 1:
            return {f"arm:{i}": f"t{i}" for i in range(n)}
        return {"arm:root": f"t{n % ROOTS}"} if n >= ROOTS else {}

    graph = Graph(tuple(Task(f"t{n}", "frontier", {"n": n}, inputs(n)) for n in range(tasks)))
    with tempfile.TemporaryDirectory() as folder:
        store = Store(Path(folder) / "store").open()
        record = runs.begin(store, Spec(study=Study(name="many", seeds=(1,), arms=())), "0" * 64)
        add = runs.Writer(store, record).add
        runners: dict[Kind, str] = {"frontier": "benchmarks.scale_tasks:runner"}
        keys = Keys(store, Path(folder))
        run = Execution(graph, store, keys, runners, Machine(), lambda event: None, add)
        results: list[Results] = []
        spent = timed(lambda: results.append(execute(run)))
        assert len(results[0].keys) == tasks
        return spent


def measure(sizes: tuple[int, ...], rounds: int) -> list[dict[str, Any]]:
    """Return a row per size: medians over rounds of milliseconds a task, and the peak memory of the driver so far."""
    from runners.execute.instance import start_ray

    # Workers import this file too, and nothing from the folder of the command.
    os.environ["PYTHONPATH"] = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
    rows = []
    with start_ray(None):
        bare(200)
        ours(200)
        for tasks in sizes:
            each: dict[str, list[float]] = {}
            for _ in range(rounds):
                # Bare ones before and after, for a machine that others use meanwhile.
                first, mine, second = bare(tasks), ours(tasks), bare(tasks)
                wall, processor = ((a + b) / 2 for a, b in zip(first, second, strict=True))
                added = {"added_ms": mine.wall - wall, "added_processor_ms": mine.processor - processor}
                took = {"bare_ray_ms": wall, "ours_ms": mine.wall, "bare_ray_processor_ms": processor}
                for name, seconds in (took | added).items():
                    each.setdefault(name, []).append(1e3 * seconds / tasks)
            peak = round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)
            medians = {name: round(statistics.median(values), 2) for name, values in each.items()}
            rows.append({"tasks": tasks, **medians, "driver_peak_mb": peak})
    return rows


def main() -> None:
    """Print the rows as JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tasks", type=int, nargs="+", default=SIZES)
    parser.add_argument("--rounds", type=int, default=3)
    args = parser.parse_args()
    print(json.dumps(measure(tuple(args.tasks), args.rounds), indent=1))


if __name__ == "__main__":
    main()
