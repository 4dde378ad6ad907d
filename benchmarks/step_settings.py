"""The command line of one side's RL steps to the same settings for both sides; and a side's figures to its JSON line."""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from pathlib import Path


def settings(description: str | None) -> argparse.Namespace:
    """`model`, `steps`, `prompts`, `rollouts`, `max_tokens` and `fixed`, from the command line."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("model", type=Path)
    parser.add_argument("--steps", type=int, default=2)
    parser.add_argument("--prompts", type=int, default=64)
    parser.add_argument("--rollouts", type=int, default=8)
    parser.add_argument("--max-tokens", type=int, default=256)
    parser.add_argument("--fixed", action="store_true", help="never end early: every response has max-tokens")
    return parser.parse_args()


def line(tokens: float, wall: float, cpu: float, lengths: Sequence[int]) -> str:
    """Tokens and seconds of the measured steps, and the mean length of responses, as `benchmarks.step` reads them."""
    mean = sum(lengths) / len(lengths)
    return json.dumps({"tokens": tokens, "wall": wall, "cpu": cpu, "mean_length": mean})
