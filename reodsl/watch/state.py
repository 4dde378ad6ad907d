"""The state of a run: its running tasks, its finished ones, and its status.

Everything is read from files that the run leaves as it goes, so that any process on any machine with the store can look.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from reodsl.graph.job import Progress
from reodsl.store.live import Live, read_live, read_steps
from reodsl.store.manifest import PLACE, WEIGHTS, read_record
from reodsl.store.runs import RunRecord, alive, events
from reodsl.store.store import Store

Status = Literal["running", "finished", "failed", "interrupted", "stopped"]
"""`stopped`: the run's process is gone and wrote no end."""

ENDS = ("finished", "failed", "blocked")


@dataclass(frozen=True, slots=True)
class Going:
    """A task that has begun and not ended.

    `began` is in epoch seconds; `waiting` says that it waits for another run or for nodes. `steps` are the metrics of a
    training, a row a step. `weights` says how servers get new ones, where it is not the fastest way.
    """

    task: str
    key: str
    began: float
    progress: Progress | None
    node: str
    waiting: bool
    steps: tuple[Mapping[str, float], ...] = ()
    weights: str = ""


@dataclass(frozen=True, slots=True)
class Ended:
    """A task that ended: `kind` as of its event, when (epoch seconds), how long it took and why it failed."""

    task: str
    kind: str
    at: float
    seconds: float | None = None
    said: str = ""


@dataclass(frozen=True, slots=True)
class State:
    """A run at a moment. `total` is None for runs of versions that did not write it down; `done` counts results."""

    record: RunRecord
    status: Status
    total: int | None
    done: int
    began: float | None
    going: tuple[Going, ...]
    ended: tuple[Ended, ...]

    @property
    def over(self) -> bool:
        """Return whether nothing will change any more."""
        return self.status != "running"


def read_state(store: Store, record: RunRecord, *, steps: bool = True) -> State:
    """Read the present state of a run; without `steps` the metrics of trainings are not read."""
    status: Status = record.status
    if status == "running" and not alive(store, record):
        status = "stopped"
    total: int | None = None
    began: float | None = None
    flying: dict[str, dict[str, Any]] = {}
    waiting: set[str] = set()
    ended: dict[str, Ended] = {}
    for event in events(store, record):
        kind, task = event["kind"], str(event.get("task", ""))
        if kind == "began":
            total, began = int(event.get("total", 0)), event["at"]
        elif kind == "started":
            flying[task] = event
            waiting.discard(task)
            ended.pop(task, None)
        elif kind == "waiting":
            waiting.add(task)
        elif kind == "rebuilding":
            ended.pop(task, None)
        elif kind in ENDS:
            flying.pop(task, None)
            seconds = event.get("seconds")
            said = str(event.get("said", ""))
            ended[task] = Ended(task, kind, event["at"], None if seconds is None else float(seconds), said)
    going = [
        _going(store.root, task, event, task in waiting, steps)
        for task, event in flying.items()
        if task not in record.tasks
    ]
    return State(record, status, total, len(record.tasks), began, tuple(going), tuple(ended.values()))


def _going(root: Path, task: str, event: Mapping[str, Any], waiting: bool, steps: bool) -> Going:
    key = str(event.get("key", ""))
    live = read_live(root, key) if key else None
    work = root / "work" / key
    rows = tuple(read_steps(work)) if key and steps else ()
    return Going(
        task=task,
        key=key,
        began=event["at"],
        progress=_progress(live, rows),
        node=live.node if live is not None else "",
        waiting=waiting,
        steps=rows,
        weights=" and ".join(read_record(work / PLACE).get(WEIGHTS, ())) if key else "",
    )


def _progress(live: Live | None, rows: tuple[Mapping[str, float], ...]) -> Progress | None:
    """Return a task's progress; if its process is gone, by its last step."""
    if live is not None and live.progress is not None:
        return live.progress
    if not rows:
        return None
    return Progress(
        int(rows[-1]["step"]), 0, {name: value for name, value in rows[-1].items() if name != "step"}
    )


def to_json(state: State) -> dict[str, Any]:
    """Return the state as JSON data; documented in docs/JSON.md."""
    return {
        "run": state.record.name,
        "study": state.record.study,
        "spec": state.record.spec,
        "status": state.status,
        "started": state.record.started,
        "ended": state.record.ended,
        "done": state.done,
        "total": state.total,
        "running": [going_json(each) for each in state.going],
        "tasks": [
            {
                "task": each.task,
                "status": each.kind,
                "seconds": each.seconds,
                "said": each.said or None,
            }
            for each in state.ended
        ],
        "report": state.record.report,
    }


def going_json(each: Going) -> dict[str, Any]:
    """Return a running task as JSON data; numbers that are not finite are null."""
    progress = each.progress
    return {
        "task": each.task,
        "key": each.key,
        "node": each.node or None,
        "waiting": each.waiting,
        "step": progress.done if progress else None,
        "steps": progress.total or None if progress else None,
        "numbers": finite(progress.numbers) if progress else {},
        "weights": each.weights or None,
    }


def finite(numbers: Mapping[str, float]) -> dict[str, float | None]:
    """Return numbers as JSON can hold them."""
    return {name: value if math.isfinite(value) else None for name, value in numbers.items()}
