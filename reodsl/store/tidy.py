"""Leftovers: from a store to what killed processes left in it that nothing goes on from."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

from reodsl.store.locks import is_held
from reodsl.store.store import Store


def leftovers(store: Store) -> Iterator[Path]:
    """Files and folders that no process is at and that no later attempt goes on from. Call when no run is going.

    Results that were being written, writes that were cut off, how far tasks were, the work of results that are there
    by now, claims of runs that are gone, and what runs wrote that never came to a record. A key that a process still
    holds, as a worker may for a moment after its run was killed, keeps what belongs to it.
    """
    root = store.root
    for path in _entries(root / "tmp"):
        if not store.busy(_key(path.name)):
            yield path
    for path in _entries(root / "live"):
        if not store.busy(_key(path.name.lstrip("."))):
            yield path
    for path in _entries(root / "work"):
        if store.get(path.name) is not None and not store.busy(_key(path.name)):
            yield path
    for folder in (root, root / "runs", root / "errors"):
        yield from (path for path in _entries(folder) if path.name.startswith(".") and path.is_file())
    for path in _entries(root / "runs"):
        claim = path.suffix == ".lock" and not is_held(path)
        if claim or (
            path.suffix in (".spec", ".tasks", ".events") and not path.with_suffix(".json").exists()
        ):
            yield path


def clear(path: Path) -> None:
    """Remove a file or folder, as far as it is still there."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)


def _entries(folder: Path) -> list[Path]:
    return sorted(folder.iterdir()) if folder.is_dir() else []


def _key(name: str) -> str:
    """The key that a name begins with."""
    return name.split(".")[0]
