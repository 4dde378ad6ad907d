"""`make gpu`: every measurement that needs a GPU, one after another; with the hardware named they go to benchmarks/GPU.md.

What is worth most comes first: training at three lengths of a pass, weights to another process on the same GPU, a model of
4B, the tests on the device, the distance of engine and trainer, forced answers, then servers, a rehearsal on SGLang, three
steps on Ray with real models (colocated on one GPU, apart on two), and a language model's study to its end. What fails is
written down as failed, with its last words, and the rest still runs. Where something is missing, as SGLang, a smaller thing
is measured in its place, and the page says so. No part needs a network: `python -m benchmarks.carried` takes packages along.

A part that was done is kept in `gpu-state.json` beside the page, and the same command goes on after it: where a machine is
lent for ten minutes at a time, `--within 9` stops in time. Parts are done again on another machine, torch or commit. The
page says what was run, what was not, and what no part covers.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks.gpu_train import name_of, numbered
from reodsl.store.files import write_atomic
from runners.engine.sglang.settings import find_interpreter

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent
TESTS = ("tests/devices", "tests/train", "tests/engine")
SMALL = ("--shapes", "tiny", "--tokens", "64")
ENGINE = ("--engine", "embedded", "--responses", "3")
"""A sync in its smallest form, without a server."""
SHAPES = {"qwen3-1.7b": "device", "qwen3-4b": "host", "qwen3-0.6b": "device"}
"""Models that are trained, and where each one's optimizer is: that of 4B does not fit beside its activations."""
MODEL = ROOT / "models" / "smollm2-135m-instruct"
"""What `make smollm2` writes."""
QUICKSTART = ROOT / "specs" / "quickstart.reo"
STEPS = 3
"""Steps of each stage of the parts on Ray: in the third both weights and memory have changed hands twice."""
UNCOVERED = (
    "weights to engines on several nodes", "more than three steps of a cluster", "steps of Muon",
    "the second gather of FSDP2 on one GPU",
)  # fmt: skip
"""What is worth measuring on GPUs and no part does yet."""
CLUSTER = "std.clusters.h100_1x8"
"""Of which parts on Ray take a GPU or two; what it says of prices matters to none of them."""
CUT = 124
"""The exit status of a part that had no time left."""
STATE = "gpu-state.json"
GRACE = 20.0
"""Seconds that a part has to end once it is told to."""
PUBLISHED = {"qwen3-0.6b": 11.1, "qwen3-4b": 14.7}
"""MFU in percent that prime-rl publishes for training at 16K tokens."""


@dataclass(frozen=True, slots=True)
class Part:
    """One piece of work: its name in the page, the command, whether its output is lines of JSON, and the GPUs it takes.

    It `needs` packages, `sglang` or `smollm2`; without them `smaller` is run, or nothing.
    """

    name: str
    command: tuple[str, ...]
    lines: bool
    gpus: int = 1
    needs: tuple[str, ...] = ()
    smaller: tuple[str, ...] = ()

    @property
    def missing(self) -> str:
        """What it needs and is not here."""
        there = {"sglang": find_interpreter() is not None, "smollm2": MODEL.is_dir()}
        return ", ".join(
            name for name in self.needs if not there.get(name, importlib.util.find_spec(name) is not None)
        )


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
    served = ("--engine", "sglang", *few[:2])
    reodsl = (*python, "reodsl.cli.main")
    test = (*python, "pytest", "-q", "-p", "no:cacheprovider")
    engine, forcing = (*python, "benchmarks.gpu_engine", *on), (*python, "benchmarks.gpu_forcing", *on)
    rehearse = (*reodsl, "rehearse", str(spec), "--quiet")
    real = (*rehearse, "--real", "--steps", str(STEPS))
    study = ("--local", "--quiet", "--out", str(out))
    # Names of tests hold the device in their brackets.
    tests = [
        Part(
            folder.replace("/", " of ", 1),
            (*test, folder, "-k", "counted" if tiny else device.type),
            False,
            needs=("pytest", "hypothesis"),
        )
        for folder in (TESTS[:1] if tiny else TESTS)
    ]
    long = small or ("--shapes", "qwen3-0.6b", "--tokens", "16384", "--responses", "4")
    shapes = {"tiny": "device"} if tiny else SHAPES
    # Only GPUs have them.
    small_caches = Part(
        "sync, mismatch with small caches", (*engine, "--caches", "fp8"), True, needs=("sglang",)
    )
    training = [
        Part(
            f"training {shape}",
            (*python, "benchmarks.gpu_train", *on, *(small or ("--shapes", shape, "--on", place)), *steps),
            True,
        )
        for shape, place in shapes.items()
    ]
    listed = [
        # Before what takes most of a quarter of an hour.
        training[0],
        Part(
            "sync to another process",
            (*engine, "--engine", "receiver", "--shapes", "tiny" if tiny else "qwen3-4b", "--syncs", "20"),
            True,
        ),
        *training[1:2],
        *tests[:2],
        *training[2:],
        Part("sync in one process, mismatch at 16K", (*engine, "--engine", "embedded", *long), True),
        Part("forcing", (*forcing, *small, *few), True),
        *tests[2:],
        Part(
            "sync, memory given back, mismatch",
            (*engine, *small, *(ENGINE if tiny else ())),
            True,
            needs=() if tiny else ("sglang",),
        ),
        *([] if tiny else [small_caches]),
        Part("forcing on sglang", (*forcing, *small, *served), True, needs=("sglang",)),
        Part(
            "rehearsal",
            (*rehearse, "--engine", "sglang"),
            False,
            needs=("sglang",),
            smaller=(*rehearse, "--engine", "embedded"),
        ),
        *(
            Part(
                name,
                (*real, *on_ray(gpus, placement)),
                False,
                gpus,
                ("ray", "sglang", "smollm2"),
            )
            for name, gpus, placement in (
                ("three colocated steps on ray", 1, "colocated"),
                ("three steps on two GPUs", 2, "apart"),
            )
        ),
        Part(
            "study",
            (*reodsl, "run", str(spec), *study),
            False,
            needs=("smollm2",),
            smaller=(*reodsl, "run", str(QUICKSTART), *study),
        ),
    ]
    return {part.name: part for part in listed}


def on_ray(gpus: int, placement: str) -> tuple[str, ...]:
    """What a spec without a cluster is given to run servers and trainers on that many GPUs of this machine, by Ray."""
    share = ", rollout_share = 50%" if placement == "apart" else ""
    cluster = f"{CLUSTER} {{ gpus_per_node = {gpus}, placement = {placement}{share} }}"
    settings = {"engine": "sglang", "cluster": cluster}
    return tuple(word for name, value in settings.items() for word in ("--amend", f"{name}={value}"))


def do(part: Part, seconds: float | None = None) -> Found:
    """One part in a process group of its own, whose errors are seen as they come; ended after so many seconds."""
    command = part.smaller if part.missing else part.command
    print(f"{part.name}: {' '.join(command[1:])}", file=sys.stderr, flush=True)
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join((str(ROOT), os.environ.get("PYTHONPATH", "")))}
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, text=True, cwd=ROOT, env=environment, start_new_session=True
    )
    try:
        said, _ = process.communicate(timeout=seconds)
        code = process.returncode
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGTERM)
        try:
            said, _ = process.communicate(timeout=GRACE)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            said, _ = process.communicate()
        code = CUT
    spoken = [line for line in said.splitlines() if line.strip()]
    lines = tuple(json.loads(line) for line in spoken if line.startswith("{")) if part.lines else ()
    return Found(part, code, lines, spoken[-1] if spoken else "")


def read_state(place: Path, machine: str) -> dict[str, dict[str, Any]]:
    """What parts gave before, by name; nothing of another machine, torch or commit."""
    try:
        state = json.loads(place.read_text("utf-8"))
    except (OSError, ValueError):
        return {}
    return dict(state["parts"]) if state.get("of") == identity(machine) else {}


def identity(machine: str) -> dict[str, str]:
    """What figures depend on: the machine, torch, and the commit."""
    asked = subprocess.run(
        ["git", "rev-parse", "HEAD"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    return {"machine": machine, "torch": str(torch.__version__), "commit": asked.stdout.strip()}


def run_parts(
    every: dict[str, Part], wanted: Sequence[str], out: Path, machine: str, within: float | None, again: bool
) -> list[Found]:
    """Do what is wanted and not done, each kept as soon as it ends, until the time is over. All that is known then."""
    place, begun = out / STATE, time.monotonic()
    known = {} if again else read_state(place, machine)
    for name in wanted:
        left = None if within is None else within - (time.monotonic() - begun)
        enough = _unbegun(every[name]) == BEGINS
        if enough and known.get(name, {}).get("code", CUT) == CUT and (left is None or left > 0):
            outcome = do(every[name], left)
            known[name] = {"code": outcome.code, "lines": outcome.lines, "words": outcome.words}
        # What was done stays, whatever ends this process.
        write_atomic(place, json.dumps({"of": identity(machine), "parts": known}, indent=1).encode())
        write_atomic(out / "GPU.md", page(machine, _outcomes(every, known), every).encode())
    return _outcomes(every, known)


def _outcomes(every: dict[str, Part], known: dict[str, dict[str, Any]]) -> list[Found]:
    return [
        Found(part, known[name]["code"], tuple(known[name]["lines"]), known[name]["words"])
        for name, part in every.items()
        if name in known
    ]


def page(machine: str, outcomes: Sequence[Found], every: Mapping[str, Part] | None = None) -> str:
    """All that was found, as a page, which ends with what of `every` part was not run."""
    blocks = [f"# Measured on {machine}", f"Made by `make gpu` with torch {torch.__version__}."]
    for one in outcomes:
        if one.code == CUT and not one.lines:
            continue
        blocks.append(f"## {one.part.name.capitalize()}")
        if one.code == CUT:
            blocks.append("It was cut off, and these are the figures that it had.")
        elif one.code:
            blocks.append(f"Failed with exit status {one.code}: {one.words or 'it said nothing'}")
        if one.part.missing:
            blocks.append(f"A smaller thing in its place, because {one.part.missing} is not here.")
        if one.lines and one.part.name.startswith("training"):
            blocks.append(_training(one.lines))
        elif one.lines and one.part.name.startswith("sync"):
            blocks.append(_syncs(one.lines))
        elif one.lines:
            blocks.append(_forcing(one.lines))
        elif not one.code:
            command = one.part.smaller if one.part.missing else one.part.command
            blocks.append(f"`{' '.join(('python', *command[1:]))}`: {one.words or 'done'}")
    trained = [line for one in outcomes if one.part.name.startswith("training") for line in one.lines]
    if reached := fit_hardware(trained):
        blocks.append("## For prices")
        blocks.append("`hardware` in stdlib/clusters.reo has these for such a device; a test compares them.")
        blocks.append("\n".join(f"- `{name} = {share:.0%}`" for name, share in reached.items()))
    codes = {one.part.name: one.code for one in outcomes}
    rest = [
        f"- {name}: {'cut off' if name in codes else _unbegun(part)}"
        for name, part in (every or {}).items()
        if codes.get(name, CUT) == CUT
    ]
    lacking = [f"- {words}: no part measures it yet" for words in UNCOVERED]
    blocks.append("## Not run")
    blocks.append("\n".join((*rest, *lacking)))
    return "\n\n".join(blocks) + "\n"


def fit_hardware(lines: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    """Return the shares of the peak that products and attention reached: least squares over trainings at several lengths.

    Each line has the `seconds_a_step` and, in `at_peak`, those that either would take at the peak of the device. Empty where
    there are fewer than three such lines, or no shares fit.
    """
    known = [line for line in lines if "at_peak" in line and line["optimizer"] == "device"]
    terms = [[line["at_peak"][name] for name in ("products", "attention")] for line in known]
    if len(known) < 3:
        return {}
    slower, *_ = np.linalg.lstsq(
        np.array(terms), np.array([line["seconds_a_step"] for line in known]), rcond=None
    )
    shares = dict(zip(("mfu_train", "mfu_attention"), 1 / np.maximum(slower, 1e-9), strict=True))
    return {name: round(share, 2) for name, share in shares.items()} if max(shares.values()) <= 1 else {}


def read_hardware(page: str) -> dict[str, float]:
    """Return what a page says that prices take."""
    return {
        name: int(share) / 100 for name, share in re.findall(r"^- `(mfu_\w+) = (\d+)%`", page, re.MULTILINE)
    }


BEGINS = "not begun"


def _unbegun(part: Part) -> str:
    """Why a part is not run here; `BEGINS` where it can be."""
    there = max(1, torch.cuda.device_count())
    if part.gpus > there:
        return f"takes {part.gpus} GPUs, and there is {there}"
    return f"takes {part.missing}, which is not here" if part.missing and not part.smaller else BEGINS


def _syncs(lines: Sequence[dict[str, Any]]) -> str:
    rows = [
        "| shape, engine | way | first sync, s | sync, s | GiB given back | GiB lost | mismatch, median | largest |",
        "|" + " --- |" * 8,
    ]
    for line in lines:
        rows.append(
            f"| {line['shape']}, {line['engine']} | {line['way']} | {line['seconds_first_sync']:.2f} | "
            f"{line['seconds_sync']:.2f} | {_told(line, 'gib_given_back', '.1f')} | {_told(line, 'gib_lost', '.2f')} | "
            f"{_told(line, 'mismatch_median', '.4g')} | {_told(line, 'mismatch_max', '.4g')} |"
        )
    return "\n".join(rows)


def _training(lines: Sequence[dict[str, Any]]) -> str:
    rows = [
        "| shape, attention | tokens | tokens/s | MFU % | prime-rl's % | seconds a step | peak GiB |",
        "|" + " --- |" * 7,
    ]
    for line in lines:
        if "error" in line:
            rows.append(f"| {line['shape']} | {line['tokens']} | {line['error']} | | | | |")
            continue
        published = PUBLISHED.get(line["shape"], "") if line["tokens"] == 16384 else ""
        mfu = f"{100 * line['mfu']:.1f}" if "mfu" in line else "unknown peak"
        rows.append(
            f"| {line['shape']}, {line['attention']} | {line['tokens']} | {line['train_tokens_per_second']:,.0f} | {mfu} | "
            f"{published} | {line['seconds_a_step']:.2f} | {line.get('peak_gib', 0):.1f} |"
        )
    return "\n".join(rows)


def _forcing(lines: Sequence[dict[str, Any]]) -> str:
    rows = [
        "| shape, engine | responses | generated tokens/s | budgets | kept caches | read once | every prefix anew | "
        "read again | equal answers |",
        "|" + " --- |" * 9,
    ]
    for line in lines:
        for budgets, share in line["shares"].items():
            rows.append(
                f"| {line['shape']}, {line['engine']}, {line['dtype']} | {line['responses']} of {line['tokens']} tokens | "
                f"{line['tokens_per_second']:,.0f} | {budgets} | {share['reused']:.3f} | {share['read_once']:.3f} | "
                f"{_told(share, 'read_each', '.3f')} | {_told(share, 'read_again', '.1%')} | "
                f"{share['answers_equal']:.1%} |"
            )
    return "\n".join(rows) + "\n\nForced answers are shares of the seconds that generation takes."


def _told(share: Mapping[str, float], name: str, form: str) -> str:
    return format(share[name], form) if name in share else "–"


def main(arguments: list[str] | None = None) -> int:
    """Exits with 1 where a part failed, or was not done."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--device", type=numbered, default="cuda")
    parser.add_argument("--only", nargs="+", metavar="PART", help="these alone")
    parser.add_argument("--spec", type=Path, default=ROOT / "specs" / "smollm2_reo_exp.reo")
    parser.add_argument(
        "--within", type=float, metavar="MINUTES", help="stop after so long, to go on another time"
    )
    parser.add_argument("--again", action="store_true", help="do all parts anew")
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
        wanted = args.only or list(every)
        if unknown := set(wanted) - set(every):
            parser.error(f"no part is called {', '.join(sorted(unknown))}; there is {', '.join(every)}")
        within = None if args.within is None else 60 * args.within
        outcomes = run_parts(every, wanted, args.out, name_of(args.device), within, args.again)
        report = Path(folder) / "study" / "report.html"
        if report.is_file():
            shutil.copy(report, args.out / "gpu-study.html")
    print((args.out / "GPU.md").read_text("utf-8"))
    # What takes more than there is is listed, and fails nothing.
    possible = [name for name in wanted if _unbegun(every[name]) == BEGINS]
    known = {one.part.name for one in outcomes}
    return int(any(one.code for one in outcomes if one.part.name in wanted) or not known.issuperset(possible))


if __name__ == "__main__":
    sys.exit(main())
