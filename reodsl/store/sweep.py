"""Clean-up: from a store and its run records to what no kept run needs, and its removal."""

from __future__ import annotations

import os
import shutil
from dataclasses import dataclass
from pathlib import Path

from reodsl.store.runs import Record, forget, records
from reodsl.store.store import Store


@dataclass(frozen=True, slots=True)
class Refuse:
    """Something that can go: a result, a partial result, a leftover of a killed process, or an old run's record."""

    kind: str
    name: str
    bytes: int
    path: Path


def refuse(store: Store, keep: int = 1) -> tuple[Refuse, ...]:
    """What none of the last `keep` runs of each study needs. Runs that are still going count as needed."""
    found = records(store)
    kept = _kept(found, keep)
    needed = {key for record in kept for key in record.tasks.values()}
    out = []
    for key in store:
        if key not in needed and not _busy(store, key):
            out.append(Refuse("result", key, size(store.path(key)), store.path(key)))
    going = any(alive(record) for record in found)
    if not going:
        for folder in ("work", "tmp", "live", "errors"):
            for path in sorted((store.root / folder).iterdir()):
                out.append(Refuse("leftover", f"{folder}/{path.name}", size(path), path))
    names = {record.name for record in kept}
    for record in found:
        if record.name not in names:
            path = store.root / "runs" / f"{record.name}.json"
            out.append(Refuse("record", record.name, size(path), path))
    return tuple(out)


def sweep(store: Store, items: tuple[Refuse, ...]) -> int:
    """Remove them; the bytes that came free. What another process took up meanwhile stays."""
    freed = 0
    gone = {record.name: record for record in records(store)}
    for item in items:
        if item.kind == "result":
            with store.lock(item.name) as held:
                if not held:
                    continue
                store.remove(item.name)
                (store.root / "locks" / item.name).unlink(missing_ok=True)
        elif item.kind == "record":
            forget(store, gone[item.name])
        elif item.path.is_dir():
            shutil.rmtree(item.path, ignore_errors=True)
        else:
            item.path.unlink(missing_ok=True)
        freed += item.bytes
    return freed


def size(path: Path) -> int:
    """Bytes of a file, or of all files below a folder; 0 where it is gone."""
    if path.is_dir():
        return sum(entry.stat().st_size for entry in path.rglob("*") if entry.is_file())
    return path.stat().st_size if path.exists() else 0


def alive(record: Record) -> bool:
    """Whether the process of a run that never ended may still be there."""
    if record.status != "running":
        return False
    try:
        os.kill(record.process, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def _kept(found: tuple[Record, ...], keep: int) -> tuple[Record, ...]:
    """The last runs of each study, those that failed or were stopped included, and every run still going."""
    kept: list[Record] = []
    counts: dict[str, int] = {}
    for record in reversed(found):
        counts[record.study] = counts.get(record.study, 0) + 1
        if counts[record.study] <= keep or alive(record):
            kept.append(record)
    return tuple(kept)


def _busy(store: Store, key: str) -> bool:
    with store.lock(key) as held:
        return not held
