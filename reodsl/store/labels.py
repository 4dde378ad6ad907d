"""Labels: from a result made of several arms to what those are called now, told by their content."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from reodsl.graph.identity import ARMS, part_digest, reads
from reodsl.graph.task import Kind
from reodsl.store.manifest import MANIFEST
from reodsl.store.plain import LARGEST_RECORD, read_plain


def labels(kind: Kind, result: Path, arms: Mapping[str, Path]) -> dict[str, str]:
    """`{name in the result: name now}` for a result of `kind`, and the evaluations of the arms by their names now.

    A result stays when an arm is renamed, and holds the name of then. Nothing is told of names outside of a
    store, where nothing tells their content.
    """
    contents = _manifest(result).get("made", {}).get("contents", {})
    then = {role.partition(":")[2]: contents[role] for role in contents if role.partition(":")[0] == ARMS}
    parts = reads(kind, ARMS)
    now = {}
    for name, folder in arms.items():
        files = _manifest(folder).get("files", {})
        now[name] = part_digest({path: item["sha256"] for path, item in files.items()}, parts)
    # Arms with the same content keep their names as far as they have them, so that two are not taken for one.
    renamed = {name: name for name, content in then.items() if now.get(name) == content}
    free = {name: content for name, content in now.items() if name not in renamed}
    for name, content in then.items():
        new = next((each for each in free if free[each] == content), None) if name not in renamed else None
        if new is not None:
            renamed[name] = new
            del free[new]
    return {name: renamed.get(name, name) for name in then}


def arm_labels(
    kind: Kind, result: Path, evaluations: Mapping[tuple[str, int | None], Path]
) -> dict[str, str]:
    """`labels` of arms where a result is made of evaluations of several seeds, here by arm and seed."""
    folders = {
        name if seed is None else f"{name}@{seed}": folder for (name, seed), folder in evaluations.items()
    }
    renamed = labels(kind, result, folders)
    return {old.partition("@")[0]: new.partition("@")[0] for old, new in renamed.items()}


def _manifest(folder: Path) -> dict[str, Any]:
    try:
        manifest = json.loads(read_plain(folder / MANIFEST, LARGEST_RECORD))
    except (OSError, ValueError, RecursionError):
        return {}
    return manifest if isinstance(manifest, dict) else {}
