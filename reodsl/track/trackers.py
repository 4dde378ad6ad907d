"""A run's trackers: chosen by options and configuration, a process for each, whose faults come back as warnings."""

from __future__ import annotations

import importlib.util
import json
import os
import queue
import subprocess
import sys
import threading
import time
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from reodsl.diagnostics import Diagnostic, Problem, problem, warning
from reodsl.diagnostics.dropped import refuse_dropped
from reodsl.graph.job import Event
from reodsl.graph.task import Graph, Task
from reodsl.store.live import TRACKED, read_steps
from reodsl.store.runs import slug
from reodsl.store.store import Store

TRACKERS = ("trackio", "wandb", "tensorboard")
"""The trackers that a run can have, each named as the package that it needs."""


def chosen(requested: Sequence[str]) -> tuple[tuple[str, ...], tuple[Diagnostic, ...]]:
    """Return the trackers that were requested, else the configuration's, and warnings about the configuration."""
    if requested:
        for name in dict.fromkeys(requested):
            refusal = refuse_dropped(f"reodsl run --track {name}")
            if refusal is not None:
                raise Problem(refusal)
            if name not in TRACKERS:
                raise problem(
                    "E0121",
                    f"there is no tracker called `{name}`",
                    help=f"choose from {', '.join(TRACKERS)}",
                )
            if not is_installed(name):
                raise problem(
                    "E0121",
                    f"the package `{name}` is not installed, which `--track {name}` needs",
                    help=f"pip install 'reodsl[{name}]', or leave out --track {name}",
                )
        return tuple(dict.fromkeys(requested)), ()
    names, findings = read_trackers(configuration())
    installed = tuple(name for name in names if is_installed(name))
    lacking = [name for name in names if name not in installed]
    return installed, findings + tuple(
        warning(
            "W0806",
            f"nothing is sent to {name}: the package `{name}` is not installed",
            where=str(configuration()),
            help=f"pip install 'reodsl[{name}]'",
        )
        for name in lacking
    )


def configuration() -> Path:
    """Return the user's configuration file: `$XDG_CONFIG_HOME/reodsl/config.toml`."""
    folder = os.environ.get("XDG_CONFIG_HOME")
    return (Path(folder) if folder else Path.home() / ".config") / "reodsl" / "config.toml"


def read_trackers(path: Path) -> tuple[tuple[str, ...], tuple[Diagnostic, ...]]:
    """Return the trackers of a configuration file, of its line `track = ["wandb"]`; none without a file."""
    try:
        data = tomllib.loads(path.read_text("utf-8"))
    except FileNotFoundError:
        return (), ()
    except (OSError, ValueError) as fault:
        return (), (_refuse_tracker(path, f"it cannot be read: {fault}"),)
    value = data.get("track", [])
    names = [value] if isinstance(value, str) else value
    if not isinstance(names, list) or not all(name in TRACKERS for name in names):
        return (), (_refuse_tracker(path, f"`track` is {value!r}"),)
    return tuple(dict.fromkeys(names)), ()


def is_installed(name: str) -> bool:
    """Return whether a tracker's package can be imported."""
    return importlib.util.find_spec(name) is not None


def _refuse_tracker(path: Path, why: str) -> Diagnostic:
    return warning(
        "W0806",
        f"the configuration is left out: {why}",
        where=str(path),
        help=f'write `track = ["wandb"]`; there is {", ".join(TRACKERS)}',
    )


FAREWELL = 30.0
"""Seconds that trackers have at the end of a run to send what is left."""
_MOST_WAITING = 10_000
_ENDS = ("finished", "failed")


class Trackers:
    """The trackers of a run, which get every event; a tracker that fails, hangs or ends is reported once."""

    def __init__(self, names: Sequence[str], store: Store, graph: Graph, study: str) -> None:
        """Start a process for each tracker."""
        self.store, self.graph, self.study = store, graph, study
        self.going: dict[str, _SentSteps] = {}
        self.workers = [_Worker(name) for name in names]

    def hear(self, event: Event) -> None:
        """Send the new steps of a training, and the numbers of an evaluation at its end."""
        if not self.workers:
            return
        task = self.graph[event.task]
        if event.kind == "started" and event.key is not None and task.kind in ("train", "evaluate"):
            if event.task not in self.going:
                self.going[event.task] = _SentSteps(event.key, self.store.root / "work" / event.key)
                for worker in self.workers:
                    worker.send(self._opening(task, event.key, worker.name))
            return
        steps = self.going.get(event.task)
        if steps is None:
            return
        if event.kind == "finished":
            self._log(steps, result_rows(self.store.path(steps.key), task.kind))
        elif task.kind == "train":
            self._log(steps, read_steps(steps.work))
        if event.kind in _ENDS:
            self._close(event.task, event.kind)

    def news(self) -> list[Diagnostic]:
        """Return the failures since the last call, each tracker once (W0806)."""
        return [trouble for worker in self.workers if (trouble := worker.trouble()) is not None]

    def close(self) -> None:
        """Send the remaining steps of stopped trainings, and wait a while for the trackers."""
        for task in list(self.going):
            self._log(self.going[task], read_steps(self.going[task].work))
            self._close(task, "interrupted")
        for worker in self.workers:
            worker.end()
        until = time.monotonic() + FAREWELL
        for worker in self.workers:
            worker.wait(until)

    def _opening(self, task: Task, key: str, name: str) -> dict[str, Any]:
        """Return the order that begins a task."""
        facts = {"study": self.study, "task": task.id, "arm": task.arm, "seed": task.seed, "key": key}
        stage = task.payload.get("stage")
        return {
            "do": "open",
            "key": key,
            "task": task.id,
            "study": self.study,
            "facts": facts | ({"stage": stage} if stage is not None else {}),
            "folder": str(
                self.store.root.resolve() / "tensorboard" / slug(self.study) / f"{slug(task.id)}-{key[:8]}"
            ),
            "state": str(self.store.root.resolve() / "work" / key / f"{TRACKED}{name}"),
        }

    def _log(self, sent_rows: _SentSteps, rows: Iterable[Mapping[str, float]]) -> None:
        later = sent_rows.select(rows)
        for worker in self.workers if later else ():
            worker.send({"do": "log", "key": sent_rows.key, "rows": later})

    def _close(self, task: str, status: str) -> None:
        steps = self.going.pop(task)
        for worker in self.workers:
            worker.send({"do": "close", "key": steps.key, "task": task, "status": status})


@dataclass(slots=True)
class _SentSteps:
    """The key and work folder of a task, and the last step that was sent."""

    key: str
    work: Path
    last: float = -1

    def select(self, rows: Iterable[Mapping[str, float]]) -> list[Mapping[str, float]]:
        """Return the rows after the last step that was sent; a resumed attempt repeats earlier steps.

        Args:
            rows: metrics of each step.
        """
        later = [row for row in rows if row["step"] > self.last]
        self.last = max([self.last, *(row["step"] for row in later)])
        return later


def result_rows(folder: Path, kind: str) -> list[dict[str, float]]:
    """Return the steps of a training's result, or a single row of an evaluation's, with each benchmark's numbers.

    Args:
        folder: folder of the result.
        kind: kind of the task.

    Returns:
        Values by metric, a row for each step.
    """
    try:
        if kind == "evaluate":
            summary = json.loads((folder / "summary.json").read_bytes())
            numbers = {
                name if benchmark == "mean" else f"{benchmark}/{name}": value
                for benchmark, values in summary.items()
                for name, value in values.items()
                if isinstance(value, (int, float))
            }
            return [{"step": 0, **numbers}]
        import polars as pl

        return pl.read_parquet(folder / "metrics.parquet", glob=False).to_dicts()
    except Exception:
        # A tracker shows what can be read: the run itself tells of results that cannot.
        return []


class _Worker:
    """The process of a tracker, which only `wait` waits for."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.lines: queue.Queue[str | None] = queue.Queue(_MOST_WAITING)
        self.failed: list[str] = []
        self.reported = self.ended = False
        # A session of its own: Ctrl-C stops the run, and the tracker sends what is left.
        self.process = subprocess.Popen(
            [sys.executable, "-P", "-m", "reodsl.track.worker", name],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        for target in (self._write, self._read):
            threading.Thread(target=target, daemon=True).start()

    def send(self, order: dict[str, Any]) -> None:
        """Give the tracker an order, if it takes any."""
        if self.process.poll() is not None:
            self._fail(f"its process ended with {self.process.returncode}")
            return
        try:
            self.lines.put_nowait(json.dumps(order))
        except queue.Full:
            self._fail("it takes nothing any more")

    def trouble(self) -> Diagnostic | None:
        """Return the failure, once."""
        if self.reported or not self.failed:
            return None
        self.reported = True
        return warning(
            "W0806",
            f"{self.name} does not get all of this run: {self.failed[0]}",
            notes=("the run goes on without; its metrics are in the store",),
            help=f"see that `import {self.name}` works and that it can write or log in",
        )

    def end(self) -> None:
        """Send that nothing more comes."""
        self.ended = True
        with suppress(queue.Full):
            self.lines.put_nowait(None)

    def wait(self, until: float) -> None:
        """Wait until the process ends, and end it by force at `until`.

        Args:
            until: time of the monotonic clock, in seconds.
        """
        try:
            self.process.wait(max(0.0, until - time.monotonic()))
        except subprocess.TimeoutExpired:
            self._fail(f"it was not done {FAREWELL:g} s after the run")
            self.process.kill()
            self.process.wait()

    def _fail(self, why: str) -> None:
        if not self.failed:
            self.failed.append(why)

    def _write(self) -> None:
        assert self.process.stdin is not None
        with suppress(OSError, ValueError):
            while (line := self.lines.get()) is not None:
                self.process.stdin.write(line.encode() + b"\n")
                self.process.stdin.flush()
        with suppress(OSError):
            self.process.stdin.close()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            with suppress(ValueError, KeyError, TypeError):
                self._fail(str(json.loads(line)["failed"]))
