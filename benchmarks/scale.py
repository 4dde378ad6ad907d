"""`make scale`: measure plans and reports as studies grow, for SCALE.md and scale.json.

A plan is a whole process, cold, from the text of a spec of many arms to the plan and its price, where nothing is done yet. A
report is made from graded responses, phase by phase, each in a process of its own, with its peak memory and that of what it
starts. Responses and forced answers are drawn at random in the form of docs/STORE.md, over 3 benchmarks and a grid of 25
budgets. Polars has one thread, as in runs.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import psutil

from benchmarks.tables import ROOT, markdown
from reodsl.graph.job import Job
from reodsl.graph.lower import lower
from reodsl.graph.task import Graph
from reodsl.language import compile_file
from reodsl.price.machine import processor

HERE = ROOT / "benchmarks"
PLANNED = (25, 50, 100, 200, 400)
"""Arms of studies that are planned."""
ARMS = 10
SIZES = ((ARMS, 100_000), (ARMS, 1_000_000), (ARMS, 10_000_000), (400, 100_000))
"""Arms and responses in all of studies that are reported."""
SAMPLES = 32
WORDS = [
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
]
Phase = Callable[[Path, int], None]
HEAD = '''"""A study of many arms on the miniature."""
from std.miniature import overthinker, chain_train, chain_suite, chain_forcing
from std.rewards   import outcome, reo, length_group_norm
from std.recipes   import ppo

recipe small = ppo {
  base        = checkpoint(overthinker)
  data        = chain_train
  forcing     = chain_forcing
  batch       { prompts = 32, rollouts = 8 }
  rollout     { max_tokens = 128 tokens }
  max_prompt  = 32 tokens
  minibatches = 2
  epochs      = 1
  steps       = 24 steps
  optim       { algorithm = adamw, lr = 5e-4, warmup = 3 steps }
  eval        = chain_suite
}
'''


def study(arms: int) -> str:
    """Return a spec with `arms` trained arms, all different, a frontier over two in three, a score and a report."""
    rewards = (
        "outcome",
        "reo(at: exp(from: 4 tokens, to: 128 tokens, n: 5))",
        "length_group_norm(alpha: {:.4f})",
    )
    lines = [HEAD]
    for index in range(arms):
        reward = rewards[index % 3].format(0.1 + index / 1e4)
        lines.append(
            f"experiment e{index} = small {{ reward = {reward}, optim {{ lr = {1e-5 * (index + 1):.6g} }} }}"
        )
    existing = [f"a{index}" for index in range(arms) if index % 3 != 1]
    lines += ["study many {", "  arm base = checkpoint(overthinker)"]
    lines += [f"  arm a{index} = e{index}" for index in range(arms)]
    lines.append(f"  frontier edge = envelope(of: [base, {', '.join(existing)}], to: 128 tokens)")
    lines.append("  score = reg(against: edge, to: 128 tokens, relative_to: base)")
    lines.append("  report { table main { rows = arms, columns = [accuracy, length, reg] } }")
    return "\n".join([*lines, "}"]) + "\n"


def graph_of(arms: int) -> Graph:
    """Return the tasks of the study of so many arms."""
    with tempfile.TemporaryDirectory() as name:
        path = Path(name) / "many.reo"
        path.write_text(study(arms - 1))
        compiled = compile_file(str(path)).spec
    assert compiled is not None
    return lower(compiled)


def draw(folder: Path, rows: int, arms: int = ARMS) -> None:
    """Write every evaluation and training of the study, `rows` responses in all."""
    steps = np.arange(1, 25)
    rising = dict.fromkeys(("reward", "accuracy", "loss", "entropy"), 0.5 + steps / 50)
    training = pl.DataFrame({"step": steps, **rising, "length": 70.0 - steps, "tokens": 9000})
    for index, task in enumerate(graph_of(arms).tasks):
        place = folder / task.id
        if task.kind == "train":
            place.mkdir(parents=True)
            training.write_parquet(place / "metrics.parquet")
        elif task.kind == "evaluate":
            place.mkdir(parents=True)
            names = names_of(task.payload)
            questions = rows // arms // len(names) // SAMPLES
            evaluation(place, names, task.payload["suite"]["grid"], questions, 100 * index)


def names_of(payload: dict[str, Any]) -> list[str]:
    """Return the benchmarks of an evaluation."""
    return [each["name"] for each in payload["suite"]["benchmarks"]]


def evaluation(folder: Path, names: list[str], grid: list[int], questions: int, seed: int) -> None:
    """Write the samples and forced answers of an arm, drawn benchmark by benchmark."""
    budgets = pl.DataFrame({"budget": grid})
    parts: dict[str, list[pl.LazyFrame]] = {"samples": [], "forced": []}
    with tempfile.TemporaryDirectory() as drawn:
        for number, name in enumerate(names):
            rng = np.random.default_rng(seed + number)
            whole = responses(rng, name, questions)
            kept = whole.select("benchmark", "question", "sample", "tokens", "gold")
            each = {"samples": whole, "forced": forced(rng, kept.join(budgets, how="cross"))}
            for table, frame in each.items():
                frame.write_parquet(path := Path(drawn) / f"{table}-{number}.parquet")
                parts[table].append(pl.scan_parquet(path))
            if number == 0:
                examples(whole.join(budgets, how="cross")).write_parquet(folder / "examples.parquet")
        for table, scans in parts.items():
            pl.concat(scans).sink_parquet(folder / f"{table}.parquet", maintain_order=True)


def responses(rng: np.random.Generator, benchmark: str, questions: int) -> pl.DataFrame:
    """Draw the responses to a benchmark, of a thousand different texts."""
    pool = [" ".join(rng.choice(WORDS, size=int(n))) for n in rng.integers(10, 128, 1000)]
    chosen = rng.integers(0, len(pool), questions * SAMPLES)
    question = np.repeat(np.arange(questions), SAMPLES)
    correct = rng.random(len(chosen)) < 0.4 + 0.5 * (question * 7919 % 97 / 97)
    return pl.DataFrame({"question": question, "at": np.arange(len(chosen))}).select(
        pl.lit(benchmark).alias("benchmark"),
        pl.format("q{}", "question").alias("question"),
        pl.format("<q> {} a +4 b +2 ?", "question").alias("text"),
        (pl.col("question") % 10).cast(pl.String).alias("gold"),
        pl.Series("sample", np.tile(np.arange(SAMPLES), questions)),
        pl.format("{} . {}", pl.Series("response", pool).gather(chosen), "at").alias("response"),
        pl.Series("tokens", [text.count(" ") + 3 for text in pool]).gather(chosen).alias("tokens"),
        pl.lit("stop").alias("finish"),
        ((pl.col("question") + ~pl.Series(correct)) % 10).cast(pl.String).alias("answer"),
        pl.Series("correct", correct),
        pl.lit(None, dtype=pl.String).alias("unsettled"),
    )


def forced(rng: np.random.Generator, crossed: pl.DataFrame) -> pl.DataFrame:
    """Draw the forced answers of responses with each budget."""
    budget = crossed["budget"].to_numpy()
    correct = pl.Series("correct", rng.random(crossed.height) < 0.1 + 0.8 * budget / budget.max())
    return crossed.select(
        "benchmark",
        "question",
        "sample",
        "budget",
        (pl.col("budget") < pl.col("tokens")).alias("forced"),
        pl.when(correct).then(pl.col("gold")).otherwise(pl.lit("x")).alias("answer"),
        correct,
        pl.lit(None, dtype=pl.String).alias("unsettled"),
    )


def examples(crossed: pl.DataFrame) -> pl.DataFrame:
    """Return the forced answers that a report shows in full: of the first response to eight questions."""
    shown = (pl.col("sample") == 0) & pl.col("question").is_in([f"q{n}" for n in range(8)])
    return crossed.filter(shown).select(
        *("benchmark", "question", "sample", "budget", (4 * pl.col("budget")).alias("characters")),
        *(pl.lit(" 3 }").alias("forced_text"), "answer", "correct"),
    )


def summaries(folder: Path, arms: int = ARMS) -> None:
    """Write the curves and the summary of every evaluation."""
    from runners.evaluate.run import write_json
    from runners.evaluate.tables import curves, summary

    for task in graph_of(arms).tasks:
        if task.kind == "evaluate":
            place, names = folder / task.id, names_of(task.payload)
            whole, cut = place / "samples.parquet", place / "forced.parquet"
            write_json(place / "curves.json", curves(cut, names))
            write_json(place / "summary.json", summary(whole, cut, names))


def phase_of(kind: str) -> Phase:
    """Return the runner of the one task of a kind, on the folders that it reads."""

    def run(folder: Path, arms: int = ARMS) -> None:
        from runners.execute.perform import load
        from runners.registry import REGISTRY

        task = next(task for task in graph_of(arms).tasks if task.kind == kind)
        out = folder / task.id
        out.mkdir()
        inputs = {role: folder / source for role, source in task.inputs.items()}
        job = Job(task, inputs, out, folder / "work", folder, lambda progress: None)
        load(REGISTRY.runners[task.kind])(job)

    return run


PHASES: dict[str, Phase] = {"summaries": summaries}
PHASES |= {kind: phase_of(kind) for kind in ("frontier", "score", "report")}


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


def run(command: Sequence[str]) -> tuple[float, float, float]:
    """Return seconds by the clock and of the processor, and peak megabytes, of a command of Python's modules."""
    began = time.perf_counter()
    environment = os.environ | {"POLARS_MAX_THREADS": "1"}
    process = subprocess.Popen([sys.executable, "-m", *command], env=environment, stdout=subprocess.DEVNULL)
    peak = 0
    while (ended := os.wait4(process.pid, os.WNOHANG))[0] == 0:
        peak = max(peak, memory(process.pid))
        # To look takes the system some milliseconds.
        time.sleep(0.1)
    _, status, usage = ended
    # A plan with work to do ends with 2.
    assert os.waitstatus_to_exitcode(status) in (0, 2), command
    return time.perf_counter() - began, usage.ru_utime + usage.ru_stime, peak / 1e6


def measure_plans(sizes: Iterable[int], rounds: int = 3) -> list[dict[str, Any]]:
    """Return a row for each number of arms: the medians over rounds of a plan where nothing is done."""
    rows = []
    with tempfile.TemporaryDirectory() as name:
        for arms in sizes:
            spec = Path(name) / f"many{arms}.reo"
            spec.write_text(study(arms - 1))
            command = ("reodsl.cli.main", "plan", str(spec), "--store", str(Path(name) / "none"))
            walls, busy, _ = zip(*(run(command) for _ in range(rounds)), strict=True)
            took = {"wall": round(statistics.median(walls), 2), "cpu": round(statistics.median(busy), 2)}
            rows.append({"arms": arms, "tasks": len(graph_of(arms).tasks)} | took)
    return rows


def measure_reports(sizes: Iterable[tuple[int, int]], root: Path | None = None) -> list[dict[str, Any]]:
    """Return a row for each number of arms and of responses: seconds and peak megabytes of every phase."""
    rows = []
    for arms, count in sizes:
        with tempfile.TemporaryDirectory(dir=root) as name:
            folder = Path(name)
            words = (
                "benchmarks.scale",
                "--folder",
                name,
                "--rows",
                str(count),
                "--arms",
                str(arms),
                "--phase",
            )
            run((*words, "draw"))
            size = sum(path.stat().st_size for path in folder.rglob("*.parquet"))
            row: dict[str, Any] = {"arms": arms, "responses": count, "megabytes": round(size / 1e6)}
            took = {each: run((*words, each)) for each in PHASES}
            for each, (seconds, _, peak) in took.items():
                row |= {f"{each}_seconds": round(seconds, 1), f"{each}_peak_mb": round(peak)}
            walls, busy, _ = zip(*took.values(), strict=True)
            rows.append(row | {"seconds": round(sum(walls), 1), "processor_seconds": round(sum(busy), 1)})
            print(json.dumps(rows[-1]), file=sys.stderr, flush=True)
    return rows


PARTS: dict[str, tuple[str, dict[str, str]]] = {
    "plan": (
        "Planning: `reodsl plan`, cold, by the arms of the study",
        {"arms": "arms", "tasks": "tasks", "wall": "seconds", "cpu": "of processor"},
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


def save(results: dict[str, Any], folder: Path) -> None:
    """Write the results as JSON, and as a page with a table for each part."""
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
    (folder / "scale.json").write_text(json.dumps(results, indent=1) + "\n")
    (folder / "SCALE.md").write_text("\n\n".join(blocks) + "\n")


def main() -> None:
    """Measure all and write both files, or do one phase."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--phase", choices=("draw", *PHASES), help="do only this, in the folder")
    parser.add_argument("--folder", type=Path)
    parser.add_argument("--rows", type=int)
    parser.add_argument("--arms", type=int, default=ARMS)
    args = parser.parse_args()
    if args.phase == "draw":
        draw(args.folder, args.rows, args.arms)
    elif args.phase:
        PHASES[args.phase](args.folder, args.arms)
    else:
        cores, load = len(os.sched_getaffinity(0)), round(os.getloadavg()[2], 1)
        machine = {
            "processor": processor(),
            "cores": cores,
            "load": load,
            "python": platform.python_version(),
        }
        save({"plan": measure_plans(PLANNED), "report": measure_reports(SIZES), "machine": machine}, HERE)


if __name__ == "__main__":
    main()
