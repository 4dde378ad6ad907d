"""What a task reads from outside the store: paths and names in a payload, replaced by what is found there.

A file or folder is its content, so that moving it changes nothing and editing it does; a hub's name is the
revision in the local cache; a package is its installed version.
"""

from __future__ import annotations

import importlib.util
import json
import os
from collections.abc import Mapping
from importlib import metadata
from pathlib import Path
from typing import Any

from reodsl.graph.task import Task
from reodsl.ir import digest
from reodsl.store.files import sha256, write_json


class Fingerprints:
    """Checksums of files outside the store, kept by size and modification time so that weights are read once."""

    def __init__(self, place: Path) -> None:
        """Kept in the file `place`, where its folder exists."""
        self.place = place
        self.changed = False
        try:
            known = json.loads(place.read_bytes())
        except (OSError, ValueError):
            known = {}
        self.known: dict[str, list[Any]] = known if isinstance(known, dict) else {}

    def file(self, path: Path) -> str | None:
        """The SHA-256 of a regular file; None where there is none to read."""
        try:
            if not path.is_file():
                return None
            stat = path.stat()
            name = str(path.resolve())
            seen = [stat.st_size, stat.st_mtime_ns]
            entry = self.known.get(name)
            if isinstance(entry, list) and len(entry) == 3 and entry[:2] == seen:
                return str(entry[2])
            checksum = sha256(path)
        except OSError:
            return None
        self.known[name] = [*seen, checksum]
        self.changed = True
        return checksum

    def folder(self, path: Path) -> str | None:
        """The digest of the names and checksums of the files directly in a folder; None where there is none."""
        try:
            names = sorted(entry.name for entry in path.iterdir() if entry.is_file())
        except OSError:
            return None
        return digest({name: self.file(path / name) for name in names})

    def tree(self, path: Path) -> str:
        """The digest of the names and checksums of all files below a folder, links not followed into others."""
        files = sorted(entry for entry in path.rglob("*") if entry.is_file())
        return digest({entry.relative_to(path).as_posix(): self.file(entry) for entry in files})

    def save(self) -> None:
        """Keep what was read, if the store is there; losing it only costs time."""
        if self.changed and self.place.parent.is_dir():
            try:
                write_json(self.place, self.known)
            except OSError:
                return
            self.changed = False


def resolved(task: Task, payload: Mapping[str, Any], folder: Path, prints: Fingerprints) -> dict[str, Any]:
    """`payload` with every source in it replaced by what it is now. Relative paths start at `folder`."""
    if task.kind == "data":
        data = payload["data"]
        sources = [_source(item, folder, prints, "datasets") for item in data["sources"]]
        return {**payload, "data": {**data, "sources": sources}}
    if task.kind == "model":
        model = payload["model"]
        return {**payload, "model": {**model, "source": _source(model["source"], folder, prints, "models")}}
    return dict(payload)


def _source(source: Mapping[str, Any], folder: Path, prints: Fingerprints, hub_kind: str) -> dict[str, Any]:
    match source["kind"]:
        case "file":
            path = folder / source["path"]
            return {**source, "path": f"sha256:{prints.file(path)}{path.suffix}"}
        case "folder":
            return {**source, "path": f"sha256:{prints.folder(folder / source['path'])}"}
        case "hub":
            found = {**source, "revision": hub_revision(hub_kind, source["repo"], source.get("revision"))}
            copies = local_copies(source["repo"], folder) if hub_kind == "datasets" else []
            if not copies:
                return found
            # The run reads the first that has the split: which it is depends on the files of all.
            trees = [prints.tree(copy) for copy in copies]
            return {**found, "copy": trees[0] if len(trees) == 1 else trees}
        case "package":
            found = {**source, "version": package_version(source["package"])}
            inside = package_file(source["package"], source["file"]) if "file" in source else None
            return found if inside is None else {**found, "content": f"sha256:{prints.file(inside)}"}
    return dict(source)


def local_copies(repo: str, folder: Path) -> list[Path]:
    """A data set's copies beside the spec and in REODSL_DATA, which a run prefers, in this order, to the hub's cache."""
    mirror = os.environ.get("REODSL_DATA")
    places = [folder / "data", *([Path(mirror)] if mirror else [])]
    inside = ".." not in Path(repo).parts and not Path(repo).is_absolute()
    return [place / repo for place in places if (place / repo).is_dir()] if inside else []


def hub_cache() -> Path:
    """Where models and data sets of a hub are kept on this machine."""
    home = Path(os.environ.get("HF_HOME") or Path.home() / ".cache" / "huggingface")
    return Path(os.environ.get("HF_HUB_CACHE") or os.environ.get("HUGGINGFACE_HUB_CACHE") or home / "hub")


def hub_snapshot(hub_kind: str, repo: str, revision: str | None) -> Path | None:
    """The folder of a model (`models`) or data set (`datasets`) in the local cache; None where it is not."""
    place = hub_cache() / f"{hub_kind}--{repo.replace('/', '--')}"
    try:
        commit = (place / "refs" / (revision or "main")).read_text().strip()
    except OSError:
        commit = revision or ""
    snapshot = place / "snapshots" / commit
    inside = commit and snapshot.parent == place / "snapshots" and ".." not in commit
    return snapshot if inside and snapshot.is_dir() else None


def hub_revision(hub_kind: str, repo: str, revision: str | None) -> str | None:
    """The commit that a name stands for in the local cache; the revision as given where it is not there."""
    snapshot = hub_snapshot(hub_kind, repo, revision)
    return snapshot.name if snapshot else revision


def package_file(package: str, name: str) -> Path | None:
    """A file that ships inside an installed package, by its distribution or import name; the package is not imported.

    None where there is none, or the name leads out of the package.
    """
    module = package.replace("-", "_")
    found = importlib.util.find_spec(module) if module.isidentifier() else None
    for folder in map(Path, (found.submodule_search_locations or ()) if found else ()):
        path = folder / name
        if path.is_file() and path.resolve().is_relative_to(folder.resolve()):
            return path
    return None


def package_version(package: str) -> str | None:
    """The version of an installed package by its distribution or import name; None where there is none."""
    for name in (package, package.replace("_", "-")):
        try:
            return metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return None
