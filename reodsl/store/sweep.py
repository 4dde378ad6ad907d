"""Clean-up: from a store and its run records to what no kept run needs, and its removal."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from stat import S_ISREG

from reodsl.store.runs import RunRecord, alive, clear, forget, leftovers, records
from reodsl.store.store import Store, acceptances

_KEY = 64
"""Digits of a key."""


@dataclass(frozen=True, slots=True)
class Garbage:
    """A result, a leftover of a killed process, or the record of an old run that no kept run needs."""

    kind: str
    name: str
    bytes: int
    path: Path


def find_garbage(store: Store, keep: int = 1) -> tuple[Garbage, ...]:
    """Find what none of the last `keep` finished runs of each study needs, nor any run that began since or is going.

    The work of interrupted tasks stays while one of those runs did not finish and may continue it.
    """
    runs = records(store)
    retained = _select_kept(store, runs, keep)
    needed = {key for record in retained for key in record.tasks.values()}
    out = []
    for key in store:
        if key not in needed and not store.busy(key) and not _stands_for(store, key, needed):
            out.append(Garbage("result", key, size(store.path(key)), store.path(key)))
    if not any(alive(store, record) for record in runs):
        for path in dict.fromkeys((*leftovers(store), *_find_abandoned(store, retained))):
            name = path.relative_to(store.root).as_posix()
            out.append(Garbage("leftover", name, size(path), path))
    names = {record.name for record in retained}
    for record in runs:
        if record.name not in names:
            path = store.root / "runs" / f"{record.name}.json"
            out.append(Garbage("record", record.name, size(path), path))
    return tuple(out)


def sweep(store: Store, items: tuple[Garbage, ...]) -> int:
    """Remove the items, and return the freed bytes.

    Items that a run took up meanwhile stay; a new run waits for the end.
    """
    freed = 0
    with store.turn("runs"):
        runs = {record.name: record for record in records(store)}
        going = [record for record in runs.values() if alive(store, record)]
        used = {key for record in going for key in record.tasks.values()}
        for item in items:
            if item.kind == "result":
                removed = item.name not in used and _remove(store, item.name)
            elif item.kind == "record":
                removed = item.name in runs
                if removed:
                    forget(store, runs[item.name])
            else:
                removed = not going
                if removed:
                    clear(item.path)
            freed += item.bytes if removed else 0
    return freed


def _stands_for(store: Store, key: str, needed: set[str]) -> bool:
    """Return whether a person accepted the result for a needed one, for the next run."""
    manifest = store.get(key)
    return manifest is not None and any(item.result in needed for item in acceptances(manifest))


def _remove(store: Store, key: str) -> bool:
    with store.lock(key) as locked:
        if locked:
            store.remove(key)
            (store.root / "locks" / key).unlink(missing_ok=True)
        return locked


def _find_abandoned(store: Store, retained: tuple[RunRecord, ...]) -> Iterator[Path]:
    """Yield old tracebacks, locks, and work that was last written before every unfinished run began."""
    started = [datetime.fromisoformat(record.started) for record in retained if record.status != "finished"]
    oldest = min((start.timestamp() for start in started), default=float("inf"))
    for path in sorted((store.root / "work").iterdir()):
        status = _read_status(path)
        if status is not None and status.st_mtime < oldest and not store.busy(path.name):
            yield path
    yield from sorted((store.root / "errors").iterdir())
    for path in sorted((store.root / "locks").iterdir()):
        key = path.name
        if len(key) == _KEY and not store.path(key).exists() and not store.busy(key):
            yield path


def size(path: Path) -> int:
    """Return the bytes of a file, or of all files below a folder; files that disappear meanwhile count 0."""
    files = [Path(folder, name) for folder, _, names in os.walk(path) for name in names] or [path]
    return sum(
        status.st_size
        for status in map(_read_status, files)
        if status is not None and S_ISREG(status.st_mode)
    )


def _read_status(path: Path) -> os.stat_result | None:
    """Return the status of a path; None if another process has removed it."""
    try:
        return path.stat()
    except FileNotFoundError:
        return None


def _select_kept(store: Store, runs: tuple[RunRecord, ...], keep: int) -> tuple[RunRecord, ...]:
    """Return the last finished runs of each study, all that began since, and every run still going.

    A run that goes on, failed or was stopped has named only its results so far: the rest of what it will take up
    again is named by the finished one before.
    """
    retained: list[RunRecord] = []
    finished: dict[str, int] = {}
    for record in reversed(runs):
        if finished.get(record.study, 0) < keep or alive(store, record):
            retained.append(record)
        finished[record.study] = finished.get(record.study, 0) + (record.status == "finished")
    return tuple(retained)
