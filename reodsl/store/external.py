"""Replace the paths and names of sources in a task's payload by their present content.

A file or folder becomes its checksum, so that moving it changes no key and editing it does. A hub's repository becomes the
commit in the local cache, and a package its installed version.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Callable, Iterable, Iterator, Mapping
from fnmatch import fnmatchcase
from importlib import metadata
from itertools import islice
from pathlib import Path
from typing import Any

from reodsl.diagnostics import Diagnostic, error, problem, refuse
from reodsl.graph.task import Task
from reodsl.ir import digest
from reodsl.ir.model import ServedModel
from reodsl.ir.names import DATA_FILES, PART, REPO, REVISION
from reodsl.store.consent import content_of, is_code
from reodsl.store.files import (
    hash_plain,
    is_system,
    is_within,
    read_object,
    read_plain,
    stat_plain,
    write_json,
)

MODEL_TEXTS = ("*.json", "*.jinja", "merges.txt", "vocab.txt", "tokenizer.model")
"""The files of a model folder beside its weights. Python files, pickles and anything else are not read."""
MODEL_FILES = ("*.safetensors", *MODEL_TEXTS)
TEMPLATES = "additional_chat_templates"
"""Folder in a model's folder in which transformers looks for more chat templates."""
MOST_READ = 2 << 30
"""Bytes of unknown files that a command other than `run` hashes at most, which takes seconds."""
MOST_ENTRIES = 10_000
"""Largest number of entries in a model's folder, and in a copy of a data set with all its subfolders."""
_DEEPEST = 4
"""Depth of files in a copy of a data set: `data/NAME/SPLIT/FILE`."""
LARGEST_CONFIG = 1 << 20
"""Largest size of a model's `config.json` in bytes."""
UNFINISHED = "reodsl-unfinished"
"""File beside a repository in the hub's cache with a commit whose download is not complete."""
_LARGEST_CACHE = 1 << 26
"""Largest size of the file of checksums in bytes."""
_LARGEST_REF = 1 << 10
"""Largest size of a file with a commit in bytes."""
_INCIDENTAL = {"served": ServedModel.incidental}
"""Settings that do not change results, by the kind of the object that has them."""
_NO_ADDRESS = "https://served"
"""Address of every served model in keys."""
_RUN_CODE = ("data", "train", "sample", "evaluate")
"""Kinds of tasks whose payload may name Python of the user or served models."""


class Fingerprints:
    """The known checksums of files outside the store, each valid while the file's size, times and inode stay the same.

    The times include the ctime: unlike the time of the content, no program can set it back.
    """

    def __init__(self, path: Path, most: int | None = None) -> None:
        """Read known checksums from a file, if it exists.

        Args:
            path: The file, `fingerprints.json` of a store.
            most: Number of bytes of unknown files that `file` may read; further files are skipped, and counted in
                `skipped`. None for no limit.
        """
        self.place = path
        self.left = most
        self.skipped = 0
        self.changed = False
        self.known: dict[str, list[Any]] = read_object(path, _LARGEST_CACHE) or {}

    def file(self, path: Path) -> str | None:
        """Return the SHA-256 of a plain file in hexadecimal, from the known checksums or by reading the file.

        If reading the file would exceed the limit of bytes, the result is the text `unread SIZE TIME`, with the file's
        time of change. If the file cannot be read, the result is None.
        """
        try:
            stat = stat_plain(path)
            name, stamp = str(path.resolve()), _describe_status(stat)
            entry = self.known.get(name)
            if isinstance(entry, list) and entry[:-1] == stamp:
                return str(entry[-1])
            if self.left is not None:
                if stat.st_size > self.left:
                    self.skipped += 1
                    return f"unread {stat.st_size} {stat.st_mtime_ns}"
                self.left -= stat.st_size
            checksum = hash_plain(path)
        except OSError:
            return None
        self.known[name] = [*stamp, checksum]
        self.changed = True
        return checksum

    def is_whole(self, path: Path, checksum: str, stored: int) -> bool:
        """Return whether a file of a stored result still has its checksum.

        The file is read only if it changed since its checksum was computed. If this object knows no checksum of the file,
        the given one is trusted if the file has not changed after storing.

        Args:
            path: The file.
            checksum: SHA-256 in hexadecimal.
            stored: Time of storing, in nanoseconds since the epoch.

        Raises:
            OSError: the file cannot be read.
        """
        stat = stat_plain(path)
        name = str(path.resolve())
        if name not in self.known and stat.st_ctime_ns <= stored:
            self.known[name] = [*_describe_status(stat), checksum]
            self.changed = True
        return self.file(path) == checksum

    def folder(self, path: Path, patterns: tuple[str, ...] = MODEL_FILES) -> str | None:
        """Return the digest of names and checksums of the files in a model's folder, without its subfolders.

        Args:
            path: The folder.
            patterns: Patterns of the names of files that count.

        Returns:
            The digest in hexadecimal; None if `path` is no folder.

        Raises:
            Problem: E0959 if the folder has too many files, E0803 if a link leads out of it.
        """
        refuse(leads_out(path))
        files = _list_files(path, lambda name: any(fnmatchcase(name, pattern) for pattern in patterns))
        return self._digest_files(path, files) if os.path.isdir(path) else None

    def tree(self, path: Path) -> str:
        """Return the digest, in hexadecimal, of names and checksums of all data files in a folder and its subfolders.

        Raises:
            Problem: E0959 if the folder has too many files.
        """
        files = _list_files(path, lambda name: Path(name).suffix.lower() in DATA_FILES, _DEEPEST)
        return self._digest_files(path, files)

    def _digest_files(self, folder: Path, files: Iterable[Path]) -> str:
        """Return the digest, in hexadecimal, of the paths in `folder` and the checksums of files."""
        return digest({file.relative_to(folder).as_posix(): self.file(file) for file in sorted(files)})

    def save(self) -> None:
        """Write the known checksums into their file, if they changed and the folder of the file exists.

        An error of the disk is ignored: files are then read again next time.
        """
        if self.changed and self.place.parent.is_dir():
            try:
                write_json(self.place, self.known)
            except OSError:
                return
            self.changed = False


def _describe_status(stat: os.stat_result) -> list[int]:
    """Return the facts that change with a file: its size in bytes, mtime and ctime in nanoseconds, and inode."""
    return [stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns, stat.st_ino]


def _list_entries(folder: Path, root: Path, max_entries: int) -> list[os.DirEntry[str]]:
    """Return the entries of a folder; empty for a folder of the system, such as /proc.

    Args:
        folder: The folder, which is `root` or below it.
        root: The folder of a model or data set, which the error names.
        max_entries: Number of entries that are allowed in the folder.

    Raises:
        Problem: E0959 for more entries.
    """
    if is_system(folder):
        return []
    with os.scandir(folder) as entries:
        listed = list(islice(entries, max_entries + 1))
    if len(listed) > max_entries:
        raise problem(
            "E0959",
            f"the folder has more than {MOST_ENTRIES:,} files, and not all of them are read",
            where=str(root),
            help="name a folder with only the model, or only the data set",
        )
    return listed


def leads_out(folder: Path) -> Diagnostic | None:
    """Return E0803 for the first link that leads out of a model's folder, or None without such a link.

    Through such a link, a stranger's folder could make any file of this machine a file of the model. A snapshot in the
    hub's cache may have links to the folder `blobs` beside the snapshots.

    Raises:
        Problem: E0959 if the folder has too many files.
    """
    real_folder = Path(os.path.realpath(folder))
    blobs = real_folder.parent.parent / "blobs"
    roots = (str(real_folder), *([str(blobs)] if real_folder.parent.name == "snapshots" else []))
    for subfolder, patterns in ((folder, (*MODEL_FILES, TEMPLATES)), (folder / TEMPLATES, ("*",))):
        try:
            entries = sorted(_list_entries(subfolder, folder, MOST_ENTRIES), key=lambda entry: entry.name)
        except OSError:
            continue
        for entry in entries:
            if not entry.is_symlink() or not any(fnmatchcase(entry.name, pattern) for pattern in patterns):
                continue
            target = os.path.realpath(entry.path)
            if not is_within(target, roots):
                copy = shlex.join(["cp", "-rL", str(folder), f"{real_folder}-whole"])
                return error(
                    "E0803",
                    f"`{entry.name}` of the model folder is a link that leads out of the folder, to {target}",
                    where=entry.path,
                    help=f"look at that file; if it belongs to the model, copy all: `{copy}`, and name the copy",
                )
    return None


def _list_files(root: Path, is_wanted: Callable[[str], bool], max_depth: int = 1) -> Iterator[Path]:
    """Yield the files below a folder whose names are wanted; follow links to folders, and skip hidden folders.

    Args:
        root: The folder.
        is_wanted: Function from a file's name to whether the file is wanted.
        max_depth: Depth of files at most: 1 for files directly in the folder.

    Raises:
        Problem: E0959 if there are too many files.
    """
    folders, budget = [(root, 1)], MOST_ENTRIES
    while folders:
        folder, depth = folders.pop()
        try:
            entries = _list_entries(folder, root, budget)
        except OSError:
            continue
        budget -= len(entries)
        for entry in entries:
            path = folder / entry.name
            if os.path.isdir(path):
                folders += [(path, depth + 1)] if depth < max_depth and not entry.name.startswith(".") else []
            elif is_wanted(entry.name):
                yield path


def resolve_sources(
    task: Task, payload: Mapping[str, Any], folder: Path, prints: Fingerprints
) -> dict[str, Any]:
    """Return a task's payload with the content of files in place of their names, from which the task's key is computed.

    Sources of data and weights get a checksum, a commit or a version. The user's Python gets the checksum of its code.

    Args:
        task: The task.
        payload: Its payload, with paths and names as in the spec.
        folder: The spec's folder, where relative paths start.
        prints: Known checksums, which are extended.
    """
    if task.kind in _RUN_CODE:
        payload = _insert_content(payload, folder)
    if "base" in payload:
        return {**payload, "base": _pin(payload["base"], folder, prints, "")}
    if task.kind == "data":
        data = payload["data"]
        sources = [_pin(item, folder, prints, "datasets") for item in data["sources"]]
        return {**payload, "data": {**data, "sources": sources}}
    if task.kind == "model":
        model = payload["model"]
        return {**payload, "model": {**model, "source": _pin(model["source"], folder, prints, "models")}}
    return dict(payload)


_LEAF = (str, int, float, type(None))


def _insert_content(value: Any, folder: Path) -> Any:
    """Return a value of a payload in which the content of functions replaces their names, and addresses are constant.

    Functions are those of the user in Python. Settings of a served model that do not change results, such as its address,
    are replaced or left out. A value without functions and served models is returned as the same object.

    Args:
        value: A payload or a value in it.
        folder: The spec's folder, where relative paths start.
    """
    if isinstance(value, Mapping):
        if is_code(value):
            return content_of(value, folder)
        if (incidental := _INCIDENTAL.get(str(value.get("kind")))) is not None:
            # Stored payloads must still have the form of a served model, as prices are learnt from them.
            kept = {name: entry for name, entry in value.items() if name not in incidental}
            return {**kept, "address": _NO_ADDRESS}
        contents = {
            name: entry if isinstance(entry, _LEAF) else _insert_content(entry, folder)
            for name, entry in value.items()
        }
        return contents if any(contents[name] is not value[name] for name in contents) else value
    if isinstance(value, (list, tuple)):
        items = [_insert_content(entry, folder) for entry in value]
        return items if any(one is not other for one, other in zip(items, value, strict=True)) else value
    return value


def _pin(source: Mapping[str, Any], folder: Path, prints: Fingerprints, hub_kind: str) -> dict[str, Any]:
    """Return a source of data or weights with its present content: a checksum, a commit or a version.

    Args:
        source: The source as in the payload, with its `kind`.
        folder: The spec's folder, where relative paths start.
        prints: Known checksums, which are extended.
        hub_kind: Kind of a hub's repository: `models`, `datasets`, or empty for a source that is on no hub.
    """
    match source["kind"]:
        case "file" | "results":
            path = folder / source["path"]
            checksum = prints.file(path) if path.suffix.lower() in DATA_FILES else None
            return {**source, "path": f"sha256:{checksum}{path.suffix}"}
        case "folder":
            return {**source, "path": f"sha256:{prints.folder(folder / source['path'])}"}
        case "hub":
            pinned = {**source, "revision": hub_revision(hub_kind, source["repo"], source.get("revision"))}
            copy = local_copy(source["repo"], folder) if hub_kind == "datasets" else None
            return pinned if copy is None else {**pinned, "copy": prints.tree(copy)}
        case "package":
            return {**source, "version": package_version(source["package"])}
        case "served":
            # Only the tokenizer is on this machine; tasks that send requests to the model name it in their payload.
            tokenizer = source["tokenizer"]
            if tokenizer["kind"] == "folder":
                checksums = prints.folder(folder / tokenizer["path"], MODEL_TEXTS)
                tokenizer = {**tokenizer, "path": f"sha256:{checksums}"}
            else:
                tokenizer = _pin(tokenizer, folder, prints, hub_kind)
            return {"kind": "served", "tokenizer": tokenizer}
    return dict(source)


def _find_files_source(source: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the source of a model's files on this machine, which is the tokenizer's source for a served model."""
    return source["tokenizer"] if source.get("kind") == "served" else source


def absent(task: Task, folder: Path) -> tuple[str, ...]:
    """Return the sources of a task's questions or weights that are not on this machine, as the spec names them.

    Only tasks that read data, imported results or a model have sources; for other tasks the result is empty.

    Args:
        task: The task.
        folder: The spec's folder, where relative paths start.
    """
    if task.kind == "data":
        sources, hub_kind = task.payload["data"]["sources"], "datasets"
    elif "base" in task.payload:
        sources, hub_kind = [task.payload["base"]], ""
    elif task.kind == "model":
        sources, hub_kind = [_find_files_source(task.payload["model"]["source"])], "models"
    else:
        return ()
    return tuple(
        str(source.get("path") or source.get("repo") or source["package"])
        for source in sources
        if not _is_here(source, folder, hub_kind)
    )


def _is_here(source: Mapping[str, Any], folder: Path, hub_kind: str) -> bool:
    """Return whether a source of data or weights is on this machine; a source that is generated always is.

    Args:
        source: The source as in a payload, with its `kind`.
        folder: The spec's folder, where relative paths start.
        hub_kind: Kind of a hub's repository: `models`, `datasets`, or empty for a source that is on no hub.
    """
    match source["kind"]:
        case "file" | "folder" | "results":
            return os.path.lexists(folder / source["path"])
        case "hub":
            has_copy = hub_kind == "datasets" and local_copy(source["repo"], folder) is not None
            return has_copy or hub_snapshot(hub_kind, source["repo"], source.get("revision")) is not None
        case "package":
            return package_version(source["package"]) is not None
    return True


def local_copy(repo: str, folder: Path) -> Path | None:
    """Return the folder `data/REPO` in the spec's folder, a data set's copy that a run prefers to the hub's cache.

    Args:
        repo: Name of the data set on the hub.
        folder: The spec's folder.

    Returns:
        The copy, or None if it does not exist.
    """
    copy = folder / "data" / repo
    return copy if REPO.holds(repo) and copy.is_dir() else None


def hub_cache() -> Path:
    """Return the folder of downloaded models and data sets, which HF_HOME and HF_HUB_CACHE can change."""
    home = Path(os.environ.get("HF_HOME") or Path.home() / ".cache" / "huggingface")
    return Path(os.environ.get("HF_HUB_CACHE") or os.environ.get("HUGGINGFACE_HUB_CACHE") or home / "hub")


def hub_place(hub_kind: str, repo: str) -> Path:
    """Return the folder of a hub's repository on this machine, whether it exists or not.

    Args:
        hub_kind: `models` or `datasets`.
        repo: Name of the repository, such as `Qwen/Qwen3-4B`.
    """
    return hub_cache() / f"{hub_kind}--{repo.replace('/', '--')}"


def hub_snapshot(hub_kind: str, repo: str, revision: str | None) -> Path | None:
    """Return the folder of a repository's files in the hub's local cache; None if it is missing or not complete.

    Args:
        hub_kind: `models` or `datasets`.
        repo: Name of the repository, such as `Qwen/Qwen3-4B`.
        revision: Commit, branch or tag; None for the branch `main`.
    """
    if not REPO.holds(repo) or not (revision is None or REVISION.holds(revision)):
        return None
    repository = hub_place(hub_kind, repo)
    try:
        commit = (
            read_plain(repository / "refs" / (revision or "main"), _LARGEST_REF)
            .decode("ascii", "replace")
            .strip()
        )
    except OSError:
        commit = revision or ""
    snapshot = repository / "snapshots" / commit
    if not PART.holds(commit) or not os.path.isdir(snapshot):
        return None
    try:
        return None if read_plain(repository / UNFINISHED, _LARGEST_REF).decode() == commit else snapshot
    except (OSError, UnicodeDecodeError):
        return snapshot


def hub_commits(payload: Mapping[str, Any]) -> dict[str, str]:
    """Return the commits of the hub repositories in a payload, by the name of the repository.

    Args:
        payload: Payload from `resolve_sources`, in which revisions are commits.
    """
    sources = [
        *payload.get("data", {}).get("sources", ()),
        _find_files_source(payload.get("model", {}).get("source", {})),
    ]
    return {
        str(source["repo"]): str(source["revision"])
        for source in sources
        if isinstance(source, Mapping) and source.get("kind") == "hub" and source.get("revision")
    }


def hub_revision(hub_kind: str, repo: str, revision: str | None) -> str | None:
    """Return the commit of a revision in the hub's local cache, or the revision itself if the cache lacks it.

    Args:
        hub_kind: `models` or `datasets`.
        repo: Name of the repository, such as `Qwen/Qwen3-4B`.
        revision: Commit, branch or tag; None for the branch `main`.
    """
    snapshot = hub_snapshot(hub_kind, repo, revision)
    return snapshot.name if snapshot else revision


def package_version(package: str) -> str | None:
    """Return the version of an installed package; None if it is not installed.

    Args:
        package: Name of the package for pip (its distribution), or the same name with `_` in place of `-`.
    """
    for name in (package, package.replace("_", "-")):
        try:
            return metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return None
