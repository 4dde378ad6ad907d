"""Keys of results, from a task and the finished results that it reads."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from reodsl.graph.identity import identity, material, part_digest, reads
from reodsl.graph.task import Task
from reodsl.ir import digest
from reodsl.store.external import MOST_READ, Fingerprints, is_unread, resolve_sources
from reodsl.store.manifest import Manifest
from reodsl.store.store import Store


class Keys:
    """Keys for the tasks of one spec, whose relative paths start at `folder`."""

    def __init__(self, store: Store, folder: Path, most: int | None = MOST_READ) -> None:
        """Read the checksums of files that the store keeps; of unknown files read at most `most` bytes (None: all)."""
        self.store, self.folder = store, folder
        self.prints = Fingerprints(store.root / "fingerprints.json", most)

    def for_run(self) -> Keys:
        """Return the same keys without a limit on reading sources: a run was requested."""
        return Keys(self.store, self.folder, None)

    def payload(self, task: Task) -> dict[str, Any]:
        """Return the part of the task's payload that its result depends on, with present content in place of paths."""
        return resolve_sources(task, identity(task), self.folder, self.prints)

    def unread(self, task: Task) -> bool:
        """Return whether the task has sources too large to be read before a run, so that its key is unknown."""
        reads = task.kind in ("data", "model") or "base" in task.payload
        return reads and is_unread(self.payload(task))

    def key(self, task: Task, inputs: Mapping[str, Manifest]) -> tuple[str, dict[str, Any]]:
        """Return the key of the task's result and the material it is the digest of. `inputs` is by role."""
        key_material = material(task, self.payload(task), contents(task, inputs))
        return digest(key_material), key_material


def contents(task: Task, inputs: Mapping[str, Manifest]) -> dict[str, str]:
    """Map each role to the digest of the files read."""
    return {
        role: part_digest(manifest.checksums, reads(task.kind, role)) for role, manifest in inputs.items()
    }
