"""Manifests: files and origin of a result, how its files differ from that now, and the names of its arms now."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from reodsl.graph.task import ARMS, Kind, part_digest, reads
from reodsl.ir import digest
from reodsl.store.external import Fingerprints
from reodsl.store.files import hash_plain, read_object, write_atomic

MANIFEST = "manifest.json"


@dataclass(frozen=True, slots=True)
class Manifest:
    """Content of a finished result: `files` maps paths in it to (bytes, SHA-256), `provenance` records its origin.

    Provenance is not part of its identity.
    """

    key: str
    files: Mapping[str, tuple[int, str]]
    created: str
    provenance: Mapping[str, Any]

    @property
    def checksums(self) -> dict[str, str]:
        """Return `{path: sha256}` of the content."""
        return {path: checksum for path, (_, checksum) in self.files.items()}

    @property
    def digest(self) -> str:
        """Return the digest of the content: equal for results with the same bytes in the same files."""
        return digest(self.checksums)

    @property
    def size(self) -> int:
        """Return the bytes of all files."""
        return sum(size for size, _ in self.files.values())


def read(folder: Path, key: str) -> Manifest | None:
    """Read the manifest in the folder of `key`'s result; None if it cannot be read, or has another key."""
    try:
        data = read_object(folder / MANIFEST) or {}
        files = {str(path): (int(item["bytes"]), str(item["sha256"])) for path, item in data["files"].items()}
        if data["key"] != key or not all(map(_is_inside, files)):
            return None
        return Manifest(data["key"], files, data["created"], data["made"])
    except (ValueError, KeyError, TypeError, AttributeError):
        return None


def _is_inside(path: str) -> bool:
    """Return whether a path leads to something in its folder: a store may be a stranger's."""
    return not os.path.isabs(path) and os.pardir not in Path(path).parts


def manifest_json(manifest: Manifest) -> dict[str, Any]:
    """Return the JSON data of a manifest, which `read` reads."""
    return {
        "key": manifest.key,
        "digest": manifest.digest,
        "files": {path: {"bytes": size, "sha256": sum_} for path, (size, sum_) in manifest.files.items()},
        "created": manifest.created,
        "made": manifest.provenance,
    }


def differences(
    manifest: Manifest, folder: Path, unread: tuple[str, ...] = (), prints: Fingerprints | None = None
) -> list[str]:
    """Describe the files in `folder` that differ from the manifest.

    Every byte is read except those of files whose path starts with one of `unread`: of these only what changed
    since the last look, by `prints`, or since it was stored. Their time of change counts, which no program sets
    back.
    """
    wrong = []
    # The folder got its place after everything in it was written.
    stored = folder.stat().st_ctime_ns
    for path, (size, checksum) in manifest.files.items():
        file = folder / path
        try:
            now = file.stat()
            if now.st_size != size:
                wrong.append(f"{path} has {now.st_size} bytes instead of {size}")
                continue
            if not path.startswith(unread):
                intact = hash_plain(file) == checksum
            elif prints is not None:
                intact = prints.is_whole(file, checksum, stored)
            else:
                intact = now.st_ctime_ns <= stored or hash_plain(file) == checksum
            if not intact:
                wrong.append(f"{path} differs from its checksum")
        except OSError as error:
            wrong.append(f"{path} cannot be read: {error.strerror}")
    return wrong


def labels(kind: Kind, result: Path, arms: Mapping[str, Path]) -> dict[str, str]:
    """Return `{name in the result: name now}` for a result of `kind`, by the arms' evaluations under their names now.

    A result stays when an arm is renamed, and holds the name of then. Outside of a store nothing identifies the
    content, and no name is returned.
    """
    contents = (read_object(result / MANIFEST) or {}).get("made", {}).get("contents", {})
    old = {role.partition(":")[2]: contents[role] for role in contents if role.partition(":")[0] == ARMS}
    parts = reads(kind, ARMS)
    now = {}
    for name, folder in arms.items():
        files = (read_object(folder / MANIFEST) or {}).get("files", {})
        now[name] = part_digest({path: item["sha256"] for path, item in files.items()}, parts)
    # Arms with the same content keep their names as far as they have them, so that two are not taken for one.
    renamed = {name: name for name, content in old.items() if now.get(name) == content}
    free = {name: content for name, content in now.items() if name not in renamed}
    for name, content in old.items():
        new = next((name for name in free if free[name] == content), None) if name not in renamed else None
        if new is not None:
            renamed[name] = new
            del free[new]
    return {name: renamed.get(name, name) for name in old}


def arm_labels(
    kind: Kind, result: Path, evaluations: Mapping[tuple[str, int | None], Path]
) -> dict[str, str]:
    """Return `labels` of arms for a result that is made of evaluations of several seeds, by arm and seed."""
    folders = {
        name if seed is None else f"{name}@{seed}": folder for (name, seed), folder in evaluations.items()
    }
    renamed = labels(kind, result, folders)
    return {old.partition("@")[0]: new.partition("@")[0] for old, new in renamed.items()}


PLACE = "engine"
"""The folder of a task's work folder in which an engine writes while it runs."""

DETERMINISM = "determinism"
"""An entry beside the packages: how exactly they drew, `exact` or `seeded`, of every attempt."""
INEXACT = "inexact"
"""An entry for what keeps a server's responses from being exactly the model's, in a word each."""
_FILE = "versions.json"


def record(folder: Path, package: str, version: str) -> None:
    """Note that `package` in this version worked for the task; nothing for an unknown version."""
    versions = read_record(folder)
    if version and version not in versions.get(package, []):
        versions.setdefault(package, []).append(version)
        folder.mkdir(parents=True, exist_ok=True)
        write_atomic(folder / _FILE, json.dumps(versions).encode())


def read_record(folder: Path) -> dict[str, list[str]]:
    """Return the versions of packages that any attempt at the task recorded, in order."""
    try:
        return dict(json.loads((folder / _FILE).read_bytes()))
    except (OSError, ValueError):
        return {}
