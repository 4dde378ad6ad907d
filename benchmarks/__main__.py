"""`make bench`: every measurement that the documentation quotes, written to benchmarks/RESULTS.md and results.json."""

from __future__ import annotations

import argparse
import json
import platform
import subprocess
import sys
from pathlib import Path
from typing import Any

from reodsl.price.machine import processor

HERE = Path(__file__).resolve().parent


def run(module: str, *args: str) -> dict[str, Any]:
    """One benchmark script in a process of its own; its JSON."""
    print(f"{module} …", file=sys.stderr, flush=True)
    done = subprocess.run(
        [sys.executable, "-m", module, *args], stdout=subprocess.PIPE, text=True, check=True
    )
    result: dict[str, Any] = json.loads(done.stdout)
    return result


def text(results: dict[str, Any]) -> str:
    """The results as a page: the claims, each with its measured figure."""
    step, engine, check = results["step"], results["engine"], results["check"]
    rows = [
        f"| whole vanilla RL step, {name} | {row['ratio']}× TRL's `GRPOTrainer` | "
        f"{row['tokens_per_cpu_second']:,} against {row['peer_tokens_per_cpu_second']:,} tokens per CPU-second; "
        f"mean length {row['mean_length']} and {row['peer_mean_length']}; rounds {row['ratios']} |"
        for name, row in step.items()
    ]
    rows += [
        f"| generation, varied, max 256 | {engine['speed_over_peer']:.2f}× `transformers.generate` | "
        f"{engine['tokens_per_cpu_second']:,.0f} against {engine['peer_tokens_per_cpu_second']:,.0f} tokens a CPU-second |",
        f"| forced answers at 5 budgets | {engine['forced_5_over_generation']:.3f} of generation | one tree pass |",
        f"| forced answers at 32 budgets | {engine['forced_32_over_generation']:.3f} of generation | one tree pass |",
    ]
    rows.append(
        f"| `reodsl check {check['spec']}` ({check['lines']} lines), cold | {check['wall_seconds']} s | "
        f"{check['cpu_seconds']} s of processor time |"
    )
    editor = results["editor"]
    rows.append(
        f"| the slowest answer to an editor there, after a key | {editor['slowest']} ms of processor time | "
        f"{', '.join(f'{name} {each}' for name, each in editor['milliseconds'].items())} |"
    )
    reading = results["reading"]
    rows.append(
        f"| reading a million tokens of servers' answers | {reading['with_logprobs']} s of processor time | "
        f"{reading['without']} s where nothing reads log-probabilities |"
    )
    lag = results["lag"]
    rows.append(
        f"| a stage with `lag = 1 step` on {lag['cores']} cores | {lag['ratio']} of the time without | "
        f"rounds {lag['ratios']}; seconds {lag['seconds']} |"
    )
    table = "\n".join(rows)
    return f"""# Measured

Made by `make bench` on {results["machine"]["processor"]}, one thread a process, float32, Python
{results["machine"]["python"]}. Peers ran in turn with ours; figures are medians. Trust ratios before absolute times.

| what | figure | |
| --- | --- | --- |
{table}
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--peer", required=True, help="the python of an environment that has trl")
    parser.add_argument("--rounds", type=int, default=3)
    args = parser.parse_args()
    results = {
        "machine": {"processor": processor(), "python": platform.python_version()},
        "check": run("benchmarks.check"),
        "editor": run("benchmarks.editor"),
        "reading": run("benchmarks.reading"),
        "engine": run("benchmarks.engine", "--rounds", str(args.rounds)),
        "lag": run("benchmarks.lag", "--rounds", str(args.rounds)),
        "step": run("benchmarks.step", "--peer", args.peer, "--rounds", str(args.rounds)),
    }
    (HERE / "results.json").write_text(json.dumps(results, indent=1) + "\n")
    (HERE / "RESULTS.md").write_text(text(results))
    print(text(results))


if __name__ == "__main__":
    main()
