"""`make bench`: measure all that the documentation quotes, for benchmarks/RESULTS.md and results.json.

python -m benchmarks --peer PYTHON   # all; the Python of an environment that has trl
python -m benchmarks lag             # one part, printed
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

import torch

from benchmarks.tables import markdown
from reodsl.diagnostics import in_percent
from reodsl.price.machine import processor

HERE = Path(__file__).resolve().parent
PARTS = {
    "check": "answers:check",
    "editor": "answers:editor",
    "reading": "answers:reading",
    "engine": "engine:measure",
    "gathering": "gathering:measure",
    "lag": "lag:measure",
    "products": "products:measure",
    "step": "step:measure",
}


def run(*words: str) -> Any:
    """Return the JSON that a module prints, in a process of its own with one thread."""
    print(*words, "…", file=sys.stderr, flush=True)
    environment = os.environ | {"OMP_NUM_THREADS": "1", "OMP_WAIT_POLICY": "PASSIVE"}
    command = [sys.executable, "-P", "-m", *words]
    done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, check=True)
    return json.loads(done.stdout)


def text(by_processor: dict[str, Any]) -> str:
    """Return the page of results: a table for each kind of processor."""
    return "# Measured\n\n" + "\n".join(
        section(processor, results) for processor, results in by_processor.items()
    )


def section(processor: str, results: dict[str, Any]) -> str:
    """Return the results of a kind of processor: a row for each claim."""
    engine, check, editor, reading, lag, gathering = (
        results[part] for part in ("engine", "check", "editor", "reading", "lag", "gathering")
    )
    rows = [
        (
            f"whole vanilla RL step, {name}",
            f"{row['ratio']}× TRL's `GRPOTrainer`",
            f"{row['tokens_per_cpu_second']:,} against {row['peer_tokens_per_cpu_second']:,} tokens per CPU-second; "
            f"mean length {row['mean_length']} and {row['peer_mean_length']}; rounds {row['ratios']}",
        )
        for name, row in results["step"].items()
    ]
    rows += [
        (
            "generation, varied, max 256",
            f"{engine['speed_over_peer']:.2f}× `transformers.generate`",
            f"{engine['tokens_per_cpu_second']:,.0f} against "
            f"{engine['peer_tokens_per_cpu_second']:,.0f} tokens a CPU-second",
        ),
        *(
            (
                f"forced answers at {budgets} budgets",
                f"{engine[f'forced_{budgets}_over_generation']:.3f} of generation",
                "one tree pass",
            )
            for budgets in (5, 32)
        ),
        (
            f"`reodsl check {check['spec']}` ({check['lines']} lines), cold",
            f"{check['wall_seconds']} s",
            f"{check['cpu_seconds']} s of processor time",
        ),
        (
            "the slowest answer to an editor there, after a key",
            f"{editor['slowest']} ms of processor time",
            ", ".join(f"{name} {each}" for name, each in editor["milliseconds"].items()),
        ),
        (
            "reading a million tokens of servers' answers",
            f"{reading['with_logprobs']} s of processor time",
            f"{reading['without']} s where nothing reads log-probabilities",
        ),
        (
            f"from {gathering['tokens'] / 1e6:g}M sampled tokens to an update on {gathering['world']} GPUs",
            f"{gathering['total']} s of processor time",
            f"the first process's, on one thread: {gathering['seconds']}",
        ),
        (
            f"a stage with `lag = 1 step` on {lag['cores']} cores",
            f"{lag['ratio']} of the time without",
            f"rounds {lag['ratios']}; seconds {lag['seconds']}",
        ),
    ]
    # Results from before the products of both libraries were measured have no such part.
    if "products" in results:
        rows += product_rows(results["products"], results["step"])
    return f"""## {processor}

Made by `make bench`, one thread a process, float32, Python {results["machine"]["python"]}. Peers ran in turn with ours;
figures are medians. Trust ratios before absolute times.

{markdown(("what", "figure", ""), rows)}
"""


def product_rows(products: dict[str, Any], steps: dict[str, Any]) -> list[tuple[str, str, str]]:
    """Return the rows of products: the share of a core that each phase of a step reaches, and rates of both libraries."""
    rows = [
        (
            f"share of the core's products in {phase}, {name}",
            f"{in_percent(row[f'{phase}_share'])}%",
            f"of {products['peak']} GFLOP/s, the best product of 1024 x 1024 x 1024; {products['chosen']}",
        )
        for name, row in steps.items()
        for phase in ("generation", "scoring", "update")
    ]
    return rows + [
        (
            f"products of float32, {name}",
            f"{row['training'][0]} and {row['training'][1]} GFLOP/s in training",
            f"by torch's default library and by oneDNN; {row['generation'][0]} and {row['generation'][1]} in generation",
        )
        for name, row in products["shapes"].items()
    ]


def main() -> None:
    """Measure one part, or all in processes of their own."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("part", nargs="?", choices=PARTS)
    parser.add_argument("--peer", help="the Python of an environment that has trl")
    parser.add_argument("--rounds", type=int, default=3)
    args = parser.parse_args()
    if args.peer is None and args.part in (None, "step"):
        parser.error("name the Python of the peer's environment: --peer PYTHON")
    if args.part is not None:
        module, _, name = PARTS[args.part].partition(":")
        measure = getattr(import_module(f"benchmarks.{module}"), name)
        print(json.dumps(measure(args.rounds, *([args.peer] if args.part == "step" else [])), indent=1))
        return
    more = ["--rounds", str(args.rounds), "--peer", str(args.peer)]
    results = {"machine": {"python": platform.python_version()}}
    results |= {part: run("benchmarks", part, *more) for part in PARTS}
    path = HERE / "results.json"
    # The same processor has other instructions on another host.
    measured = f"{processor()} with {torch.backends.cpu.get_cpu_capability()}"
    by_processor = json.loads(path.read_text()) | {measured: results}
    path.write_text(json.dumps(by_processor, indent=1) + "\n")
    (HERE / "RESULTS.md").write_text(text(by_processor))
    print(section(measured, results))


if __name__ == "__main__":
    main()
