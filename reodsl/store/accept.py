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
    """Why a result stands for a task that would now be done otherwise.

    `result` is the key of the result that was accepted, `because` the person's reason, `changes` in words what would
    have made the task run, `at` when it was accepted.
    """

    result: str
    because: str
    changes: tuple[str, ...]
    at: str


def acceptances(manifest: Manifest) -> tuple[Acceptance, ...]:
    """Every acceptance that a result has behind it, the first one first; none for what was made as it says."""
    return tuple(
        Acceptance(item["result"], item["because"], tuple(item["changes"]), item["at"])
        for item in manifest.provenance.get(ACCEPTED, ())
    )


def telling(task: Task, done: Mapping[str, Manifest]) -> Task:
    """A report's task with the acceptances among the results of its study, so that it shows them; others as they are."""
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
    """Make the content of `old` the result of `key` too, linked where the file system can, with the reason beside it.

    How it came to be is told as it was, and so are acceptances before this one. Call with the key's lock held.
    Raises E0950 or E0951 when it cannot be kept.
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
