"""`make gpu`: every measurement that needs a GPU, one after another; with the hardware named they go to benchmarks/GPU.md.

The tests of engine and trainer on CUDA come first, then training, forced answers, and a language model's study to its end.
What fails is written down as failed, with its last words, and the rest still runs.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from benchmarks.gpu_train import name_of, numbered

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent
TESTS = ("tests/devices", "tests/engine", "tests/train")
SMALL = ("--shapes", "tiny", "--tokens", "64")
PUBLISHED = {"qwen3-0.6b": 11.1, "qwen3-4b": 14.7}
"""MFU in percent that prime-rl publishes for training at 16K tokens."""


@dataclass(frozen=True, slots=True)
class Part:
    """One piece of work: its name in the page, the command, and whether its output is lines of JSON."""

    name: str
    command: tuple[str, ...]
    lines: bool


@dataclass(frozen=True, slots=True)
class Found:
    """What a part gave: lines of figures, or its last words; `code` is its exit status."""

    part: Part
    code: int
    lines: tuple[dict[str, Any], ...]
    words: str


def parts(device: torch.device, tiny: bool, spec: Path, out: Path) -> dict[str, Part]:
    """All pieces of work on a device; `tiny` ones take seconds on a CPU and measure nothing."""
    python, small = (sys.executable, "-m"), SMALL if tiny else ()
    on = ("--device", str(device))
    steps = ("--steps", "1", "--rows", "2") if tiny else ()
    few = ("--responses", "3", "--dtype", "float32") if tiny else ()
    # Names of tests hold the device in their brackets.
    tests = (*TESTS[:1], "-k", "counted") if tiny else (*TESTS, "-k", device.type)
    listed = [
        Part("tests", (*python, "pytest", "-q", "-p", "no:cacheprovider", *tests), False),
        Part("training", (*python, "benchmarks.gpu_train", *on, *small, *steps), True),
        Part("forcing", (*python, "benchmarks.gpu_forcing", *on, *small, *few), True),
        Part(
            "study",
            (*python, "reodsl.cli.main", "run", str(spec), "--local", "--quiet", "--out", str(out)),
            False,
        ),
    ]
    return {part.name: part for part in listed}


def do(part: Part) -> Found:
    """One part in a process of its own, whose errors are seen as they come."""
    print(f"{part.name}: {' '.join(part.command[1:])}", file=sys.stderr, flush=True)
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join((str(ROOT), os.environ.get("PYTHONPATH", "")))}
    done = subprocess.run(part.command, stdout=subprocess.PIPE, text=True, cwd=ROOT, env=environment)
    said = [line for line in done.stdout.splitlines() if line.strip()]
    lines = tuple(json.loads(line) for line in said if line.startswith("{")) if part.lines else ()
    return Found(part, done.returncode, lines, said[-1] if said else "")


def page(machine: str, outcomes: Sequence[Found]) -> str:
    """All that was found, as a page."""
    blocks = [f"# Measured on {machine}", f"Made by `make gpu` with torch {torch.__version__}."]
    for one in outcomes:
        blocks.append(f"## {one.part.name.capitalize()}")
        if one.code:
            blocks.append(f"Failed with exit status {one.code}: {one.words or 'it said nothing'}")
        if one.lines and one.part.name == "training":
            blocks.append(_training(one.lines))
        elif one.lines:
            blocks.append(_forcing(one.lines))
        elif not one.code:
            blocks.append(f"`{' '.join(('python', *one.part.command[1:]))}`: {one.words or 'done'}")
    return "\n\n".join(blocks) + "\n"


def _training(lines: Sequence[dict[str, Any]]) -> str:
    rows = [
        "| shape | tokens | tokens/s | MFU % | prime-rl's % | seconds a step | peak GiB |",
        "|" + " --- |" * 7,
    ]
    for line in lines:
        if "error" in line:
            rows.append(f"| {line['shape']} | {line['tokens']} | {line['error']} | | | | |")
            continue
        mfu = f"{100 * line['mfu']:.1f}" if "mfu" in line else "unknown peak"
        rows.append(
            f"| {line['shape']} | {line['tokens']} | {line['train_tokens_per_second']:,.0f} | {mfu} | "
            f"{PUBLISHED.get(line['shape'], '')} | {line['seconds_a_step']:.2f} | {line.get('peak_gib', 0):.1f} |"
        )
    return "\n".join(rows)


def _forcing(lines: Sequence[dict[str, Any]]) -> str:
    rows = [
        "| shape | responses | generated tokens/s | budgets | kept caches | read once | every prefix anew | equal answers |",
        "|" + " --- |" * 8,
    ]
    for line in lines:
        for budgets, share in line["shares"].items():
            rows.append(
                f"| {line['shape']}, {line['dtype']} | {line['responses']} of {line['tokens']} tokens | "
                f"{line['tokens_per_second']:,.0f} | {budgets} | {share['reused']:.3f} | {share['read_once']:.3f} | "
                f"{share['read_each']:.3f} | {100 * share['answers_equal']:.1f}% |"
            )
    return "\n".join(rows) + "\n\nForced answers are shares of the seconds that generation takes."


def main(arguments: list[str] | None = None) -> int:
    """Exits with 1 where a part failed."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--device", type=numbered, default="cuda")
    parser.add_argument("--only", nargs="+", choices=["tests", "training", "forcing", "study"])
    parser.add_argument("--spec", type=Path, default=ROOT / "specs" / "smollm2_reo_exp.reo")
    parser.add_argument("--tiny", action="store_true", help="the smallest form of each, to see that it runs")
    parser.add_argument(
        "--out", type=Path, default=HERE, help="the folder of GPU.md and of the study's report"
    )
    args = parser.parse_args(arguments)
    if args.device.type == "cuda" and not torch.cuda.is_available():
        print("torch sees no GPU here: `reodsl doctor` says what is missing", file=sys.stderr)
        return 1
    args.out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        every = parts(args.device, args.tiny, args.spec.resolve(), Path(folder) / "study")
        outcomes = [do(every[name]) for name in args.only or every]
        report = Path(folder) / "study" / "report.html"
        if report.is_file():
            shutil.copy(report, args.out / "gpu-study.html")
    text = page(name_of(args.device), outcomes)
    (args.out / "GPU.md").write_text(text, encoding="utf-8")
    print(text)
    return int(any(one.code for one in outcomes))


if __name__ == "__main__":
    sys.exit(main())
