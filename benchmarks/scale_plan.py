"""Time `reodsl plan` on studies of many arms, cold: a whole process from the spec's text to the plan and its price.

The store has three states: nothing was done, everything was done, and a setting that all arms share has changed since.
"""

from __future__ import annotations

import argparse
import json
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from itertools import product
from pathlib import Path
from typing import Any

import polars as pl

from reodsl.graph.job import Job
from reodsl.graph.lower import lower
from reodsl.graph.task import VERSIONS
from reodsl.ir import digest
from reodsl.language import compile_file
from reodsl.plan.registry import Execution, Machine
from reodsl.plan.verdict import Keys
from reodsl.store import runs
from reodsl.store.store import Store

ARMS = (25, 50, 100, 200, 400, 2_000)
STEPS = 24
CONFIG = {
    "hidden_size": 96,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 24,
}
CONFIG |= {"intermediate_size": 256, "vocab_size": 64, "tie_word_embeddings": True}
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


def write_result(job: Job) -> None:
    """Run a task: write the small files that plans and prices read of finished work."""

    def write(name: str, value: object) -> None:
        path = job.out / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(json.dumps(value))

    if job.task.kind in ("model", "train"):
        write("checkpoint/config.json", CONFIG)
    if job.task.kind == "train":
        steps = {"step": list(range(1, STEPS + 1))}
        metrics = {"length": [60.0] * STEPS, "tokens": [256 * 60] * STEPS}
        pl.DataFrame(steps | metrics).write_parquet(job.out / "metrics.parquet")
        timed = ("seconds_generate", "seconds_force", "seconds_grade", "seconds_update")
        pl.DataFrame(steps | dict.fromkeys(timed, [0.5] * STEPS)).write_parquet(job.out / "timings.parquet")
    elif job.task.kind == "evaluate":
        row = {"accuracy": 0.9, "length": 50.0, "questions": 128, "samples": 2, "unfinished": 0.0}
        names = [benchmark["name"] for benchmark in job.task.payload["suite"]["benchmarks"]]
        write("summary.json", dict.fromkeys((*names, "mean"), row))
    elif job.task.kind != "model":
        write("result.json", {"task": job.task.id})


def fill(spec: Path, place: Path) -> int:
    """Put every result of a spec into a store, and return how many there are."""
    from runners.execute import execute

    compiled = compile_file(str(spec)).spec
    assert compiled is not None
    store = Store(place).open()
    writer = runs.Writer(store, record := runs.begin(store, compiled, digest(compiled)))
    graph = lower(compiled)
    runners = dict.fromkeys(VERSIONS, "benchmarks.scale_plan:write_result")
    here = Machine(local=True)
    execute(Execution(graph, store, Keys(store, spec.parent), runners, here, lambda event: None, writer.add))
    runs.end(store, record, "finished")
    return len(graph.tasks)


def plan(spec: Path, store: Path, *more: str) -> tuple[float, float]:
    """Return wall and processor seconds of one `reodsl plan`."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    began = time.perf_counter()
    command = [sys.executable, "-m", "reodsl.cli.main", "plan", str(spec), "--store", str(store), *more]
    done = subprocess.run(command, capture_output=True, text=True)
    wall = time.perf_counter() - began
    assert done.returncode in (0, 2), done.stderr
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return wall, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def measure(sizes: tuple[int, ...], rounds: int) -> list[dict[str, Any]]:
    """Return a row per size: tasks, and the medians of each state over rounds; sizes and states take turns."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        tasks = {}
        for arms in sizes:
            spec = folder / f"many{arms}.reo"
            spec.write_text(study(arms))
            tasks[arms] = fill(spec, folder / f"store{arms}")
        # By state: what the store's folder is called, {} for the number of arms, and further arguments.
        states: dict[str, tuple[str, tuple[str, ...]]] = {
            "nothing_done": ("none", ()),
            "all_done": ("store{}", ()),
            "all_changed": ("store{}", ("--amend", "small.steps=25")),
        }
        timings: dict[tuple[int, str], list[tuple[float, float]]] = {}
        for turn, arms, (state, (store, more)) in product(range(rounds + 1), sizes, states.items()):
            seconds = plan(folder / f"many{arms}.reo", folder / store.format(arms), *more)
            # The first turn warms the disk's cache.
            if turn:
                timings.setdefault((arms, state), []).append(seconds)
        return [
            {"arms": arms, "tasks": tasks[arms]}
            | {
                f"{state}_{what}": round(statistics.median(each[place] for each in timings[arms, state]), 2)
                for state in states
                for place, what in enumerate(("wall", "cpu"))
            }
            for arms in sizes
        ]


def main() -> None:
    """Print the rows as JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--arms", type=int, nargs="+", default=ARMS)
    parser.add_argument("--rounds", type=int, default=3)
    args = parser.parse_args()
    print(json.dumps(measure(tuple(args.arms), args.rounds), indent=1))


if __name__ == "__main__":
    main()
