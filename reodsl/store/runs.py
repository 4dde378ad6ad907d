"""Records of runs: the result of each task, and the choice of runs by name and of results by a selector."""

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
    """Return the part of a run's name that says when the run began, `20260101T120000`; commands accept it for the name."""
    return name.partition(".")[0]


def slug(name: str) -> str:
    """Return a name from a spec as a file name of at most 60 ASCII letters, digits, `_` and `-`.

    Other characters become `_`, which is removed at both ends. If no character is left, the file name is `study`.
    """
    return re.sub(r"[^A-Za-z0-9_-]+", "_", name)[:60].strip("_") or "study"


def begin(store: Store, spec: Spec, spec_digest: str, python: Mapping[str, str] | None = None) -> RunRecord:
    """Write the record of a run that starts now, and hold its lock.

    If no other run is going, files that killed runs left are removed first.

    Args:
        store: The store of the run.
        spec: The compiled spec.
        spec_digest: Digest of the compiled spec, in hexadecimal.
        python: Checksum of each function's code that may run, by its spelling in the spec.

    Raises:
        Problem: E0950 if the record cannot be written.
    """
    now = datetime.now(UTC)
    study_slug = slug(spec.study.name)
    record = RunRecord(
        name=f"{now:%Y%m%dT%H%M%S.%f}-{study_slug}-{spec_digest[:8]}-{os.getpid()}",
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
            if not any(alive(store, other_record) for other_record in records(store)):
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
    """Return whether a run is going: its record has no end, and its process still holds its lock.

    The process may be on another machine that shares the store.
    """
    return record.status == "running" and is_held(_file(store, record, "lock"))


def spec_of(store: Store, record: RunRecord) -> Spec | None:
    """Return the compiled spec that is stored with a run; None if it is missing or cannot be read."""
    try:
        return Spec.model_validate_json(read_plain(_file(store, record, "spec"), LARGEST_RECORD))
    except (OSError, ValueError):
        return None


def require_spec(store: Store, record: RunRecord) -> Spec:
    """Return the compiled spec that is stored with a run.

    Raises:
        Problem: E0967 if it is missing or cannot be read.
    """
    spec = spec_of(store, record)
    if spec is None:
        raise problem(
            "E0967",
            f"the spec of the run `{record.name}` is not in the store",
            where=store.shown,
            help="name the run's folder instead, which has spec.reo.json",
        )
    return spec


def _file(store: Store, record: RunRecord, suffix: str) -> Path:
    """Return the path of a run's file in the store, such as its `json` or its `lock`."""
    return store.root / "runs" / f"{record.name}.{suffix}"


def save(store: Store, record: RunRecord) -> None:
    """Write the record of a run with its present values into the store; E0950 if the disk refuses."""
    with storing(store.root):
        # Keys are not sorted: the order of the tasks is the order in which they ended.
        text = json.dumps(asdict(record), indent=1) + "\n"
        write_atomic(_file(store, record, "json"), text.encode())


def end(store: Store, record: RunRecord, status: Status) -> None:
    """Write the end of a run with its status and the present time into its record, and release its lock."""
    record.status = status
    record.ended = datetime.now(UTC).isoformat(timespec="seconds")
    try:
        save(store, record)
        _file(store, record, "tasks").unlink(missing_ok=True)
    finally:
        let_go(_file(store, record, "lock"))


def records(store: Store) -> tuple[RunRecord, ...]:
    """Return the records of all runs of a store, oldest first; unreadable records are left out.

    The record of a run that has not ended gets the results so far. Paths of reports are mended if the store was moved.
    """
    readable = []
    home = Path(os.path.realpath(store.root))
    for path in sorted((store.root / "runs").glob("*.json")):
        try:
            record = RunRecord(**(read_object(path) or {}))
        except TypeError:
            continue
        if record.status == "running":
            # A line `key task` that was cut off is left out.
            lines = (line.partition(" ") for line in read_lines(path.with_suffix(".tasks")))
            record.tasks.update({task: key for key, _, task in lines if task})
        record.report = _find_report(record, home)
        readable.append(record)
    return tuple(readable)


def _find_report(record: RunRecord, root: Path) -> str | None:
    """Return the present path of a run's report, also if the store was moved or copied since the run.

    Args:
        record: Record of the run, with the path of the report and the store's path at the time of the run.
        root: The store's present path, without links.

    Returns:
        The recorded path if the store has not moved. If it has, a report below the folder that contained the store is
        taken to have moved along. None without a report, and for a report elsewhere: it belongs to the store at the
        former path.
    """
    former_root = Path(record.store)
    if record.report is None or not record.store or former_root == root:
        return record.report
    page = Path(record.report)
    former = former_root.parent
    return str(root.parent / page.relative_to(former)) if page.is_relative_to(former) else None


def find_repeated(runs: tuple[RunRecord, ...]) -> dict[str, str]:
    """Return the names of finished runs that repeat an earlier run, each with the name of the first such run.

    A run repeats another if it has the same study, spec, report and results, so that it had nothing to do.

    Args:
        runs: All records, oldest first.
    """
    first_names: dict[tuple[object, ...], str] = {}
    repeated = {}
    for record in runs:
        if record.status != "finished":
            continue
        outcome = record.study, record.spec, record.report, frozenset(record.tasks.items())
        name = first_names.setdefault(outcome, record.name)
        if name != record.name:
            repeated[record.name] = name
    return repeated


def previous(study: str, task_id: str, runs: tuple[RunRecord, ...]) -> str | None:
    """Return the key of a task's result in the latest run of a study that has it; None if no run has it.

    Args:
        study: Name of the study.
        task_id: Name of the task.
        runs: All records, oldest first.
    """
    for record in reversed(runs):
        if record.study == study and task_id in record.tasks:
            return record.tasks[task_id]
    return None


class Writer:
    """The writer of a run's results and events during the run, each on a line of its file."""

    def __init__(self, store: Store, record: RunRecord) -> None:
        """Prepare to write for a run whose record `begin` has written."""
        self.store, self.record = store, record

    def add(self, task_id: str, key: str) -> None:
        """Append the result of a task to the run's file of tasks, and add it to the record in memory.

        Raises:
            Problem: E0950 if the disk refuses.
        """
        self.record.tasks[task_id] = key
        with storing(self.store.root), _file(self.store, self.record, "tasks").open("ab") as file:
            file.write(f"{key} {task_id}\n".encode())

    def begin(self, total: int, expected: float | None = None) -> None:
        """Write an event that the run began, with its number of tasks, and the seconds that its price expects if known."""
        self._note({"kind": "began", "total": total} | ({} if expected is None else {"seconds": expected}))

    def note(self, event: Event) -> None:
        """Append an event of a task to the run's events.

        Events of the kinds `reused` and `progress` are skipped: the record has reused results, and files in `live/` have
        the progress.
        """
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
        """Append an event with the present time; an error of the disk is ignored, as only observers read events."""
        line = json.dumps({"at": round(time.time(), 3), **facts}) + "\n"
        with suppress(OSError), _file(self.store, self.record, "events").open("a", encoding="utf-8") as file:
            file.write(line)


def events(store: Store, record: RunRecord) -> list[dict[str, Any]]:
    """Return the events of a run so far, oldest first, without lines that are damaged or being written.

    Each event has `at` (seconds since the epoch) and `kind`. The kind is `began` with `total`, the number of tasks, and
    `seconds`, their expected time if known, or the kind of an `Event` with the name of its `task`.
    """
    parsed = map(_read_event, read_lines(_file(store, record, "events")))
    return [event for event in parsed if event is not None]


def begun(store: Store, record: RunRecord) -> dict[str, str]:
    """Return the keys of the results that a run has started to compute, by task; after several starts the last key."""
    starts = (event for event in events(store, record) if event["kind"] == "started")
    return {event["task"]: event.get("key", "") for event in starts}


_EVENT = {"at": float, "kind": str, "total": int, "task": str, "key": str, "seconds": float, "said": str}


def _read_event(line: str) -> dict[str, Any] | None:
    """Return the event on a line of JSON; None if a required field is missing, or a field has a wrong type or value.

    Required are `at`, `kind`, and `total` for the kind `began`, else `task`. Fields that are not in `_EVENT` are dropped.
    """
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
    has_types = all(type(value) is _EVENT[name] for name, value in event.items())
    in_range = has_types and all(abs(event.get(name, 0)) < _LARGEST for name in ("at", "total", "seconds"))
    return event if in_range and event.get("key", "0").isalnum() else None


_LARGEST = 1e15
"""Numbers in events are smaller; larger ones come from a damaged file."""


def forget(store: Store, record: RunRecord) -> None:
    """Remove all files of a run from the store: its record, spec, live tasks, events and lock, but no result."""
    for suffix in ("json", "spec", "tasks", "events", "lock"):
        _file(store, record, suffix).unlink(missing_ok=True)


def leftovers(store: Store) -> Iterator[Path]:
    """Yield files and folders of killed runs that no later run can use; call this only if no run is going.

    They are unfinished results, unfinished writes, progress of tasks, work folders of finished results, locks of runs
    that ended, and files of runs without a record. If a process still holds the lock of a result's key, the files of this
    key are left out: a worker may live for a moment after its run was killed.
    """
    root = store.root
    for name in ("tmp", "live", "work"):
        for path in _list_folder(root / name):
            # An attempt may continue from a work folder until its key has a result.
            is_unused = name != "work" or store.get(path.name) is not None
            if is_unused and not store.busy(path.name.lstrip(".").split(".")[0]):
                yield path
    for folder in (root, root / "runs", root / "errors"):
        yield from (path for path in _list_folder(folder) if path.name.startswith(".") and path.is_file())
    for path in _list_folder(root / "runs"):
        is_stale_lock = path.suffix == ".lock" and not is_held(path)
        if is_stale_lock or (
            path.suffix in (".spec", ".tasks", ".events") and not path.with_suffix(".json").exists()
        ):
            yield path


def clear(path: Path) -> None:
    """Remove a file, a link, or a folder with everything in it, if it still exists."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)


def _list_folder(folder: Path) -> list[Path]:
    """Return the sorted entries of a folder; empty if the folder does not exist."""
    return sorted(folder.iterdir()) if folder.is_dir() else []


_SHOWN = 5
"""Number of runs that an error names."""


def pick(runs: tuple[RunRecord, ...], name: str) -> RunRecord:
    """Return the run that a name means.

    Args:
        runs: All records, oldest first.
        name: Name of a study, or path of a report or of its folder; the latest such run is returned. Otherwise a run's
            name or its start, or the start of a spec's digest.

    Raises:
        Problem: E0954 if no run matches, or the start of a name or digest means several runs or specs.
    """
    newest = tuple(reversed(runs))
    if not name:
        raise _refuse_name("an empty name is not a run", newest)
    path = Path(os.path.abspath(name))
    by_folder = [
        r for r in newest if r.report is not None and path in (Path(r.report), Path(r.report).parent)
    ]
    by_study = [record for record in newest if record.study == name]
    by_name = [record for record in newest if record.name.startswith(name)]
    by_digest = [record for record in newest if record.spec.startswith(name)]
    if by_study or by_folder:
        return (by_study or by_folder)[0]
    exact = next((record for record in by_name if record.name == name), None)
    if exact is not None:
        return exact
    if len(by_name) + len({record.spec for record in by_digest}) > 1:
        names = list(dict.fromkeys(record.name for record in (*by_name, *by_digest)))
        raise problem(
            "E0954",
            f"{len(names)} runs are called `{name}…`",
            notes=(f"they are {listed(names, _SHOWN)}",),
            help=f"write the full name of a run, such as the newest: `{names[0]}`",
        )
    if by_name or by_digest:
        return (by_name or by_digest)[0]
    raise _refuse_name(f"no run is called `{name}`", newest)


def _refuse_name(message: str, newest: tuple[RunRecord, ...]) -> Problem:
    """Return E0954 for a name that no run has, with the studies that ran.

    Args:
        message: Message of the diagnostic.
        newest: All records, the newest first.
    """
    studies = ", ".join(dict.fromkeys(record.study for record in newest)) or "none yet"
    return problem("E0954", message, help=f"studies that ran: {studies}")


def select(store: Store, record: RunRecord, selector: str | None) -> dict[str, str]:
    """Return the results of a run that a selector selects.

    Args:
        store: The store of the run.
        record: Record of the run.
        selector: Name of an arm, or a pattern that fits task names (`report`) or their starts up to a point (`reo_exp`,
            `reo_*.train`). A `+` at its start adds all results that the selected results are made from, directly or
            indirectly. A `+` at its end adds all results that are made from the selected results. None selects all.

    Returns:
        Keys of results by task.

    Raises:
        Problem: E0954 if no result is selected.
    """
    tasks = record.tasks
    if not selector:
        return tasks
    pattern = selector.strip("+")
    # The graph is not read from the manifests of the results: if two results have equal content, the manifest of a task
    # that reads the first may name the second.
    spec = spec_of(store, record)
    graph = lower(spec) if spec is not None else Graph(())
    chosen = {name for name in tasks if any(fnmatchcase(name, form) for form in (pattern, f"{pattern}.*"))}
    # A task that several arms share is named after one of them, so that a pattern misses it for the other arms.
    chosen = chosen or _select_arm_tasks(graph, pattern).intersection(tasks)
    if not chosen:
        raise problem("E0954", f"no result is called `{pattern}`", help=f"choose from {', '.join(tasks)}")
    inputs = {task.id: set(task.inputs.values()) for task in graph.tasks}
    ancestors, descendants = set(chosen), set(chosen)
    if selector.startswith("+"):
        for name in reversed(inputs):
            if name in ancestors:
                ancestors |= inputs[name]
    if selector.endswith("+"):
        for name, sources in inputs.items():
            if sources & descendants:
                descendants.add(name)
    return {name: key for name, key in tasks.items() if name in ancestors | descendants}


def _select_arm_tasks(graph: Graph, arm: str) -> set[str]:
    """Return the names of the tasks that train and evaluate an arm; empty if the graph has no report.

    These are the inputs of the report whose roles name the arm, as `evaluate:vanilla@1` names `vanilla`.
    """
    if "report" not in graph:
        return set()
    return {source for role, source in graph["report"].inputs.items() if parse_role(role).name == arm}
