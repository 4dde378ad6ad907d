"""Runners that do next to nothing, deterministically, and misbehave on request."""

from __future__ import annotations

import hashlib
import json
import os
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

from reodsl.diagnostics import problem
from reodsl.graph.job import Job, Progress
from reodsl.graph.task import VERSIONS, identity, reads
from reodsl.ir import canonical_json
from reodsl.store.files import write_atomic

FILES = {
    "model": ("checkpoint/model.safetensors",),
    "data": ("questions.parquet",),
    "train": ("checkpoint/model.safetensors", "optimizer/state.safetensors", "metrics.parquet"),
    "sample": ("samples.parquet",),
    "select": ("questions.parquet",),
    "evaluate": ("samples.parquet", "forced.parquet", "curves.json", "summary.json"),
    "frontier": ("frontier.json", "winners.parquet"),
    "budgets": ("budgets.json",),
    "score": ("reg.parquet",),
    "results": ("curves.json", "samples.parquet"),
    "measure": ("measures.parquet",),
    "report": ("report.html", "tables/main.csv", "spec.reo.json"),
}
RUNNERS = dict.fromkeys(VERSIONS, "tests.execute.toys:toy")


def toy(job: Job) -> None:
    """Write files that depend on the payload and on what is read, in steps that an interrupted attempt keeps.

    `knobs.json` in the spec's folder may ask, by task id, for `steps`, seconds of `sleep` a step, a `pause` before
    step 2 for as long as the file `go` is missing, a `fail` (`problem`, `error`, `exit`, `full`, `link`, `panic`), or a
    `hang` where `go` is missing (`native`, `deaf`, `thread`).
    `log.txt` there gets a line a start and a line an end.
    """
    knobs = _knobs(job)
    _log(job, "start")
    _fail(job, knobs.get("fail"))
    state = job.work / "state.json"
    job.work.mkdir(exist_ok=True)
    value, done = json.loads(state.read_text()) if state.exists() else (_read(job), 0)
    steps = knobs.get("steps", 3)
    for step in range(done, steps):
        value = hashlib.sha256(value.encode()).hexdigest()
        time.sleep(knobs.get("sleep", 0))
        write_atomic(state, json.dumps([value, step + 1]).encode())
        job.progress(Progress(step + 1, steps, {"reward": step / steps}))
        if step == 1 and "hang" in knobs and not (job.folder / "go").exists():
            _hang(knobs["hang"])
        while step == 1 and knobs.get("pause") and not (job.folder / "go").exists():
            time.sleep(0.02)
    for name in FILES[job.task.kind]:
        path = job.out / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"{name} {value}\n")
    if knobs.get("fail") == "link":
        (job.out / "passwd").symlink_to("/etc/passwd")
    _log(job, "end")


def quick(job: Job) -> None:
    """One small file at once; the task called `broken` fails."""
    if job.task.id == "broken":
        raise problem("E0999", "this toy is broken", help="mend it")
    (job.out / "frontier.json").write_text(f"{job.task.payload}\n")


def _read(job: Job) -> str:
    """One text of everything that may affect the result."""
    parts = [canonical_json(identity(job.task))]
    for role, folder in job.inputs.items():
        chosen = reads(job.task.kind, role)
        for path in sorted(folder.rglob("*")):
            name = path.relative_to(folder).as_posix()
            if path.is_file() and name not in ("material.json", "manifest.json") and _chosen(name, chosen):
                parts.append(f"{role}/{name}: {path.read_text()}")
    return "\n".join(parts)


def _chosen(name: str, chosen: tuple[str, ...]) -> bool:
    return not chosen or any(name == part or (part[-1] == "/" and name.startswith(part)) for part in chosen)


def _knobs(job: Job) -> dict[str, Any]:
    path = job.folder / "knobs.json"
    found = json.loads(path.read_text()) if path.exists() else {}
    return {**found.get("*", {}), **found.get(job.task.id, {})}


def _fail(job: Job, how: str | None) -> None:
    match how:
        case "problem":
            raise problem("E0999", "this toy is broken", where=job.task.id, help="mend it")
        case "error":
            raise ZeroDivisionError("division by toy")
        case "full":
            raise RuntimeError("PytorchStreamWriter failed writing file: No space left on device")
        case "panic":
            from tokenizers.pre_tokenizers import FixedLength

            FixedLength(length=0).pre_tokenize_str("a text")
        case "exit":
            os._exit(9)


def _hang(how: str) -> None:
    def endless() -> None:
        # One step of C, which looks at no signal and lets no other thread run.
        if how == "native":
            sum(range(1 << 60))
        while True:
            with suppress(KeyboardInterrupt):
                time.sleep(0.1)

    if how == "thread":
        threading.Thread(target=endless).start()
        time.sleep(1000)
    endless()


def _log(job: Job, what: str) -> None:
    with (job.folder / "log.txt").open("a") as file:
        file.write(f"{what} {job.task.id}\n")


def log(folder: Path, what: str = "start") -> list[str]:
    """The ids of the tasks that started (or ended), in order."""
    path = folder / "log.txt"
    lines = path.read_text().splitlines() if path.exists() else []
    return [line.split(" ", 1)[1] for line in lines if line.startswith(what)]
