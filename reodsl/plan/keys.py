"""Keys of results, from a task and the finished results that it reads."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from reodsl.graph.identity import identity, material, part_digest, reads
from reodsl.graph.task import Task
from reodsl.ir import digest
from reodsl.store.external import MOST_READ, Fingerprints, is_unread, resolved
from reodsl.store.manifest import Manifest
from reodsl.store.store import Store


class Keys:
    """Keys for the tasks of one spec, whose relative paths start at `folder`."""

    def __init__(self, store: Store, folder: Path, most: int | None = MOST_READ) -> None:
        """Checksums of files outside the store are kept inside it; of those not known `most` bytes are read (None: all)."""
        self.store, self.folder = store, folder
        self.prints = Fingerprints(store.root / "fingerprints.json", most)

    def for_run(self) -> Keys:
        """The same that read their sources whole, however large: a run has been asked for."""
        return Keys(self.store, self.folder, None)

    def payload(self, task: Task) -> dict[str, Any]:
        """What of the task's payload its result depends on, with paths replaced by what is there now."""
        return resolved(task, identity(task), self.folder, self.prints)

    def unread(self, task: Task) -> bool:
        """Whether the task has sources that are too large to be read before a run, so that its key is not known."""
        return task.kind in ("data", "model") and is_unread(self.payload(task))

    def key(self, task: Task, inputs: Mapping[str, Manifest]) -> tuple[str, dict[str, Any]]:
        """The key of the task's result and the material it is the digest of. `inputs` is by role."""
        key_material = material(task, self.payload(task), contents(task, inputs))
        return digest(key_material), key_material


def contents(task: Task, inputs: Mapping[str, Manifest]) -> dict[str, str]:
    """By role, the digest of what the task reads of each input."""
    return {
        role: part_digest(manifest.checksums, reads(task.kind, role)) for role, manifest in inputs.items()
    }
