"""Clean-up of a store: find results and files that no kept run needs, and remove them."""

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
    """`result`, `leftover` or `record`."""
    name: str
    """Key of the result, path of the leftover in the store, or name of the run."""
    bytes: int
    """Size on the disk."""
    path: Path
    """Its file or folder."""


def find_garbage(store: Store, keep: int = 1) -> tuple[Garbage, ...]:
    """Return results, leftovers of killed processes, and records of runs that no kept run needs; remove nothing.

    Kept runs are the last finished runs of each study, all later runs, and runs that are going. Work folders of
    interrupted tasks are kept if a kept run that did not finish may continue them. While any run is going, no leftovers
    are returned.

    Args:
        store: The store.
        keep: Number of finished runs of each study to keep.
    """
    runs = records(store)
    retained = _select_kept(store, runs, keep)
    needed = {key for record in retained for key in record.tasks.values()}
    garbage = [
        Garbage("result", key, size(store.path(key)), store.path(key))
        for key in store
        if key not in needed and not store.busy(key) and not _is_accepted_for(store, key, needed)
    ]
    if not any(alive(store, record) for record in runs):
        for path in dict.fromkeys((*leftovers(store), *_find_abandoned(store, retained))):
            name = path.relative_to(store.root).as_posix()
            garbage.append(Garbage("leftover", name, size(path), path))
    names = {record.name for record in retained}
    for record in runs:
        if record.name not in names:
            path = store.root / "runs" / f"{record.name}.json"
            garbage.append(Garbage("record", record.name, size(path), path))
    return tuple(garbage)


def sweep(store: Store, items: tuple[Garbage, ...]) -> int:
    """Remove garbage from a store, and return the freed bytes.

    If a run has started since `find_garbage`, its results and all leftovers stay. A run that starts now waits until the
    removal ends.

    Args:
        store: The store.
        items: Garbage from `find_garbage`.
    """
    freed = 0
    with store.turn("runs"):
        runs = {record.name: record for record in records(store)}
        active = [record for record in runs.values() if alive(store, record)]
        used = {key for record in active for key in record.tasks.values()}
        for item in items:
            if item.kind == "result":
                is_removed = item.name not in used and _remove_result(store, item.name)
            elif item.kind == "record":
                is_removed = item.name in runs
                if is_removed:
                    forget(store, runs[item.name])
            else:
                is_removed = not active
                if is_removed:
                    clear(item.path)
            freed += item.bytes if is_removed else 0
    return freed


def _is_accepted_for(store: Store, key: str, needed: set[str]) -> bool:
    """Return whether a needed result was accepted as the result of `key`, so that the next run uses the result of `key`.

    By an acceptance, a person decides that an old result stays valid for a task that would otherwise run again.

    Args:
        store: The store.
        key: Key of the result that may be garbage.
        needed: Keys of the results that kept runs need.
    """
    manifest = store.get(key)
    return manifest is not None and any(item.result in needed for item in acceptances(manifest))


def _remove_result(store: Store, key: str) -> bool:
    """Remove a result and its lock file, and return whether it was removed; it stays if a process holds its lock."""
    with store.lock(key) as locked:
        if locked:
            store.remove(key)
            (store.root / "locks" / key).unlink(missing_ok=True)
        return locked


def _find_abandoned(store: Store, retained: tuple[RunRecord, ...]) -> Iterator[Path]:
    """Yield files that no kept run needs: abandoned work folders, all tracebacks, and lock files without a result.

    A work folder is abandoned if it was last written before the first kept run without the status `finished` began; if
    there is no such run, every work folder is. Keys whose lock a process holds are left out.

    Args:
        store: The store.
        retained: The kept runs.
    """
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
    """Return the size in bytes of a file, or of all files below a folder together.

    A file that another process removes meanwhile counts 0.
    """
    files = [Path(folder, name) for folder, _, names in os.walk(path) for name in names] or [path]
    return sum(
        status.st_size
        for status in map(_read_status, files)
        if status is not None and S_ISREG(status.st_mode)
    )


def _read_status(path: Path) -> os.stat_result | None:
    """Return the status of a path, such as its size and times; None if another process has removed it."""
    try:
        return path.stat()
    except FileNotFoundError:
        return None


def _select_kept(store: Store, runs: tuple[RunRecord, ...], keep: int) -> tuple[RunRecord, ...]:
    """Return the runs whose results are kept: the last finished runs of each study, later runs, and runs that are going.

    Unfinished runs do not count for `keep`, as they have recorded only some of their results: the finished run before may
    have recorded further results that an unfinished run will reuse.

    Args:
        store: The store.
        runs: Records of all runs, oldest first.
        keep: Number of finished runs of each study to keep.
    """
    retained: list[RunRecord] = []
    finished: dict[str, int] = {}
    for record in reversed(runs):
        if finished.get(record.study, 0) < keep or alive(store, record):
            retained.append(record)
        finished[record.study] = finished.get(record.study, 0) + (record.status == "finished")
    return tuple(retained)
