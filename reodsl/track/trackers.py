"""The trackers of a run: their choice, a process for each, and warnings about their failures."""

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

from reodsl.diagnostics import Diagnostic, problem, refuse, warning
from reodsl.diagnostics.dropped import refuse_dropped
from reodsl.graph.job import Event
from reodsl.graph.task import Graph, Task
from reodsl.store.live import TRACKED, read_steps
from reodsl.store.runs import slug
from reodsl.store.store import Store

TRACKERS = ("trackio", "wandb", "tensorboard")
"""The trackers that a run can have, which are the names of their packages."""


def chosen(requested: Sequence[str]) -> tuple[tuple[str, ...], tuple[Diagnostic, ...]]:
    """Return the trackers of a run: those on the command line, or else those in the user's configuration file.

    A tracker in the configuration file whose package is not installed is left out with a warning.

    Args:
        requested: Names from the command line.

    Returns:
        (names of the trackers, warnings W0806 about the configuration file).

    Raises:
        Problem: E0121 for an unknown name on the command line, or a tracker whose package is not installed.
    """
    if requested:
        for name in dict.fromkeys(requested):
            refuse(refuse_dropped(f"reodsl run --track {name}"))
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
    missing = [name for name in names if name not in installed]
    return installed, findings + tuple(
        warning(
            "W0806",
            f"nothing is sent to {name}: the package `{name}` is not installed",
            where=str(configuration()),
            help=f"pip install 'reodsl[{name}]'",
        )
        for name in missing
    )


def configuration() -> Path:
    """Return the user's configuration file: `$XDG_CONFIG_HOME/reodsl/config.toml`."""
    folder = os.environ.get("XDG_CONFIG_HOME")
    return (Path(folder) if folder else Path.home() / ".config") / "reodsl" / "config.toml"


def read_trackers(path: Path) -> tuple[tuple[str, ...], tuple[Diagnostic, ...]]:
    """Read the trackers from the line `track = ["wandb"]` of a configuration file.

    Returns:
        (names of the trackers, warnings W0806 about the file). Without a file both are empty. If the file cannot be read or
        has an unknown name, there are no names and one warning.
    """
    try:
        data = tomllib.loads(path.read_text("utf-8"))
    except FileNotFoundError:
        return (), ()
    except (OSError, ValueError) as fault:
        return (), (_warn_configuration(path, f"the file cannot be read: {fault}"),)
    value = data.get("track", [])
    names = [value] if isinstance(value, str) else value
    if not isinstance(names, list) or not all(name in TRACKERS for name in names):
        return (), (_warn_configuration(path, f"`track` is {value!r}"),)
    return tuple(dict.fromkeys(names)), ()


def is_installed(name: str) -> bool:
    """Return whether a tracker's package can be imported."""
    return importlib.util.find_spec(name) is not None


def _warn_configuration(path: Path, why: str) -> Diagnostic:
    """Return W0806 for a configuration file that is ignored, with the reason."""
    return warning(
        "W0806",
        f"the configuration is ignored: {why}",
        where=str(path),
        help=f'write `track = ["wandb"]`, with names from {", ".join(TRACKERS)}',
    )


FAREWELL = 30.0
"""Seconds that trackers have at the end of a run to send the last steps."""
_MOST_WAITING = 10_000
"""Orders that wait for a tracker at most; a tracker with more is taken to hang."""
_ENDS = ("finished", "failed")


class Trackers:
    """The trackers of a run, which get every event; a tracker that fails, hangs or ends is reported once."""

    def __init__(self, names: Sequence[str], store: Store, graph: Graph, study: str) -> None:
        """Start a process for each tracker.

        Args:
            names: Names of the trackers.
            store: Store of the run.
            graph: Tasks of the run.
            study: Name of the study.
        """
        self.store, self.graph, self.study = store, graph, study
        self.going: dict[str, _SentSteps] = {}
        self.workers = [_Worker(name) for name in names]

    def hear(self, event: Event) -> None:
        """Send the news in an event of the run to the trackers.

        The start of a training or evaluation begins a run of each tracker. Progress of a training sends its new steps. The
        end of the task sends its last steps, or the numbers of an evaluation, and ends the trackers' runs. Other events,
        and events of other tasks, send nothing.
        """
        if not self.workers:
            return
        task = self.graph[event.task]
        if event.kind == "started" and event.key is not None and task.kind in ("train", "evaluate"):
            if event.task not in self.going:
                self.going[event.task] = _SentSteps(event.key, self.store.root / "work" / event.key)
                for worker in self.workers:
                    worker.send(self._make_open_order(task, event.key, worker.name))
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
        """Return a warning (W0806) for each tracker that has failed and was not reported by an earlier call."""
        return [trouble for worker in self.workers if (trouble := worker.trouble()) is not None]

    def close(self) -> None:
        """Send the remaining steps of tasks that were interrupted, and end all trackers.

        The trackers have `FAREWELL` seconds together to send what they still have.
        """
        for task in list(self.going):
            self._log(self.going[task], read_steps(self.going[task].work))
            self._close(task, "interrupted")
        for worker in self.workers:
            worker.end()
        deadline = time.monotonic() + FAREWELL
        for worker in self.workers:
            worker.wait(deadline)

    def _make_open_order(self, task: Task, key: str, name: str) -> dict[str, Any]:
        """Return the order to a tracker's process to begin a run for a task.

        Args:
            task: The task, a training or an evaluation.
            key: Key of the task's result.
            name: Name of the tracker.
        """
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
        """Send the rows of a task that were not sent yet to all trackers.

        Args:
            sent_rows: Record of the task's rows that were sent.
            rows: All rows of the task so far: metrics by name, with `step`.
        """
        new_rows = sent_rows.select(rows)
        for worker in self.workers if new_rows else ():
            worker.send({"do": "log", "key": sent_rows.key, "rows": new_rows})

    def _close(self, task: str, status: str) -> None:
        """End the runs of a task in all trackers with a status: `finished`, `failed` or `interrupted`."""
        steps = self.going.pop(task)
        for worker in self.workers:
            worker.send({"do": "close", "key": steps.key, "task": task, "status": status})


@dataclass(slots=True)
class _SentSteps:
    """The record of the steps of a task that were sent."""

    key: str
    """Key of the task's result."""
    work: Path
    """The task's work folder."""
    last: float = -1
    """Last step that was sent."""

    def select(self, rows: Iterable[Mapping[str, float]]) -> list[Mapping[str, float]]:
        """Return the rows of steps that were not sent yet, and count them as sent.

        Args:
            rows: Metrics of each step by name; a resumed attempt repeats steps.
        """
        new_rows = [row for row in rows if row["step"] > self.last]
        self.last = max([self.last, *(row["step"] for row in new_rows)])
        return new_rows


def result_rows(folder: Path, kind: str) -> list[dict[str, float]]:
    """Return the metrics in a result as rows for trackers: a row for each step of a training, or one for an evaluation.

    Args:
        folder: Folder of the result.
        kind: Kind of the task.

    Returns:
        Values by metric for each step; an evaluation has step 0 with `BENCHMARK/METRIC` and means over benchmarks.
        Empty if the result cannot be read.
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
        # The run itself reports unreadable results.
        return []


class _Worker:
    """The process of a tracker; only `wait` ever blocks."""

    def __init__(self, name: str) -> None:
        """Start the process of the tracker `name`, with threads that write its orders and read its failures."""
        self.name = name
        self.lines: queue.Queue[str | None] = queue.Queue(_MOST_WAITING)
        self.failed: list[str] = []
        self.reported = self.ended = False
        # In a new session, Ctrl-C stops only the run, and the tracker can still send the last steps.
        self.process = subprocess.Popen(
            [sys.executable, "-P", "-m", "reodsl.track.worker", name],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        for target in (self._write_orders, self._read_failures):
            threading.Thread(target=target, daemon=True).start()

    def send(self, order: dict[str, Any]) -> None:
        """Queue an order for the tracker; if the process has ended or the queue is full, note the failure instead."""
        if self.process.poll() is not None:
            self._fail(f"its process ended with {self.process.returncode}")
            return
        try:
            self.lines.put_nowait(json.dumps(order))
        except queue.Full:
            self._fail("it does not respond any more")

    def trouble(self) -> Diagnostic | None:
        """Return a warning about the tracker's first failure, once; None before a failure and in all later calls."""
        if self.reported or not self.failed:
            return None
        self.reported = True
        return warning(
            "W0806",
            f"{self.name} does not receive all metrics of this run: {self.failed[0]}",
            notes=("the run continues without it; its metrics are in the store",),
            help=f"check that `import {self.name}` works, and that it can write files or log in",
        )

    def end(self) -> None:
        """Tell the process that no further orders come."""
        self.ended = True
        with suppress(queue.Full):
            self.lines.put_nowait(None)

    def wait(self, deadline: float) -> None:
        """Wait until the process ends, and kill it at the deadline.

        Args:
            deadline: Time of the monotonic clock, in seconds.
        """
        try:
            self.process.wait(max(0.0, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            self._fail(f"it did not end within {FAREWELL:g} s after the run")
            self.process.kill()
            self.process.wait()

    def _fail(self, why: str) -> None:
        """Note a failure of the tracker; only the first counts."""
        if not self.failed:
            self.failed.append(why)

    def _write_orders(self) -> None:
        """Write queued orders to the process until None is queued or the process ends."""
        assert self.process.stdin is not None
        with suppress(OSError, ValueError):
            while (line := self.lines.get()) is not None:
                self.process.stdin.write(line.encode() + b"\n")
                self.process.stdin.flush()
        with suppress(OSError):
            self.process.stdin.close()

    def _read_failures(self) -> None:
        """Note the failures that the process prints as lines of JSON, until it ends."""
        assert self.process.stdout is not None
        for line in self.process.stdout:
            with suppress(ValueError, KeyError, TypeError):
                self._fail(str(json.loads(line)["failed"]))
