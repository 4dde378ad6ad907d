"""Manifests: the files and origin of a result, damaged files, and the present names of the arms in a result."""

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
    """The content and origin of a finished result."""

    key: str
    """Key of the result."""
    files: Mapping[str, tuple[int, str]]
    """(size in bytes, SHA-256 in hexadecimal) of each file, by its path in the result."""
    created: str
    """Time of storing, in ISO format."""
    provenance: Mapping[str, Any]
    """Origin, such as the task's name and its seconds; not part of the identity of the result."""

    @property
    def checksums(self) -> dict[str, str]:
        """Return the SHA-256 of each file in hexadecimal, by its path in the result."""
        return {path: checksum for path, (_, checksum) in self.files.items()}

    @property
    def digest(self) -> str:
        """Return the digest of the content, which is equal for results with the same bytes in the same files."""
        return digest(self.checksums)

    @property
    def size(self) -> int:
        """Return the size of all files together, in bytes."""
        return sum(size for size, _ in self.files.values())


def read(folder: Path, key: str) -> Manifest | None:
    """Read the manifest of the result `key` in its folder; None if it cannot be read, or has another key."""
    try:
        data = read_object(folder / MANIFEST) or {}
        files = {str(path): (int(item["bytes"]), str(item["sha256"])) for path, item in data["files"].items()}
        # In a stranger's store a path may lead out of the result's folder.
        if data["key"] != key or any(os.path.isabs(path) or os.pardir in Path(path).parts for path in files):
            return None
        return Manifest(data["key"], files, data["created"], data["made"])
    except (ValueError, KeyError, TypeError, AttributeError):
        return None


def manifest_json(manifest: Manifest) -> dict[str, Any]:
    """Return a manifest as the JSON data that `read` reads."""
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
    """Return a sentence for each file of a result that differs from the manifest.

    Args:
        manifest: Manifest of the result.
        folder: Folder of the result.
        unread: Starts of paths of files that are read only if they changed since the last check, according to their
            ctime, which no program can set back. All other files are read completely.
        prints: Checksums of the last check; None to compare the time of change with the time of storing.
    """
    differing = []
    # The folder was renamed to its place after its files were written.
    stored = folder.stat().st_ctime_ns
    for path, (size, checksum) in manifest.files.items():
        file = folder / path
        try:
            status = file.stat()
            if status.st_size != size:
                differing.append(f"{path} has {status.st_size} bytes instead of {size}")
                continue
            if not path.startswith(unread):
                intact = hash_plain(file) == checksum
            elif prints is not None:
                intact = prints.is_whole(file, checksum, stored)
            else:
                intact = status.st_ctime_ns <= stored or hash_plain(file) == checksum
            if not intact:
                differing.append(f"{path} differs from its checksum")
        except OSError as error:
            differing.append(f"{path} cannot be read: {error.strerror}")
    return differing


def labels(kind: Kind, result: Path, arms: Mapping[str, Path]) -> dict[str, str]:
    """Return the present names of the arms in a stored result, by their names at the time of the result.

    Renaming an arm changes no key, so a stored result stays valid and contains the former name. Arms are recognised by
    the content of their evaluations. A former name that belongs to no present arm stays.

    Args:
        kind: Kind of the task that made the result.
        result: Folder of the result.
        arms: Folder of each arm's evaluation, by the arm's present name.

    Returns:
        Present names by former names; empty for results without manifests, outside of a store.
    """
    contents = (read_object(result / MANIFEST) or {}).get("made", {}).get("contents", {})
    former = {role.partition(":")[2]: contents[role] for role in contents if role.partition(":")[0] == ARMS}
    counted_files = reads(kind, ARMS)
    current = {}
    for name, folder in arms.items():
        files = (read_object(folder / MANIFEST) or {}).get("files", {})
        current[name] = part_digest({path: item["sha256"] for path, item in files.items()}, counted_files)
    # If arms have equal content, an arm that still exists keeps its name, so that no two arms get the same name.
    renamed = {name: name for name, content in former.items() if current.get(name) == content}
    free = {name: content for name, content in current.items() if name not in renamed}
    for name, content in former.items():
        present = (
            next((name for name in free if free[name] == content), None) if name not in renamed else None
        )
        if present is not None:
            renamed[name] = present
            del free[present]
    return {name: renamed.get(name, name) for name in former}


def arm_labels(
    kind: Kind, result: Path, evaluations: Mapping[tuple[str, int | None], Path]
) -> dict[str, str]:
    """Return the present names of the arms in a result of evaluations that may have several seeds, as `labels` does.

    Args:
        kind: Kind of the task that made the result.
        result: Folder of the result.
        evaluations: Folder of each evaluation by (name of the arm, seed); the seed is None if the study has a single
            seed.

    Returns:
        Present names of arms by former names.
    """
    folders = {
        name if seed is None else f"{name}@{seed}": folder for (name, seed), folder in evaluations.items()
    }
    renamed = labels(kind, result, folders)
    return {former.partition("@")[0]: present.partition("@")[0] for former, present in renamed.items()}


PLACE = "engine"
"""Folder in a task's work folder in which an engine writes while it runs."""

DETERMINISM = "determinism"
"""Entry beside the packages: whether sampling in each attempt was `exact` or only `seeded`."""
INEXACT = "inexact"
"""Entry beside the packages: words for reasons why a server's responses are not exactly the model's."""
_FILE = "versions.json"


def record(folder: Path, package: str, version: str) -> None:
    """Add a version of a package to the record of a task, if the version is not empty and not recorded yet.

    Args:
        folder: Folder of the record, in the task's work folder.
        package: Name of a package, or another entry such as `DETERMINISM`.
        version: Its version, or the value of the entry.
    """
    versions = read_record(folder)
    if version and version not in versions.get(package, []):
        versions.setdefault(package, []).append(version)
        folder.mkdir(parents=True, exist_ok=True)
        write_atomic(folder / _FILE, json.dumps(versions).encode())


def read_record(folder: Path) -> dict[str, list[str]]:
    """Return the versions that the attempts at a task recorded with `record`, by package; empty without a record."""
    try:
        return dict(json.loads((folder / _FILE).read_bytes()))
    except (OSError, ValueError):
        return {}
