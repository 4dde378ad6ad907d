"""Note the versions of what generates outside the task's process, and how weights reach it, until the task is done."""

from __future__ import annotations

import json
from pathlib import Path

from reodsl.store.files import write_atomic

PLACE = "engine"
"""The folder of a task's work folder in which an engine writes while it runs."""

DETERMINISM = "determinism"
"""An entry beside the packages: how exactly they drew, `exact` or `seeded`, of every attempt."""
WEIGHTS = "weights"
"""An entry for servers that got new weights by another way than the fastest: by which."""
INEXACT = "inexact"
"""An entry for what keeps a server's responses from being exactly the model's, in a word each."""
LOST = "servers lost"
"""An entry for servers that died or fell silent while they were needed: 1, 2, … for each."""
_FILE = "versions.json"


def record(aside: Path, package: str, version: str) -> None:
    """Note that `package` in this version worked for the task; nothing for an unknown version."""
    versions = read_record(aside)
    if version and version not in versions.get(package, []):
        versions.setdefault(package, []).append(version)
        aside.mkdir(parents=True, exist_ok=True)
        write_atomic(aside / _FILE, json.dumps(versions).encode())


def note_lost(aside: Path) -> None:
    """Note that a server was lost."""
    record(aside, LOST, str(count_lost(aside) + 1))


def count_lost(aside: Path) -> int:
    """Return how many servers were noted as lost there, in every attempt at the task."""
    return len(read_record(aside).get(LOST, ()))


def read_record(aside: Path) -> dict[str, list[str]]:
    """Return all that was noted there, in its order, by package: of every attempt at the task."""
    try:
        return dict(json.loads((aside / _FILE).read_bytes()))
    except (OSError, ValueError):
        return {}
