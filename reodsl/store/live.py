"""Keep the progress and steps of running tasks in files that any process can read.

These files are not part of a result. A file is replaced in one step or grows by lines, and readers ignore a cut-off line.
"""

from __future__ import annotations

import json
import os
import platform
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from reodsl.graph.job import Progress
from reodsl.store.files import read_lines, read_object, write_atomic

STEPS = "metrics.jsonl"
"""File in a task's work folder with a line of metrics for each training step; the result has `metrics.parquet` instead."""

TRACKED = "tracked."
"""Start of the names of files in a work folder; each says up to which step a tracker has received the training."""

KEPT = "kept"
"""File in a task's work folder with how much of the task an attempt saved; the next attempt continues from there."""

_EVERY = 0.3
"""Seconds between two writes of a task's progress, at least."""

Row = Mapping[str, float]


@dataclass(frozen=True, slots=True)
class Live:
    """A running task: its id, when it began, on which node, when it last wrote its progress (`at`), and the progress.

    Times are in seconds since the epoch.
    """

    task: str
    began: float
    node: str
    at: float
    progress: Progress | None


class Teller:
    """The writer of a running task's progress into a file in the store's folder `live/`, a few times a second at most."""

    def __init__(self, root: Path, key: str, task: str) -> None:
        """Write that a task began.

        Args:
            root: Folder of the store.
            key: Key of the task's result.
            task: Name of the task.
        """
        self._place, self._task, self._began, self._last = live_place(root, key), task, time.time(), 0.0
        self.latest: Progress | None = None
        self._write(None)

    def tell(self, progress: Progress) -> None:
        """Write the progress of the task if the last write is at least `_EVERY` seconds old, or the task is complete."""
        self.latest, now = progress, time.monotonic()
        if now - self._last >= _EVERY or progress.done >= progress.total:
            self._last = now
            self._write(progress)

    def _write(self, progress: Progress | None) -> None:
        """Replace the file of the task's progress; None writes only that the task began."""
        facts = {"task": self._task, "began": self._began, "at": time.time(), "node": platform.node()}
        if progress is not None:
            numbers = {name: float(value) for name, value in progress.numbers.items()}
            facts |= {"done": progress.done, "total": progress.total, "numbers": numbers}
        _replace(self._place, json.dumps(facts))


def live_place(root: Path, key: str) -> Path:
    """Return the path of the file with a running task's progress, in the store at `root`, by the key of its result."""
    return root / "live" / f"{key}.json"


def read_live(root: Path, key: str) -> Live | None:
    """Read the progress of the task that computes the result `key`; None if its file is missing or damaged."""
    try:
        data = read_object(live_place(root, key)) or {}
        progress = Progress(data["done"], data["total"], data["numbers"]) if "done" in data else None
        return Live(str(data["task"]), float(data["began"]), str(data["node"]), float(data["at"]), progress)
    except (ValueError, KeyError, TypeError):
        return None


def begin_steps(work: Path, rows: Sequence[Row]) -> None:
    """Replace the steps in a task's file of steps by `rows`, when a new attempt at the task begins.

    These are the steps that the attempt does not repeat. Without rows no file is made.

    Args:
        work: The task's work folder.
        rows: Metrics of each step by name.
    """
    if rows or (work / STEPS).exists():
        _replace(work / STEPS, "".join(json.dumps(dict(row)) + "\n" for row in rows))


def add_step(work: Path, row: Row) -> None:
    """Append the metrics of a step to the file of steps in the work folder `work`.

    An error of the disk is ignored, as storing the result will report it.
    """
    with suppress(OSError):
        work.mkdir(exist_ok=True)
        with (work / STEPS).open("a", encoding="utf-8") as file:
            file.write(json.dumps(dict(row)) + "\n")


def read_steps(folder: Path) -> list[dict[str, float]]:
    """Return the metrics of each training step so far from the file of steps in `folder`.

    Returns:
        A row for each step, from metric names to numbers; of a repeated step the last row. Damaged lines, and all lines
        after them, are left out.
    """
    steps: dict[float, dict[str, float]] = {}
    for line in read_lines(folder / STEPS):
        try:
            row = json.loads(line)
            steps[row["step"]] = row
        except (ValueError, KeyError, TypeError):
            break
    return list(steps.values())


def mark_kept(work: Path, count: int) -> None:
    """Write into the work folder how much of a task an attempt has saved for the next attempt.

    Args:
        work: The task's work folder.
        count: Amount of saved work in the task's own unit, such as steps; only its growth counts.
    """
    _replace(work / KEPT, str(count))


def read_kept(work: Path) -> int:
    """Return how much of a task its attempts have saved, from the file of `mark_kept` in the work folder; 0 without it."""
    try:
        return int((work / KEPT).read_text("utf-8"))
    except (OSError, ValueError):
        return 0


def can_go_on(work: Path) -> bool:
    """Return whether a work folder has files that a new attempt can continue from.

    The metrics of steps and the state of trackers do not count.
    """
    return work.is_dir() and any(
        entry.name != STEPS and not entry.name.startswith(TRACKED) for entry in work.iterdir()
    )


def _replace(path: Path, text: str) -> None:
    """Replace a file's text in one step; an error of the disk is ignored, since only observers read the file."""
    with suppress(OSError):
        write_atomic(path, text.encode(), durable=False)


Note = dict[str, Any]


def note(folder: Path, did: str, **facts: object) -> None:
    """Append a note on what this process did to its file of notes, for a rehearsal.

    Args:
        folder: Folder with a file of notes for each process.
        did: Word for the event, such as `placed`.
        facts: Further facts by name.
    """
    line = json.dumps({"did": did, "at": time.time(), "by": f"{platform.node()} {os.getpid()}", **facts})
    with (folder / f"{platform.node()}-{os.getpid()}.jsonl").open("a", encoding="utf-8") as file:
        file.write(f"{line}\n")


def read_notes(folder: Path) -> list[Note]:
    """Return the notes of all processes in a folder, sorted by time.

    Of each file, notes from the first damaged line on are left out.
    """
    return sorted(_read_all(folder), key=lambda entry: float(entry["at"]))


def _read_all(folder: Path) -> Iterator[Note]:
    """Yield the notes of all files in a folder, of each file up to its first damaged line."""
    for file in folder.glob("*.jsonl"):
        for line in read_lines(file):
            try:
                yield json.loads(line)
            except ValueError:
                break
