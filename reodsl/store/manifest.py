"""Manifests: what a finished result holds, and how its files differ from that now."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from reodsl.ir import digest
from reodsl.store.external import Fingerprints
from reodsl.store.plain import LARGEST_RECORD, hash_plain, read_plain

MANIFEST = "manifest.json"


@dataclass(frozen=True, slots=True)
class Manifest:
    """What a finished result holds: `files` maps paths in it to (bytes, SHA-256), `provenance` says how it was made.

    Provenance is not part of its identity.
    """

    key: str
    files: Mapping[str, tuple[int, str]]
    created: str
    provenance: Mapping[str, Any]

    @property
    def checksums(self) -> dict[str, str]:
        """`{path: sha256}` of the content."""
        return {path: checksum for path, (_, checksum) in self.files.items()}

    @property
    def digest(self) -> str:
        """The digest of the content: equal for results with the same bytes in the same files."""
        return digest(self.checksums)

    @property
    def size(self) -> int:
        """Bytes of all files."""
        return sum(size for size, _ in self.files.values())


def read(folder: Path, key: str) -> Manifest | None:
    """The manifest in the folder of `key`'s result; None where there is none that can be read, or another key's."""
    try:
        data = json.loads(read_plain(folder / MANIFEST, LARGEST_RECORD))
        files = {str(path): (int(item["bytes"]), str(item["sha256"])) for path, item in data["files"].items()}
        if data["key"] != key or not all(map(_is_inside, files)):
            return None
        return Manifest(data["key"], files, data["created"], data["made"])
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return None


def _is_inside(path: str) -> bool:
    """Whether a path leads to something in its folder: a store may be a stranger's."""
    return not os.path.isabs(path) and os.pardir not in Path(path).parts


def described(manifest: Manifest) -> dict[str, Any]:
    """What the file of a manifest holds; `read` is its inverse."""
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
    """The files in `folder` that are not as the manifest has them, and how.

    Every byte is read but those of files whose path starts with one of `unread`: of these only what was changed since it
    was looked at last, as `prints` knows, or since it was stored. Their time of change counts, which no program sets back.
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
                whole = hash_plain(file) == checksum
            elif prints is not None:
                whole = prints.is_whole(file, checksum, stored)
            else:
                whole = now.st_ctime_ns <= stored or hash_plain(file) == checksum
            if not whole:
                wrong.append(f"{path} differs from its checksum")
        except OSError as error:
            wrong.append(f"{path} cannot be read: {error.strerror}")
    return wrong
