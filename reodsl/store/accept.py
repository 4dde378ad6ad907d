"""Accept a finished result, with a person's reason, under the key that it would have now."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from typing import Any

from reodsl.graph.task import Task
from reodsl.store.manifest import Manifest
from reodsl.store.store import Store

ACCEPTED = "accepted"


@dataclass(frozen=True, slots=True)
class Acceptance:
    """A person's decision that a result stays valid for a task that would now run otherwise.

    `result` is the key of the result that was accepted, `because` the person's reason, `changes` in words what would
    have made the task run, `at` when it was accepted.
    """

    result: str
    because: str
    changes: tuple[str, ...]
    at: str


def acceptances(manifest: Manifest) -> tuple[Acceptance, ...]:
    """Return every acceptance behind a result, the first one first; none for one that was computed as it is recorded."""
    return tuple(
        Acceptance(item["result"], item["because"], tuple(item["changes"]), item["at"])
        for item in manifest.provenance.get(ACCEPTED, ())
    )


def add_acceptances(task: Task, done: Mapping[str, Manifest]) -> Task:
    """Return a report's task with the acceptances among the results of its study, which it shows; others unchanged."""
    if task.kind != "report":
        return task
    accepted = [
        {"task": name, **asdict(item)}
        for name, manifest in sorted(done.items())
        for item in acceptances(manifest)
    ]
    return replace(task, payload=task.payload | {"accepted": accepted}) if accepted else task


def adopt(
    store: Store,
    old: Manifest,
    key: str,
    task_id: str,
    material: Mapping[str, Any],
    because: str,
    changes: tuple[str, ...],
) -> Manifest:
    """Make the content of `old` the result of `key` too, linked if the file system can, with the reason beside it.

    Its provenance is kept, and so are acceptances before this one. Call with the key's lock held. Raises E0950 or
    E0951 if it cannot be stored.
    """
    now = datetime.now(UTC).isoformat(timespec="seconds")
    chain = (*acceptances(old), Acceptance(old.key, because, changes, now))
    out = store.begin(key)
    try:
        for name in old.files:
            source, target = store.path(old.key) / name, out / name
            target.parent.mkdir(parents=True, exist_ok=True)
            try:
                os.link(source, target)
            except OSError:
                shutil.copyfile(source, target)
        record = {**old.provenance, "task": task_id, ACCEPTED: [asdict(item) for item in chain]}
        return store.commit(key, out, material, record)
    finally:
        store.abandon(out)
