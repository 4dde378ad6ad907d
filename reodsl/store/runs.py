"""Records of runs: which result each task had, and the runs and results that a name or a selector stands for."""

from __future__ import annotations

import json
import os
import re
import shutil
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, Literal

from reodsl.diagnostics import Problem, listed, problem
from reodsl.graph.job import Event
from reodsl.graph.lower import lower
from reodsl.graph.task import Graph, parse_role
from reodsl.ir import Spec
from reodsl.store.files import (
    LARGEST_RECORD,
    is_held,
    keep,
    let_go,
    read_lines,
    read_object,
    read_plain,
    storing,
    write_atomic,
)
from reodsl.store.store import Store

Status = Literal["running", "finished", "failed", "interrupted"]


@dataclass(slots=True)
class RunRecord:
    """A run of a spec.

    While it is running, the process holds `runs/<name>.lock`, and its tasks are lines of `runs/<name>.tasks`. What
    happened to tasks is in `runs/<name>.events`, a line of JSON each, which stays.
    """

    name: str
    """Start time and a suffix."""
    study: str
    """Name of the study."""
    spec: str
    """Digest of the spec."""
    path: str
    """Path of the spec."""
    params: dict[str, str]
    """Values of declared params."""
    changes: list[dict[str, str]]
    """Changes from the command line."""
    started: str
    """Start, in ISO format."""
    process: int
    """Number of the process."""
    status: Status = "running"
    """Status when it was last written."""
    ended: str | None = None
    """End, in ISO format; None while running."""
    report: str | None = None
    """Path of the report's page."""
    store: str = ""
    """Folder of the store at the time of the run; empty in records of earlier versions."""
    python: dict[str, str] = field(default_factory=dict)
    """Checksum of each function's code that the run was allowed, by its spelling in the spec."""
    tasks: dict[str, str] = field(default_factory=dict)
    """Keys of results by task, as far as they exist."""


def began(name: str) -> str:
    """Return the start of a run's name, which is when it began and enough to name it by: `20260101T120000`."""
    return name.partition(".")[0]


def slug(name: str) -> str:
    """Return a name from a spec as a safe name of a file."""
    return re.sub(r"[^A-Za-z0-9_-]+", "_", name)[:60].strip("_") or "study"


def begin(store: Store, spec: Spec, spec_digest: str, python: Mapping[str, str] | None = None) -> RunRecord:
    """Write the record of a run that starts now; remove what killed runs left if no other is going."""
    now = datetime.now(UTC)
    study = slug(spec.study.name)
    record = RunRecord(
        name=f"{now:%Y%m%dT%H%M%S.%f}-{study}-{spec_digest[:8]}-{os.getpid()}",
        study=spec.study.name,
        spec=spec_digest,
        path=spec.path,
        params=dict(spec.params),
        changes=[change.model_dump() for change in spec.changes],
        started=now.isoformat(timespec="seconds"),
        process=os.getpid(),
        store=os.path.realpath(store.root),
        python=dict(python or {}),
    )
    try:
        with store.turn("runs"), storing(store.root):
            if not any(alive(store, other) for other in records(store)):
                for path in leftovers(store):
                    clear(path)
            keep(_file(store, record, "lock"))
            write_atomic(_file(store, record, "spec"), spec.model_dump_json().encode())
            save(store, record)
    except Problem:
        let_go(_file(store, record, "lock"))
        with suppress(OSError):
            forget(store, record)
        raise
    return record


def alive(store: Store, record: RunRecord) -> bool:
    """Return whether the process of a run that never ended still exists, on whatever machine."""
    return record.status == "running" and is_held(_file(store, record, "lock"))


def spec_of(store: Store, record: RunRecord) -> Spec | None:
    """Return the compiled spec of a run; None if it was not kept or cannot be read."""
    try:
        return Spec.model_validate_json(read_plain(_file(store, record, "spec"), LARGEST_RECORD))
    except (OSError, ValueError):
        return None


def require_spec(store: Store, record: RunRecord) -> Spec:
    """Return the compiled spec of a run. Raises E0967 if it was not kept."""
    spec = spec_of(store, record)
    if spec is None:
        raise problem(
            "E0967",
            f"the spec of the run `{record.name}` was not kept",
            where=store.shown,
            help="name its folder instead, where spec.reo.json is",
        )
    return spec


def _file(store: Store, record: RunRecord, suffix: str) -> Path:
    return store.root / "runs" / f"{record.name}.{suffix}"


def save(store: Store, record: RunRecord) -> None:
    """Write the record with its present values."""
    with storing(store.root):
        # The order of the tasks is the order in which they were done.
        text = json.dumps(asdict(record), indent=1) + "\n"
        write_atomic(_file(store, record, "json"), text.encode())


def end(store: Store, record: RunRecord, status: Status) -> None:
    """Close the record."""
    record.status = status
    record.ended = datetime.now(UTC).isoformat(timespec="seconds")
    try:
        save(store, record)
        _file(store, record, "tasks").unlink(missing_ok=True)
    finally:
        let_go(_file(store, record, "lock"))


def records(store: Store) -> tuple[RunRecord, ...]:
    """Return every readable record, oldest first."""
    readable = []
    home = Path(os.path.realpath(store.root))
    for path in sorted((store.root / "runs").glob("*.json")):
        try:
            record = RunRecord(**(read_object(path) or {}))
        except TypeError:
            continue
        if record.status == "running":
            record.tasks.update(_lines(path.with_suffix(".tasks")))
        record.report = _find_report(record, home)
        readable.append(record)
    return tuple(readable)


def _find_report(record: RunRecord, home: Path) -> str | None:
    """Return a run's report as it is for the store at `home`.

    Reports beside a store were copied or moved with it. Reports elsewhere still belong to the store at the first place.
    """
    before = Path(record.store)
    if record.report is None or not record.store or before == home:
        return record.report
    page = Path(record.report)
    return str(home.parent / page.relative_to(before.parent)) if page.is_relative_to(before.parent) else None


def find_repeated(runs: tuple[RunRecord, ...]) -> dict[str, str]:
    """Map runs that had nothing to do to the run whose results and report they reused, by name."""
    first: dict[tuple[object, ...], str] = {}
    repeats = {}
    for record in runs:
        if record.status != "finished":
            continue
        same = record.study, record.spec, record.report, frozenset(record.tasks.items())
        name = first.setdefault(same, record.name)
        if name != record.name:
            repeats[record.name] = name
    return repeats


def _lines(path: Path) -> dict[str, str]:
    """Return the tasks of a run that has not ended, a line each, `key task`; the last may have been cut off."""
    pairs = (line.partition(" ") for line in read_lines(path))
    return {task: key for key, _, task in pairs if task}


def previous(study: str, task_id: str, runs: tuple[RunRecord, ...]) -> str | None:
    """Return the key that a task had when its study last ran it; None if the study never ran it."""
    for record in reversed(runs):
        if record.study == study and task_id in record.tasks:
            return record.tasks[task_id]
    return None


class Writer:
    """The writer of a run's results and events as it goes: a line a task, whatever their number."""

    def __init__(self, store: Store, record: RunRecord) -> None:
        """Write for a record that has begun and not ended."""
        self.store, self.record = store, record

    def add(self, task_id: str, key: str) -> None:
        """Note the result of a task. Raises E0950 if it cannot be written down."""
        self.record.tasks[task_id] = key
        with storing(self.store.root), _file(self.store, self.record, "tasks").open("ab") as file:
            file.write(f"{key} {task_id}\n".encode())

    def begin(self, total: int) -> None:
        """Note the number of tasks, done or not."""
        self._note({"kind": "began", "total": total})

    def note(self, event: Event) -> None:
        """Note an event of a task, except reuse, which the run's tasks show, and progress, which `live/` shows."""
        if event.kind in ("reused", "progress"):
            return
        facts: dict[str, Any] = {"kind": event.kind, "task": event.task}
        if event.key is not None:
            facts["key"] = event.key
        if event.seconds is not None:
            facts["seconds"] = event.seconds
        if event.diagnostics:
            facts["said"] = f"{event.diagnostics[0].code}: {event.diagnostics[0].message}"
        self._note(facts)

    def _note(self, facts: dict[str, Any]) -> None:
        line = json.dumps({"at": round(time.time(), 3), **facts}) + "\n"
        # Only those who look on read this: the run goes on without.
        with suppress(OSError), _file(self.store, self.record, "events").open("a", encoding="utf-8") as file:
            file.write(line)


def events(store: Store, record: RunRecord) -> list[dict[str, Any]]:
    """Return a run's events of tasks so far, oldest first, without lines that are damaged or being written.

    Each has `at` (epoch seconds) and `kind`: `began` (with `total`), or that of an `Event` with its `task`.
    """
    read = map(_read_event, read_lines(_file(store, record, "events")))
    return [event for event in read if event is not None]


def begun(store: Store, record: RunRecord) -> dict[str, str]:
    """Return the last key of each task that a run has started, by task."""
    starts = (event for event in events(store, record) if event["kind"] == "started")
    return {event["task"]: event.get("key", "") for event in starts}


_EVENT = {"at": float, "kind": str, "total": int, "task": str, "key": str, "seconds": float, "said": str}


def _read_event(line: str) -> dict[str, Any] | None:
    """Return the event on a line; None if it is damaged."""
    try:
        data = json.loads(line)
    except (ValueError, RecursionError):
        return None
    if (
        not isinstance(data, dict)
        or not {"at", "kind", "total" if data.get("kind") == "began" else "task"} <= data.keys()
    ):
        return None
    event = {name: data[name] for name in _EVENT if name in data}
    typed = all(type(value) is _EVENT[name] for name, value in event.items())
    finite = typed and all(abs(event.get(name, 0)) < _LARGEST for name in ("at", "total", "seconds"))
    return event if finite and event.get("key", "0").isalnum() else None


_LARGEST = 1e15


def forget(store: Store, record: RunRecord) -> None:
    """Remove a record, and the spec kept with it."""
    for suffix in ("json", "spec", "tasks", "events", "lock"):
        _file(store, record, suffix).unlink(missing_ok=True)


def leftovers(store: Store) -> Iterator[Path]:
    """Yield files and folders that no process uses and no later attempt continues from. Call when no run is going.

    They are results that were being written, writes that were cut off, progress, the work of finished results,
    claims of runs that are gone, and files of runs without a record. A key that a process still holds, as a worker
    may for a moment after its run was killed, keeps its files.
    """
    root = store.root
    for name in ("tmp", "live", "work"):
        for path in _list(root / name):
            unused = name != "work" or store.get(path.name) is not None
            if unused and not store.busy(path.name.lstrip(".").split(".")[0]):
                yield path
    for folder in (root, root / "runs", root / "errors"):
        yield from (path for path in _list(folder) if path.name.startswith(".") and path.is_file())
    for path in _list(root / "runs"):
        claim = path.suffix == ".lock" and not is_held(path)
        if claim or (
            path.suffix in (".spec", ".tasks", ".events") and not path.with_suffix(".json").exists()
        ):
            yield path


def clear(path: Path) -> None:
    """Remove a file or folder if it still exists."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)


def _list(folder: Path) -> list[Path]:
    return sorted(folder.iterdir()) if folder.is_dir() else []


_SHOWN = 5


def pick(runs: tuple[RunRecord, ...], name: str) -> RunRecord:
    """Return the run of a name: a study, a spec's digest or a run's name by their beginnings, or a report's folder.

    Of several runs of a study, or with one folder, it is the latest. Raises E0954 if there is none, or if several
    runs' names or several specs' digests start so.
    """
    newest = tuple(reversed(runs))
    if not name:
        raise _explain_none("an empty name is not a run", newest)
    laid_out = [record for record in newest if _is_folder_of(record, name)]
    studies = [record for record in newest if record.study == name]
    named = [record for record in newest if record.name.startswith(name)]
    of_spec = [record for record in newest if record.spec.startswith(name)]
    if studies or laid_out:
        return (studies or laid_out)[0]
    exact = next((record for record in named if record.name == name), None)
    if exact is not None:
        return exact
    if len(named) + len({record.spec for record in of_spec}) > 1:
        several = list(dict.fromkeys(record.name for record in (*named, *of_spec)))
        raise problem(
            "E0954",
            f"{len(several)} runs are called `{name}…`",
            notes=(f"they are {listed(several, _SHOWN)}",),
            help=f"write one's whole name, such as the newest's: `{several[0]}`",
        )
    if named or of_spec:
        return (named or of_spec)[0]
    raise _explain_none(f"no run is called `{name}`", newest)


def _is_folder_of(record: RunRecord, name: str) -> bool:
    """Return whether a name is the path of a run's report, or of its folder."""
    return record.report is not None and Path(os.path.abspath(name)) in (
        Path(record.report),
        Path(record.report).parent,
    )


def _explain_none(message: str, newest: tuple[RunRecord, ...]) -> Problem:
    """Return the diagnostic of a name that is not a run's."""
    ran = ", ".join(dict.fromkeys(record.study for record in newest)) or "none yet"
    return problem("E0954", message, help=f"studies that ran: {ran}")


def select(store: Store, record: RunRecord, selector: str | None) -> dict[str, str]:
    """Return the results of a run, as id to key, that a selector names.

    It is a pattern of ids, or of how their names begin (`reo_exp`, `reo_*.train`), or an arm; `+` before it adds
    all that those were made from, `+` after it all that was made from them, in the run's spec. Raises E0954 if none
    fits.
    """
    tasks = record.tasks
    if not selector:
        return tasks
    pattern = selector.strip("+")
    graph = _graph(store, record)
    chosen = {name for name in tasks if any(fnmatchcase(name, form) for form in (pattern, f"{pattern}.*"))}
    # What an arm shares with another one has that one's name.
    chosen = chosen or _select_arm_tasks(graph, pattern).intersection(tasks)
    if not chosen:
        raise problem("E0954", f"no result is called `{pattern}`", help=f"there is {', '.join(tasks)}")
    reads = {task.id: set(task.inputs.values()) for task in graph.tasks}
    up, down = set(chosen), set(chosen)
    if selector.startswith("+"):
        for name in reversed(reads):
            if name in up:
                up |= reads[name]
    if selector.endswith("+"):
        for name, sources in reads.items():
            if sources & down:
                down.add(name)
    return {name: key for name, key in tasks.items() if name in up | down}


def _graph(store: Store, record: RunRecord) -> Graph:
    """Return the tasks of a run's spec, each after its inputs; none if the spec is gone.

    Results alone are not enough: one that was made from another result with the same content names that one's key.
    """
    spec = spec_of(store, record)
    return lower(spec) if spec is not None else Graph(())


def _select_arm_tasks(graph: Graph, arm: str) -> set[str]:
    """Return the tasks that train and evaluate an arm, by the report's roles, which name arms (`evaluate:vanilla@1`)."""
    if "report" not in graph:
        return set()
    return {source for role, source in graph["report"].inputs.items() if parse_role(role).name == arm}
