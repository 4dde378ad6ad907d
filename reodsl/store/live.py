"""Keep the progress and steps of running tasks in files that any process can read.

None of this is part of a result. A file is replaced whole or grows by whole lines, and a reader takes whole lines only.
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
"""The file in a task's work folder that has a line for every training step so far. The result has `metrics.parquet`."""

TRACKED = "tracked."
"""The start of the names of files in a work folder that say up to which step a tracker has a training."""

KEPT = "kept"
"""The file in a task's work folder that says how far an attempt got that the next one goes on from."""

_EVERY = 0.3

Row = Mapping[str, float]


@dataclass(frozen=True, slots=True)
class Live:
    """A running task: its id, when it began (epoch seconds), on which node, and its progress."""

    task: str
    began: float
    node: str
    at: float
    progress: Progress | None


class Teller:
    """The writer of a task's progress in `live/`, a few times a second at most."""

    def __init__(self, root: Path, key: str, task: str) -> None:
        """Write that `task` began, for the result `key` in the store at `root`."""
        self._place, self._task, self._began, self._last = live_place(root, key), task, time.time(), 0.0
        self._write(None)

    def tell(self, progress: Progress) -> None:
        """Write the progress, unless the last write was moments ago."""
        now = time.monotonic()
        if now - self._last >= _EVERY or progress.done >= progress.total:
            self._last = now
            self._write(progress)

    def _write(self, progress: Progress | None) -> None:
        facts = {"task": self._task, "began": self._began, "at": time.time(), "node": platform.node()}
        if progress is not None:
            numbers = {name: float(value) for name, value in progress.numbers.items()}
            facts |= {"done": progress.done, "total": progress.total, "numbers": numbers}
        _replace(self._place, json.dumps(facts))


def live_place(root: Path, key: str) -> Path:
    """Return the file of a task's progress, by its key."""
    return root / "live" / f"{key}.json"


def read_live(root: Path, key: str) -> Live | None:
    """Read a task's progress; None if no file can be read."""
    try:
        data = read_object(live_place(root, key)) or {}
        progress = Progress(data["done"], data["total"], data["numbers"]) if "done" in data else None
        return Live(str(data["task"]), float(data["began"]), str(data["node"]), float(data["at"]), progress)
    except (ValueError, KeyError, TypeError):
        return None


def begin_steps(work: Path, rows: Sequence[Row]) -> None:
    """Set a task's file of steps to `rows`: an attempt continues after them and repeats later steps."""
    if rows or (work / STEPS).exists():
        _replace(work / STEPS, "".join(json.dumps(dict(row)) + "\n" for row in rows))


def add_step(work: Path, row: Row) -> None:
    """Append a step to a task's file of steps. A full disk is reported when the result is stored."""
    with suppress(OSError):
        work.mkdir(exist_ok=True)
        with (work / STEPS).open("a", encoding="utf-8") as file:
            file.write(json.dumps(dict(row)) + "\n")


def read_steps(folder: Path) -> list[dict[str, float]]:
    """Return the numbers of each step so far, by metric.

    Returns:
        A row for each step, the last version of each; a line that was cut off ends the list.
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
    """Note how much of a task an attempt has saved for the next attempt, in any unit."""
    _replace(work / KEPT, str(count))


def read_kept(work: Path) -> int:
    """Return the count of `mark_kept`; 0 if nothing can be read."""
    try:
        return int((work / KEPT).read_text("utf-8"))
    except (OSError, ValueError):
        return 0


def can_go_on(work: Path) -> bool:
    """Return whether an attempt left anything to continue from, beside the numbers of its steps."""
    return work.is_dir() and any(
        entry.name != STEPS and not entry.name.startswith(TRACKED) for entry in work.iterdir()
    )


def _replace(path: Path, text: str) -> None:
    with suppress(OSError):
        write_atomic(path, text.encode(), durable=False)


Note = dict[str, Any]


def note(folder: Path, did: str, **facts: object) -> None:
    """Add a note of what this process `did`, with the time and further facts."""
    line = json.dumps({"did": did, "at": time.time(), "by": f"{platform.node()} {os.getpid()}", **facts})
    with (folder / f"{platform.node()}-{os.getpid()}.jsonl").open("a", encoding="utf-8") as file:
        file.write(f"{line}\n")


def read_notes(folder: Path) -> list[Note]:
    """Return all notes in the order of their times, without lines that are cut off."""
    return sorted(_read_all(folder), key=lambda entry: float(entry["at"]))


def _read_all(folder: Path) -> Iterator[Note]:
    for file in folder.glob("*.jsonl"):
        for line in read_lines(file):
            try:
                yield json.loads(line)
            except ValueError:
                break
