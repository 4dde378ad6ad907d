"""The state of a run: its running tasks, its finished ones, and its status.

The state is read from files that the run writes. So any process on a machine with the store can read it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, Literal

from reodsl.diagnostics import in_percent
from reodsl.graph.job import Progress
from reodsl.numbers.unsettled import COUNTS, Reasons, count_reasons, list_tables
from reodsl.report.formats import finite
from reodsl.store.live import Live, read_live, read_steps
from reodsl.store.runs import RunRecord, alive, events
from reodsl.store.store import Store

Status = Literal["running", "finished", "failed", "interrupted", "stopped"]
"""`stopped` means that the run's process died without recording an end."""

ENDS = ("finished", "failed", "blocked")


@dataclass(frozen=True, slots=True)
class RunningTask:
    """A task that has started but not ended."""

    task: str
    """Name of the task."""
    began: float
    """Start, in seconds since the epoch or of the monotonic clock of the displaying process."""
    progress: Progress | None = None
    """Latest progress."""
    waiting: bool = False
    """True if it waits for another run."""
    steps: Sequence[Mapping[str, float]] = ()
    """Metrics of a training, a row for each step."""
    key: str = ""
    """Key of its result."""
    node: str = ""
    """Name of the node."""
    failing: Reasons = ()
    """Reasons why the user's code failed on responses so far, with counts."""


@dataclass(frozen=True, slots=True)
class FinishedTask:
    """A task that ended.

    `kind` is the event of its end, or `stopped` if the run died before the task ended. `at` is the time of
    that event in seconds since the epoch (of its start if it was stopped), and `seconds` its duration.
    `reason` is why it failed, or how far it was. `failing` has the reasons why the user's code failed at
    responses, each with its count.
    """

    task: str
    kind: str
    at: float
    seconds: float | None = None
    reason: str = ""
    failing: Reasons = ()


@dataclass(frozen=True, slots=True)
class RunState:
    """The state of a run at one moment."""

    record: RunRecord
    """Record of the run."""
    status: Status
    """Status of the run."""
    total: int | None
    """Number of tasks; None for runs of versions that did not record it."""
    done: int
    """Number of results."""
    began: float | None
    """Start, in seconds since the epoch."""
    expected: float | None
    """Seconds that the run takes at least, as its price says; None if unknown."""
    going: tuple[RunningTask, ...]
    """Running tasks."""
    finished: tuple[FinishedTask, ...]
    """Tasks that have ended."""

    @property
    def has_ended(self) -> bool:
        """Return whether the run has ended, so that its state stays as it is."""
        return self.status != "running"


def read_status(store: Store, record: RunRecord) -> Status:
    """Return the status of a run; `stopped` if its process died without recording an end."""
    is_dead = record.status == "running" and not alive(store, record)
    return "stopped" if is_dead else record.status


def read_state(store: Store, record: RunRecord, *, with_steps: bool = True) -> RunState:
    """Return the present state of a run, from the files that it has written.

    If the run has ended, tasks that had started but not ended count as `stopped`.

    Args:
        store: The store of the run.
        record: The record of the run.
        with_steps: Whether to read the metrics of trainings and the reasons of failures.
    """
    status = read_status(store, record)
    total: int | None = None
    began: float | None = None
    expected: float | None = None
    started: dict[str, dict[str, Any]] = {}
    waiting: set[str] = set()
    finished: dict[str, FinishedTask] = {}
    for event in events(store, record):
        kind, task = event["kind"], event.get("task", "")
        if kind == "began":
            total, began, expected = event["total"], event["at"], event.get("seconds")
        elif kind == "started":
            started[task] = event
            waiting.discard(task)
            finished.pop(task, None)
        elif kind == "waiting":
            waiting.add(task)
        elif kind == "rebuilding":
            finished.pop(task, None)
        elif kind in ENDS:
            started.pop(task, None)
            seconds, reason, key = event.get("seconds"), event.get("said", ""), record.tasks.get(task)
            failing = _read_reasons(store.path(key)) if with_steps and key is not None else ()
            finished[task] = FinishedTask(task, kind, event["at"], seconds, reason, failing)
    going = [
        _read_task(store.root, task, event, task in waiting, with_steps)
        for task, event in started.items()
        if task not in record.tasks
    ]
    if status != "running":
        finished |= {
            running.task: FinishedTask(
                running.task, "stopped", running.began, None, _format_progress(running), running.failing
            )
            for running in going
        }
        going = []
    results = len(record.tasks)
    return RunState(record, status, total, results, began, expected, tuple(going), tuple(finished.values()))


def _format_progress(task: RunningTask) -> str:
    """Return how far a task was when its run stopped, as `at 12 of 40`; empty if it reported no progress."""
    if task.progress is None:
        return ""
    total = f" of {task.progress.total}" if task.progress.total else ""
    return f"at {task.progress.done}{total}"


def _read_task(
    root: Path, task: str, event: Mapping[str, Any], waiting: bool, with_steps: bool
) -> RunningTask:
    """Return a running task, from its `started` event, its live file and the steps in its working folder.

    Args:
        root: The folder of the store.
        task: The name of the task.
        event: The event of its start.
        waiting: Whether the task waits for another run.
        with_steps: Whether to read the metrics of trainings and the reasons of failures.
    """
    key = str(event.get("key", ""))
    live = read_live(root, key) if key else None
    work = root / "work" / key
    rows = tuple(read_steps(work)) if key and with_steps else ()
    progress = _last_progress(live, rows)
    failed = with_steps and progress is not None and any(progress.numbers.get(name) for name in COUNTS)
    return RunningTask(
        task=task,
        key=key,
        began=event["at"],
        progress=progress,
        node=live.node if live is not None else "",
        waiting=waiting,
        steps=rows,
        failing=_read_reasons(work) if failed else (),
    )


def _read_reasons(folder: Path) -> Reasons:
    """Return the reasons why the user's code failed on responses, each with its count; empty if no table can be read."""
    from polars.exceptions import PolarsError

    try:
        return count_reasons(list_tables(folder))
    except (OSError, ValueError, PolarsError):
        return ()


def _last_progress(live: Live | None, rows: tuple[Mapping[str, float], ...]) -> Progress | None:
    """Return the last reported progress of a task, or else the progress of its last training step.

    The result is None if there is neither.

    Args:
        live: The content of the file to which the task's process writes its progress; None without the file.
        rows: The metrics of its training steps.
    """
    if live is not None and live.progress is not None:
        return live.progress
    if not rows:
        return None
    return Progress(
        int(rows[-1]["step"]), 0, {name: value for name, value in rows[-1].items() if name != "step"}
    )


def to_json(state: RunState) -> dict[str, Any]:
    """Return the state of a run as JSON data, with the fields that `reodsl explain json` describes."""
    return {
        "run": state.record.name,
        "study": state.record.study,
        "spec": state.record.spec,
        "status": state.status,
        "started": state.record.started,
        "ended": state.record.ended,
        "done": state.done,
        "total": state.total,
        "running": [going_json(task) for task in state.going],
        "tasks": [
            {
                "task": task.task,
                "status": task.kind,
                "seconds": task.seconds,
                "said": task.reason or None,
                "failing": [{"why": why, "times": times} for why, times in task.failing],
            }
            for task in state.finished
        ],
        "report": state.record.report,
    }


def going_json(task: RunningTask) -> dict[str, Any]:
    """Return a running task as JSON data; numbers that are not finite become null."""
    progress = task.progress
    return {
        "task": task.task,
        "key": task.key,
        "node": task.node or None,
        "waiting": task.waiting,
        "step": progress.done if progress else None,
        "steps": progress.total or None if progress else None,
        "numbers": finite(dict(progress.numbers)) if progress else {},
        "failing": [{"why": why, "times": times} for why, times in task.failing],
    }


_BLOCKS = "▁▂▃▄▅▆▇█"
_SPARK = 24


def draw_curve(steps: Sequence[Mapping[str, float]]) -> str:
    """Return the reward of a training so far, or else its loss, as a line of block characters with its name.

    The text is empty if there are fewer than two steps with either number.

    Args:
        steps: The metrics of each step.
    """
    for name in ("reward", "loss"):
        curve = spark([row[name] for row in steps if isinstance(row.get(name), (int, float))])
        if curve:
            return f"{name} {curve}"
    return ""


def numbers(progress: Progress | None) -> str:
    """Return the numbers of a task's progress on one line: `reward 0.42  accuracy 61.5%  length 77.8`."""
    return "  ".join(named_numbers(progress.numbers)) if progress is not None else ""


def named_numbers(values: Mapping[str, float | None]) -> list[str]:
    """Return each number with its name, such as `reward 0.42`; nulls are left out.

    Args:
        values: The numbers by name.
    """
    return [
        f"{name.replace('_', ' ')} {number(name, value)}"
        for name, value in values.items()
        if value is not None
    ]


def number(name: str, value: float) -> str:
    """Return a number as text, an accuracy in percent and others with three digits.

    Args:
        name: The name of the metric.
        value: The number; an accuracy is a share from 0 to 1.
    """
    if name == "accuracy":
        return f"{in_percent(value, 1)}%"
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def span(seconds: float) -> str:
    """Return a time in its two largest units: `41 s`, `3 min 20 s`, `2 h 5 min`.

    Args:
        seconds: The time.
    """
    rounded = max(0, round(seconds))
    if rounded < 60:
        return f"{rounded} s"
    if rounded < 3600:
        return f"{rounded // 60} min {rounded % 60} s"
    return f"{rounded // 3600} h {rounded % 3600 // 60} min"


def spark(values: Iterable[float], cells: int = _SPARK) -> str:
    """Return a curve as a line of block characters, scaled from its lowest to its highest value.

    Args:
        values: The curve; values that are not finite are dropped.
        cells: The largest number of characters; neighbouring values of a longer curve are averaged.

    Returns:
        The characters; empty for fewer than two finite values.
    """
    finite_values = [value for value in values if math.isfinite(value)]
    if len(finite_values) < 2:
        return ""
    size = min(cells, len(finite_values))
    bounds = [round(i * len(finite_values) / size) for i in range(size + 1)]
    means = [sum(finite_values[a:b]) / (b - a) for a, b in pairwise(bounds)]
    low, high = min(means), max(means)
    top = len(_BLOCKS) - 1
    return "".join(_BLOCKS[round(top * (m - low) / (high - low)) if high > low else 0] for m in means)
