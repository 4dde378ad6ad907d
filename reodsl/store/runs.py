"""Records of runs: which result each task of a run had, for later plans to compare with and for clean-up to keep."""

from __future__ import annotations

import json
import os
import re
import time
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

from reodsl.ir import Spec
from reodsl.store.files import storing, write_atomic
from reodsl.store.store import Store

Status = Literal["running", "finished", "failed", "interrupted"]


@dataclass(slots=True)
class Record:
    """One run. `tasks` maps task ids to the keys of their results, as far as they are there."""

    name: str
    study: str
    spec: str
    path: str
    params: dict[str, str]
    changes: list[dict[str, str]]
    started: str
    process: int
    status: Status = "running"
    ended: str | None = None
    report: str | None = None
    tasks: dict[str, str] = field(default_factory=dict)


def slug(name: str) -> str:
    """A name from a spec as one safe part of a path."""
    return re.sub(r"[^A-Za-z0-9_-]+", "_", name)[:60].strip("_") or "study"


def begin(store: Store, spec: Spec, spec_digest: str) -> Record:
    """A record of a run that starts now, written to the store."""
    now = datetime.now(UTC)
    study = slug(spec.study.name)
    record = Record(
        name=f"{now:%Y%m%dT%H%M%S.%f}-{study}-{spec_digest[:8]}-{os.getpid()}",
        study=spec.study.name,
        spec=spec_digest,
        path=spec.path,
        params=dict(spec.params),
        changes=[change.model_dump() for change in spec.changes],
        started=now.isoformat(timespec="seconds"),
        process=os.getpid(),
    )
    save(store, record)
    with storing(store.root):
        write_atomic(_spec_file(store, record), spec.model_dump_json().encode())
    return record


def spec_of(store: Store, record: Record) -> Spec | None:
    """The compiled spec that a run was of; None where it is not kept or cannot be read."""
    try:
        return Spec.model_validate_json(_spec_file(store, record).read_bytes())
    except (OSError, ValueError):
        return None


def _spec_file(store: Store, record: Record) -> Path:
    return store.root / "runs" / f"{record.name}.spec"


def save(store: Store, record: Record) -> None:
    """Write the record as it is now."""
    with storing(store.root):
        # The order of the tasks is the order in which they were done.
        text = json.dumps(asdict(record), indent=1) + "\n"
        write_atomic(store.root / "runs" / f"{record.name}.json", text.encode())


def end(store: Store, record: Record, status: Status) -> None:
    """Close the record."""
    record.status = status
    record.ended = datetime.now(UTC).isoformat(timespec="seconds")
    save(store, record)


def records(store: Store) -> tuple[Record, ...]:
    """Every readable record, oldest first."""
    found = []
    for path in sorted((store.root / "runs").glob("*.json")):
        try:
            data: Any = json.loads(path.read_bytes())
            found.append(Record(**data))
        except (OSError, ValueError, TypeError):
            continue
    return tuple(found)


def previous(study: str, task_id: str, found: tuple[Record, ...]) -> str | None:
    """The key that a task of this name had when this study ran last; None where it never had one."""
    for record in reversed(found):
        if record.study == study and task_id in record.tasks:
            return record.tasks[task_id]
    return None


class Writer:
    """Keeps a record up to date without writing it more than a few times a second."""

    def __init__(self, store: Store, record: Record, every: float = 0.5) -> None:
        """`every`: seconds between writes at least."""
        self.store, self.record, self.every = store, record, every
        self.last = time.monotonic()

    def add(self, task_id: str, key: str) -> None:
        """Note the result of a task."""
        self.record.tasks[task_id] = key
        if time.monotonic() - self.last >= self.every:
            save(self.store, self.record)
            self.last = time.monotonic()


def forget(store: Store, record: Record) -> None:
    """Remove a record, and the spec kept with it."""
    (store.root / "runs" / f"{record.name}.json").unlink(missing_ok=True)
    _spec_file(store, record).unlink(missing_ok=True)
