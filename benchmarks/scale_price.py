"""What a plan predicts against what the run then takes, on the miniature: before any run, and after one of another seed.

A short study of the quickstart's kind is planned, run, planned again with another seed and other budgets, and run again, in
one process each. Seconds are those that the processor spent on a task: a core of one's own takes as long by the clock.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

LEAST = 2.0
"""Seconds of processor that a task takes to have a row of its own."""
SPEC = '''"""The quickstart, shortened: three ways to train one small model."""
from std.miniature import chain_model, chain_first_traces, chain_train, chain_suite, chain_forcing
from std.rewards   import outcome, reo, length_group_norm
from std.recipes   import ppo, sft

param seeds: [int] = [1]
param n: int = 5 in 1..16

experiment start = sft {
  base       = chain_model
  data       = chain_first_traces
  batch      { prompts = 32 }
  max_tokens = 192 tokens
  optim      { algorithm = adamw, lr = 3e-3, warmup = 2 steps }
  steps      = 60 steps
  eval       = chain_suite
}

recipe small = ppo {
  base        = checkpoint(start)
  data        = chain_train
  forcing     = chain_forcing
  batch       { prompts = 16, rollouts = 8 }
  rollout     { max_tokens = 128 tokens }
  max_prompt  = 32 tokens
  minibatches = 2
  epochs      = 1
  steps       = 6 steps
  optim       { algorithm = adamw, lr = 5e-4, warmup = 1 steps }
  eval        = chain_suite
}

experiment vanilla    = small { reward = outcome }
experiment reo_exp    = small { reward = reo(at: exp(from: 4 tokens, to: 128 tokens, n: n)) }
experiment group_norm = small { reward = length_group_norm(alpha: 0.2) }

study short {
  replicate = seeds
  arm base       = checkpoint(start)
  arm vanilla    = vanilla
  arm reo_exp    = reo_exp
  arm group_norm = group_norm
  frontier edge = envelope(of: [base, vanilla, group_norm], to: 128 tokens)
  score = reg(against: edge, to: 128 tokens, relative_to: vanilla)
  report { table main { rows = arms, columns = [accuracy, length, reg] } }
}
'''


def reodsl(folder: Path, *arguments: str) -> dict[str, Any]:
    """The JSON that a command prints."""
    command = [sys.executable, "-m", "reodsl.cli.main", *arguments, "--json"]
    done = subprocess.run(
        command, cwd=folder, env=os.environ | {"OMP_NUM_THREADS": "1"}, capture_output=True, text=True
    )
    assert done.returncode in (0, 2), done.stderr
    printed: dict[str, Any] = json.loads(done.stdout)
    return printed


def compare(folder: Path, state: str, *changes: str) -> list[dict[str, Any]]:
    """Plan, run, and set seconds side by side: a row for each task of two seconds or more, and one for all."""
    planned = reodsl(folder, "plan", "short.reo", *changes)
    done = reodsl(folder, "run", "short.reo", "--local", *changes)
    todo = {task["id"]: task for task in planned["tasks"] if task["verdict"] != "reuse"}
    rows = []
    for task in done["tasks"]:
        if task["id"] in todo:
            place = folder / ".reodsl" / "objects" / task["key"][:2] / task["key"] / "manifest.json"
            provenance = json.loads(place.read_text())["made"]
            predicted = todo[task["id"]]["price"]["total_seconds"]
            rows.append((task["id"], predicted, provenance["processor_seconds"], provenance["seconds"]))
    rows.append(("all", *(sum(row[part] for row in rows) for part in (1, 2, 3))))
    return [
        {
            "plan": state,
            "task": name,
            "predicted_seconds": round(predicted, 1),
            "measured_seconds": round(processor, 1),
            "predicted_over_measured": round(predicted / processor, 2),
            "clock_seconds": round(clock, 1),
        }
        for name, predicted, processor, clock in rows
        if processor >= LEAST
    ]


def measure() -> list[dict[str, Any]]:
    """Rows of both plans."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "short.reo").write_text(SPEC)
        return [
            *compare(folder, "before any run"),
            *compare(folder, "after one run", "--set", "seeds=[2]", "--set", "n=4"),
        ]


def main() -> None:
    argparse.ArgumentParser(description=__doc__).parse_args()
    print(json.dumps(measure(), indent=1))


if __name__ == "__main__":
    main()
