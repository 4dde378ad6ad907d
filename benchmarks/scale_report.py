"""From graded responses to the report: seconds and peak memory, phase by phase, over up to 10 million responses.

The responses and forced answers are drawn at random in the form of docs/STORE.md, over 10 arms or 500, 3 benchmarks and
a grid of 25 budgets, so that there are 25 forced answers for each response. Polars has one thread, as in runs.
Memory is that of a phase and all processes that it starts, together.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil

ARMS = 10
SIZES = ((ARMS, 100_000), (ARMS, 1_000_000), (ARMS, 10_000_000), (500, 100_000))
"""Arms and responses in all."""
SAMPLES = 32
CHUNK = 200_000
Phase = Callable[[Path, int], None]
WORDS = (
    "hmm",
    "so",
    "step",
    "a",
    ":",
    "take",
    "2",
    "+",
    "4",
    "is",
    "6",
    ".",
    "wait",
    "check",
    "again",
    "then",
)


def spec(arms: int) -> Any:
    """The spec of the study of so many arms and the graph of its tasks."""
    from benchmarks.scale_plan import study
    from reodsl.graph.lower import lower
    from reodsl.language import compile_file

    with tempfile.TemporaryDirectory() as name:
        path = Path(name) / "many.reo"
        path.write_text(study(arms - 1))
        compiled = compile_file(str(path)).spec
    assert compiled is not None
    return compiled, lower(compiled)


def draw(folder: Path, rows: int, arms: int = ARMS) -> None:
    """Write every evaluation and training of the study, `rows` responses in all."""
    from reodsl.graph.task import Graph

    graph: Graph = spec(arms)[1]
    for index, task in enumerate(task for task in graph.tasks if task.kind == "evaluate"):
        benchmarks = [each["name"] for each in task.payload["suite"]["benchmarks"]]
        each = rows // arms // len(benchmarks) // SAMPLES
        _evaluation(folder / task.id, benchmarks, task.payload["suite"]["grid"], each, index)
    for task in graph.tasks:
        if task.kind == "train":
            _training(folder / task.id)


def _evaluation(folder: Path, benchmarks: list[str], grid: list[int], questions: int, seed: int) -> None:
    """An arm's samples and forced answers, drawn in chunks and joined as evaluations join theirs."""
    import polars as pl

    parts = folder / "parts"
    parts.mkdir(parents=True)
    per_chunk = max(1, CHUNK // SAMPLES)
    number = 0
    for benchmark in benchmarks:
        for first in range(0, questions, per_chunk):
            last = min(questions, first + per_chunk)
            whole = _responses(benchmark, first, last, seed * 1000 + number)
            whole.write_parquet(parts / f"samples-{number:05d}.parquet")
            _forced(whole, grid, seed * 1000 + number).write_parquet(parts / f"forced-{number:05d}.parquet")
            if number == 0:
                _examples(whole, grid).write_parquet(folder / "examples.parquet")
            number += 1
    for table in ("samples", "forced"):
        scan = pl.scan_parquet(sorted(parts.glob(f"{table}-*.parquet")))
        scan.sink_parquet(folder / f"{table}.parquet", maintain_order=True)
    shutil.rmtree(parts)


def _responses(benchmark: str, first: int, last: int, seed: int) -> Any:
    import numpy as np
    import polars as pl

    rng = np.random.default_rng(seed)
    count = (last - first) * SAMPLES
    pool = [" ".join(rng.choice(WORDS, size=int(n))) for n in rng.integers(10, 128, 1000)]
    chosen = rng.integers(0, len(pool), count)
    questions = np.repeat(np.arange(first, last), SAMPLES)
    gold = questions % 10
    correct = rng.random(count) < 0.4 + 0.5 * ((questions * 7919 + seed) % 97 / 97)
    return pl.DataFrame({"question": questions, "at": np.arange(count)}).select(
        pl.lit(benchmark).alias("benchmark"),
        pl.format("q{}", "question").alias("question"),
        pl.format("<q> {} a +4 b +2 ?", "question").alias("text"),
        pl.Series("gold", gold).cast(pl.String),
        pl.Series("sample", np.tile(np.arange(SAMPLES), last - first)),
        pl.format("{} . {}", pl.Series("response", pool).gather(chosen), "at").alias("response"),
        pl.Series("tokens", [text.count(" ") + 3 for text in pool]).gather(chosen).alias("tokens"),
        pl.lit("stop").alias("finish"),
        pl.Series("answer", np.where(correct, gold, (gold + 1) % 10)).cast(pl.String),
        pl.Series("correct", correct),
        pl.lit(None, dtype=pl.String).alias("unsettled"),
    )


def _forced(whole: Any, grid: list[int], seed: int) -> Any:
    import numpy as np
    import polars as pl

    rng = np.random.default_rng(seed + 7)
    budgets = pl.DataFrame({"budget": grid})
    crossed = whole.select("benchmark", "question", "sample", "tokens", "gold").join(budgets, how="cross")
    correct = rng.random(crossed.height) < 0.1 + 0.8 * crossed["budget"].to_numpy() / max(grid)
    return crossed.select(
        "benchmark",
        "question",
        "sample",
        "budget",
        (pl.col("budget") < pl.col("tokens")).alias("forced"),
        pl.when(pl.Series(correct)).then(pl.col("gold")).otherwise(pl.lit("x")).alias("answer"),
        pl.Series("correct", correct),
        pl.lit(None, dtype=pl.String).alias("unsettled"),
    )


def _examples(whole: Any, grid: list[int]) -> Any:
    import polars as pl

    kept = whole.filter((pl.col("sample") == 0) & pl.col("question").is_in([f"q{n}" for n in range(8)]))
    budgets = pl.DataFrame({"budget": grid})
    return (
        kept.select("benchmark", "question", "sample", "answer", "correct")
        .join(budgets, how="cross")
        .select(
            "benchmark",
            "question",
            "sample",
            "budget",
            (4 * pl.col("budget")).alias("characters"),
            pl.lit(" 3 }").alias("forced_text"),
            "answer",
            "correct",
        )
    )


def _training(folder: Path) -> None:
    import polars as pl

    folder.mkdir(parents=True)
    steps = list(range(1, 25))
    columns = {name: [0.5 + n / 50 for n in steps] for name in ("reward", "accuracy", "loss", "entropy")}
    table = pl.DataFrame(
        {"step": steps, **columns, "length": [70.0 - n for n in steps], "tokens": [9000] * 24}
    )
    table.write_parquet(folder / "metrics.parquet")


def summaries(folder: Path, arms: int = ARMS) -> None:
    """The curves and summary of every evaluation."""
    from runners.evaluate.run import write_json
    from runners.evaluate.summary import curves, summary

    for task in spec(arms)[1].tasks:
        if task.kind == "evaluate":
            names = [each["name"] for each in task.payload["suite"]["benchmarks"]]
            place = folder / task.id
            write_json(place / "curves.json", curves(place / "forced.parquet", names))
            write_json(
                place / "summary.json", summary(place / "samples.parquet", place / "forced.parquet", names)
            )


def task_of(kind: str) -> Phase:
    """The runner of the one task of a kind, on the folders of what it reads."""

    def run(folder: Path, arms: int = ARMS) -> None:
        from reodsl.graph.job import Job
        from runners.execute.perform import load
        from runners.registry import REGISTRY

        task = next(task for task in spec(arms)[1].tasks if task.kind == kind)
        out = folder / task.id
        out.mkdir()
        inputs = {role: folder / source for role, source in task.inputs.items()}
        load(REGISTRY.runners[task.kind])(
            Job(task, inputs, out, folder / "work", folder, lambda progress: None)
        )

    return run


PHASES: dict[str, Phase] = {
    "summaries": summaries,
    "frontier": task_of("frontier"),
    "score": task_of("score"),
    "report": task_of("report"),
}


def phase(name: str, folder: Path, rows: int, arms: int) -> tuple[float, float, float]:
    """Seconds by the clock, of the processor, and peak megabytes of one phase in a process of its own."""
    began = time.perf_counter()
    command = [sys.executable, "-m", "benchmarks.scale_report", "--phase", name]
    command += ["--folder", str(folder), "--rows", str(rows), "--arms", str(arms)]
    process = subprocess.Popen(command, env=os.environ | {"POLARS_MAX_THREADS": "1"})
    peak = 0
    while (ended := os.wait4(process.pid, os.WNOHANG))[0] == 0:
        peak = max(peak, memory(process.pid))
        # To look takes the system some milliseconds.
        time.sleep(0.1)
    _, status, usage = ended
    assert status == 0, name
    return time.perf_counter() - began, usage.ru_utime + usage.ru_stime, peak / 1e6


def memory(process: int) -> int:
    """Return the bytes that a process and its descendants hold now; 0 where they are gone.

    What they share counts once. Libraries that unrelated processes use too count in full for the largest process.
    """
    together = largest = 0
    with suppress(psutil.Error):
        for each in (first := psutil.Process(process), *first.children(recursive=True)):
            with suppress(psutil.Error):
                sizes = each.memory_full_info()
                together, largest = together + sizes.pss, max(largest, sizes.rss)
    return max(together, largest)


def measure(sizes: Iterable[tuple[int, int]], root: Path | None) -> list[dict[str, Any]]:
    """A row for each number of arms and of responses: seconds and peak megabytes of every phase."""
    rows = []
    for arms, count in sizes:
        with tempfile.TemporaryDirectory(dir=root) as name:
            folder = Path(name)
            phase("draw", folder, count, arms)
            size = sum(path.stat().st_size for path in folder.rglob("*.parquet"))
            row: dict[str, Any] = {"arms": arms, "responses": count, "megabytes": round(size / 1e6)}
            total = processor = 0.0
            for each in PHASES:
                seconds, busy, peak = phase(each, folder, count, arms)
                row |= {
                    f"{each}_seconds": round(seconds, 1),
                    f"{each}_processor_seconds": round(busy, 1),
                    f"{each}_peak_mb": round(peak),
                }
                total, processor = total + seconds, processor + busy
            rows.append(row | {"seconds": round(total, 1), "processor_seconds": round(processor, 1)})
            print(json.dumps(rows[-1]), file=sys.stderr, flush=True)
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, nargs="+", help="responses in all")
    parser.add_argument("--arms", type=int, default=ARMS)
    parser.add_argument("--folder", type=Path, help="where to put what is drawn")
    parser.add_argument(
        "--phase", choices=("draw", *PHASES), help="do only this, on what was drawn into the folder"
    )
    args = parser.parse_args()
    if args.phase == "draw":
        draw(args.folder, args.rows[0], args.arms)
    elif args.phase:
        PHASES[args.phase](args.folder, args.arms)
    else:
        sizes = [(args.arms, count) for count in args.rows] if args.rows else SIZES
        print(json.dumps(measure(sizes, args.folder), indent=1))


if __name__ == "__main__":
    main()
