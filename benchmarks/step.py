"""Time whole vanilla RL steps against TRL's `GRPOTrainer`, in turn, as ratios of tokens per CPU-second.

Each round runs both sides as processes of their own, one thread each, on the same model, batch (64 × 8 responses),
precision (float32) and lengths. Needs `trl` in the environment that --peer names; `make bench` makes one.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from benchmarks.products import measure_peak
from benchmarks.tiny import write


def once(python: str, module: str, model: Path, steps: int, fixed: bool) -> dict[str, float]:
    """Return what one process of one side prints."""
    command = [python, "-m", module, str(model), "--steps", str(steps)]
    if fixed:
        command += ["--fixed", "--max-tokens", "128"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    printed: dict[str, float] = json.loads(done.stdout.strip().splitlines()[-1])
    return printed


def measure(rounds: int, peer: str, steps: int = 1) -> dict[str, Any]:
    """Return medians over rounds, by kind of lengths."""
    results: dict[str, Any] = {}
    peak = 1e9 * measure_peak(rounds)
    with tempfile.TemporaryDirectory() as place:
        model = Path(place)
        write(model)
        for name, fixed in (("varied, max 256", False), ("fixed 128", True)):
            ratios, own_rates, peer_rates, lengths = [], [], [], []
            shares: dict[str, list[float]] = {"generation": [], "scoring": [], "update": []}
            for _ in range(rounds):
                ours = once(sys.executable, "benchmarks.own_trainer", model, steps, fixed)
                other = once(peer, "benchmarks.peer_trl", model, steps, fixed)
                own_rates.append(ours["tokens"] / ours["cpu"])
                peer_rates.append(other["tokens"] / other["cpu"])
                ratios.append(own_rates[-1] / peer_rates[-1])
                lengths.append((ours["mean_length"], other["mean_length"]))
                for phase, of_rounds in shares.items():
                    of_rounds.append(ours[phase] / peak)
            results[name] = {
                "ratio": round(statistics.median(ratios), 2),
                "ratios": [round(ratio, 2) for ratio in ratios],
                "tokens_per_cpu_second": round(statistics.median(own_rates)),
                "peer_tokens_per_cpu_second": round(statistics.median(peer_rates)),
                "mean_length": round(lengths[0][0], 1),
                "peer_mean_length": round(lengths[0][1], 1),
                **{f"{phase}_share": round(statistics.median(each), 3) for phase, each in shares.items()},
            }
    return results
