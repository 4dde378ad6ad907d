"""Time what a reader waits for: a check of the largest spec, an editor's answers there, and reading servers' answers."""

from __future__ import annotations

import gc
import json
import random
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import orjson

from benchmarks.tables import ROOT
from reodsl.lsp.analysis import Analysis, analyse, list_findings
from reodsl.lsp.complete import completions
from reodsl.lsp.hints import hints
from reodsl.lsp.meaning import meaning, references
from runners.engine.protocol import Request, TokenSampling
from runners.engine.sglang.messages import Draft

TOKENS, ANSWERS, VOCABULARY = 10_000, 40, 151_936


def largest() -> Path:
    """Return the largest spec of this project."""
    return max((ROOT / "specs").rglob("*.reo"), key=lambda path: path.stat().st_size)


def check(rounds: int) -> dict[str, Any]:
    """Return medians of wall and processor seconds of `reodsl check` as a whole process, cold."""
    spec = largest()
    walls, cpus = [], []
    for _ in range(rounds + 1):
        before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
        command = [sys.executable, "-m", "reodsl.cli.main", "check", str(spec)]
        subprocess.run(command, check=True, capture_output=True)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        walls.append(time.perf_counter() - began)
        cpus.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    # The first run may write the parser's cache.
    seconds = {"wall_seconds": walls, "cpu_seconds": cpus}
    medians = {name: round(statistics.median(each[1:]), 3) for name, each in seconds.items()}
    return {"spec": str(spec.relative_to(ROOT)), "lines": len(spec.read_text().splitlines()), **medians}


def editor(rounds: int) -> dict[str, Any]:
    """Return medians in milliseconds of processor time: each answer with the analysis that it needs after a key."""
    spec = largest()
    text = spec.read_text()
    lines = text.split("\n")
    middle = len(lines) // 2
    answers: dict[str, Callable[[Analysis], object]] = {
        "diagnostics": list_findings,
        "completion": lambda it: completions(it, middle, 1),
        "hover": lambda it: meaning(it, middle, 5),
        "hints": lambda it: hints(it, 1, len(lines)),
        "references": lambda it: references(it, {spec: it.text}, middle, 5),
    }
    seconds: dict[str, list[float]] = {name: [] for name in answers}
    for number in range(rounds + 1):
        for name, values in seconds.items():
            typed = f"{text}# {number} {name}\n"
            began = time.process_time()
            answers[name](analyse(spec, {spec: typed}))
            values.append(time.process_time() - began)
        if number == 0:
            gc.freeze()  # as the server does
    # The first round reads the library.
    medians = {name: round(1000 * statistics.median(each[1:]), 1) for name, each in seconds.items()}
    named = {"spec": str(spec.relative_to(ROOT)), "lines": len(lines) - 1}
    return {**named, "milliseconds": medians, "slowest": max(medians.values())}


def reading(rounds: int) -> dict[str, Any]:
    """Return the least processor seconds of reading a million tokens of servers' answers."""
    return {"with_logprobs": read(rounds, True), "without": read(rounds, False)}


def read(rounds: int, logprobs: bool) -> float:
    """Return the least seconds over rounds, of answers as our servers give them, with all digits."""
    draw = random.Random(1)
    bodies = []
    for _ in range(ANSWERS):
        meta: dict[str, object] = {"weight_version": "1", "finish_reason": {"type": "length"}}
        if logprobs:
            meta["output_token_logprobs"] = [-draw.random() for _ in range(TOKENS)]
        tokens = [draw.randrange(VOCABULARY) for _ in range(TOKENS)]
        bodies.append(json.dumps({"output_ids": tokens, "meta_info": meta}).encode())
    seconds = []
    for _ in range(rounds):
        began = time.process_time()
        for body in bodies:
            Draft(Request((1,), 1), TokenSampling(TOKENS, logprobs=logprobs)).take(orjson.loads(body))
        seconds.append(time.process_time() - began)
    return round(min(seconds) * 1e6 / (TOKENS * ANSWERS), 3)
