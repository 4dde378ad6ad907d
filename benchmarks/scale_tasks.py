"""What the scheduler and the store add to small tasks on Ray: milliseconds a task over bare tasks that write the same file.

Bare tasks are all submitted at once, which is Ray at its best. Runs of both take turns, so that both see the same machine;
processor time, Ray's own processes included, is what a machine that others use meanwhile changes least.
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

SIZES = (1000, 3000, 10000)
ROOTS = 20
REPOSITORY = Path(__file__).resolve().parent.parent


class Spent(NamedTuple):
    """Seconds by the clock, and of processors."""

    wall: float
    processor: float


def small(folder: Path, n: int) -> None:
    """The work of a task: one small file."""
    (folder / "result.json").write_text(f'{{"n": {n}}}\n')


def runner(job: Any) -> None:
    """The same work as a task of a graph."""
    small(job.out, job.task.payload["n"])


def bare_task(root: str, n: int) -> None:
    """The same work as a Ray task and nothing else."""
    folder = Path(root) / str(n)
    folder.mkdir()
    small(folder, n)


def processor_seconds() -> float:
    """Return the processor time of this process and of everything it started, so far."""
    total = 0.0
    for each in (this := psutil.Process(), *this.children(recursive=True)):
        with suppress(psutil.Error):
            spent = each.cpu_times()
            total += spent.user + spent.system + spent.children_user + spent.children_system
    return total


def timed(work: Callable[[], object]) -> Spent:
    """What some work took."""
    wall, processor = time.perf_counter(), processor_seconds()
    work()
    return Spent(time.perf_counter() - wall, processor_seconds() - processor)


def bare(tasks: int) -> Spent:
    """What bare Ray tasks take."""
    import ray

    remote = ray.remote(max_retries=0)(bare_task)
    with tempfile.TemporaryDirectory() as root:
        return timed(lambda: ray.get([remote.remote(root, n) for n in range(tasks)]))


def ours(tasks: int) -> Spent:
    """What as many tasks of a graph take: a few that many read, and one that reads them all."""
    from reodsl.graph.task import Graph, Task
    from reodsl.ir import Spec
    from reodsl.ir.study import Study
    from reodsl.plan.keys import Keys
    from reodsl.plan.registry import Execution, Machine, Results
    from reodsl.store import runs
    from reodsl.store.store import Store
    from runners.execute import execute

    def task(n: int) -> Task:
        if n == tasks - 1:
            inputs = {f"arm:{i}": f"t{i}" for i in range(n)}
        else:
            inputs = {"arm:root": f"t{n % ROOTS}"} if n >= ROOTS else {}
        return Task(f"t{n}", "frontier", {"n": n}, inputs)

    graph = Graph(tuple(task(n) for n in range(tasks)))
    with tempfile.TemporaryDirectory() as folder:
        store = Store(Path(folder) / "store").open()
        record = runs.begin(store, Spec(study=Study(name="many", seeds=(1,), arms=())), "0" * 64)
        writer = runs.Writer(store, record)
        run = Execution(
            graph,
            store,
            Keys(store, Path(folder)),
            {"frontier": "benchmarks.scale_tasks:runner"},
            Machine(),
            lambda event: None,
            writer.add,
        )
        results: list[Results] = []
        spent = timed(lambda: results.append(execute(run)))
        assert len(results[0].keys) == tasks
        return spent


def measure(sizes: tuple[int, ...], rounds: int) -> list[dict[str, Any]]:
    """A row a size: milliseconds a task, bare and ours, medians over rounds, and the driver's peak memory so far."""
    from runners.execute.instance import start_ray

    # Workers import this file too, and nothing from the folder of the command.
    os.environ["PYTHONPATH"] = os.pathsep.join([str(REPOSITORY), os.environ.get("PYTHONPATH", "")])
    rows = []
    with start_ray(None):
        bare(200)
        ours(200)
        for tasks in sizes:
            pairs: list[tuple[Spent, Spent]] = []
            for _ in range(rounds):
                # Bare ones before and after, for a machine that others use meanwhile.
                first, mine, second = bare(tasks), ours(tasks), bare(tasks)
                alone = Spent((first.wall + second.wall) / 2, (first.processor + second.processor) / 2)
                pairs.append((alone, mine))

            def each(pick: Callable[[Spent, Spent], float], tasks: int = tasks) -> float:
                return round(1e3 / tasks * statistics.median(pick(*pair) for pair in pairs), 2)  # noqa: B023

            rows.append(
                {
                    "tasks": tasks,
                    "bare_ray_ms": each(lambda alone, mine: alone.wall),
                    "ours_ms": each(lambda alone, mine: mine.wall),
                    "added_ms": each(lambda alone, mine: mine.wall - alone.wall),
                    "bare_ray_processor_ms": each(lambda alone, mine: alone.processor),
                    "added_processor_ms": each(lambda alone, mine: mine.processor - alone.processor),
                    "driver_peak_mb": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024),
                }
            )
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tasks", type=int, nargs="+", default=SIZES)
    parser.add_argument("--rounds", type=int, default=3)
    args = parser.parse_args()
    print(json.dumps(measure(tuple(args.tasks), args.rounds), indent=1))


if __name__ == "__main__":
    main()
