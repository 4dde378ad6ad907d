"""Read from outside the store for a task: paths and names in a payload are replaced by what is found there.

A file or folder is its content, so that moving it changes nothing and editing it does; a hub's name is the
revision in the local cache; a package is its installed version.
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

from reodsl.diagnostics import Diagnostic, Problem, error, problem
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
"""A folder inside a model's in which transformers looks for more chat templates."""
MOST_READ = 2 << 30
"""Bytes of files not seen before that one command reads where a run has not been asked for: seconds of work."""
MOST_ENTRIES = 10_000
"""Names in a folder of a model, and in a copy of a data set with all that is below it."""
_DEEPEST = 4
"""Folders from a copy of a data set to its files: `data/NAME/SPLIT/FILE`."""
LARGEST_CONFIG = 1 << 20
"""Bytes of a model's `config.json`."""
UNFINISHED = "reodsl-unfinished"
"""Beside a repository's files in the hub's cache: the commit of which not all of them are there yet."""
_LARGEST_CACHE = 1 << 26
_LARGEST_REF = 1 << 10
_INCIDENTAL = {"served": ServedModel.incidental}
_NO_ADDRESS = "https://served"
_RUN_CODE = ("data", "train", "sample", "evaluate")


class Fingerprints:
    """Checksums of files outside the store, valid while a file's size, times and inode stay the same.

    The time of the last change of state counts too: unlike the time of the content, no program can set it back.
    """

    def __init__(self, path: Path, most: int | None = None) -> None:
        """Read the checksums in the file `place`, if it exists.

        At most `most` bytes of unknown files are read, and the files that are too large for it are counted.
        """
        self.place = path
        self.left = most
        self.skipped = 0
        self.changed = False
        self.known: dict[str, list[Any]] = read_object(path, _LARGEST_CACHE) or {}

    def file(self, path: Path) -> str | None:
        """Return the SHA-256 of a plain file in hexadecimal, or a word for a skipped file; None if it cannot be read."""
        try:
            stat = stat_plain(path)
            name, seen = str(path.resolve()), _stamp(stat)
            entry = self.known.get(name)
            if isinstance(entry, list) and entry[:-1] == seen:
                return str(entry[-1])
            if self.left is not None:
                if stat.st_size > self.left:
                    self.skipped += 1
                    return f"unread {stat.st_size} {stat.st_mtime_ns}"
                self.left -= stat.st_size
            checksum = hash_plain(path)
        except OSError:
            return None
        self.known[name] = [*seen, checksum]
        self.changed = True
        return checksum

    def is_whole(self, path: Path, checksum: str, stored: int) -> bool:
        """Return whether a stored file still has its checksum, reading it only if it changed since the last look.

        The first time it is trusted, unless it was changed later than `stored`.

        Args:
            path: stored file.
            checksum: SHA-256 in hexadecimal.
            stored: time of storing, in nanoseconds since the epoch.

        Raises:
            OSError: the file cannot be read.
        """
        stat = stat_plain(path)
        name = str(path.resolve())
        if name not in self.known and stat.st_ctime_ns <= stored:
            self.known[name] = [*_stamp(stat), checksum]
            self.changed = True
        return self.file(path) == checksum

    def folder(self, path: Path, patterns: tuple[str, ...] = MODEL_FILES) -> str | None:
        """Return the digest of the names and checksums of a model's files directly in a folder; None if it is no folder.

        Raises:
            Problem: E0959 if it holds too many files, E0803 if a link leads out of it.
        """
        outward = leads_out(path)
        if outward is not None:
            raise Problem(outward)
        files = _list_files(path, lambda name: any(fnmatchcase(name, pattern) for pattern in patterns))
        return self._together(path, files) if os.path.isdir(path) else None

    def tree(self, path: Path) -> str:
        """Return the digest of the names and checksums of all files with questions below a folder.

        Raises:
            Problem: E0959 if it holds too many files.
        """
        files = _list_files(path, lambda name: Path(name).suffix.lower() in DATA_FILES, _DEEPEST)
        return self._together(path, files)

    def _together(self, folder: Path, files: Iterable[Path]) -> str:
        """Return the digest of names and checksums."""
        return digest({file.relative_to(folder).as_posix(): self.file(file) for file in sorted(files)})

    def save(self) -> None:
        """Store the checksums, if the store exists; losing them only costs time."""
        if self.changed and self.place.parent.is_dir():
            try:
                write_json(self.place, self.known)
            except OSError:
                return
            self.changed = False


def _stamp(stat: os.stat_result) -> list[int]:
    return [stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns, stat.st_ino]


def _entries(folder: Path, root: Path, most: int) -> list[os.DirEntry[str]]:
    """Return the entries of a folder, which is `root` or below; E0959 for more than `most`."""
    if is_system(folder):
        return []
    with os.scandir(folder) as entries:
        listed = list(islice(entries, most + 1))
    if len(listed) > most:
        raise problem(
            "E0959",
            f"the folder holds more than {MOST_ENTRIES:,} files, which are not all looked at",
            where=str(root),
            help="name the folder that holds the model, or the data set, and nothing else",
        )
    return listed


def leads_out(folder: Path) -> Diagnostic | None:
    """Return E0803 for the first link that leads out of a model folder; None if all its files stay inside.

    A stranger's folder could otherwise name any file of this machine as a file of the model. The files of a snapshot
    in the hub's cache are links to `blobs` beside the snapshots.

    Raises:
        Problem: E0959 if the folder holds too many files.
    """
    real = Path(os.path.realpath(folder))
    blobs = real.parent.parent / "blobs"
    inside = (str(real), str(blobs)) if real.parent.name == "snapshots" else (str(real),)
    for subfolder, names in ((folder, (*MODEL_FILES, TEMPLATES)), (folder / TEMPLATES, ("*",))):
        try:
            entries = sorted(_entries(subfolder, folder, MOST_ENTRIES), key=lambda each: each.name)
        except OSError:
            continue
        for entry in entries:
            if not entry.is_symlink() or not any(fnmatchcase(entry.name, each) for each in names):
                continue
            target = os.path.realpath(entry.path)
            if not is_within(target, inside):
                copy = shlex.join(["cp", "-rL", str(folder), f"{real}-whole"])
                return error(
                    "E0803",
                    f"`{entry.name}` of the model folder is a link that leads out of it, to {target}",
                    where=entry.path,
                    help=f"look at that file; where it belongs to the model, copy both: `{copy}`, and name the copy",
                )
    return None


def _list_files(root: Path, wants: Callable[[str], bool], deepest: int = 1) -> Iterator[Path]:
    """Yield the files below a folder, down to a depth, whose names are wanted; linked folders count too."""
    folders, budget = [(root, 1)], MOST_ENTRIES
    while folders:
        folder, depth = folders.pop()
        try:
            entries = _entries(folder, root, budget)
        except OSError:
            continue
        budget -= len(entries)
        for entry in entries:
            path = folder / entry.name
            if os.path.isdir(path):
                folders += [(path, depth + 1)] if depth < deepest and not entry.name.startswith(".") else []
            elif wants(entry.name):
                yield path


def resolve_sources(
    task: Task, payload: Mapping[str, Any], folder: Path, prints: Fingerprints
) -> dict[str, Any]:
    """Return `payload` with the present content of every source; relative paths start at `folder`."""
    if task.kind in _RUN_CODE:
        payload = _insert_content(payload, folder)
    if "base" in payload:
        return {**payload, "base": _source(payload["base"], folder, prints, "")}
    if task.kind == "data":
        data = payload["data"]
        sources = [_source(item, folder, prints, "datasets") for item in data["sources"]]
        return {**payload, "data": {**data, "sources": sources}}
    if task.kind == "model":
        model = payload["model"]
        return {**payload, "model": {**model, "source": _source(model["source"], folder, prints, "models")}}
    return dict(payload)


_LEAF = (str, int, float, type(None))


def _insert_content(value: Any, folder: Path) -> Any:
    """Replace the user's functions in a payload by their content, and addresses of models by a constant.

    A value without any is returned as the same object.
    """
    if isinstance(value, Mapping):
        if is_code(value):
            return content_of(value, folder)
        if (incidental := _INCIDENTAL.get(str(value.get("kind")))) is not None:
            # What stored results name has to be a served model again, for the prices that are learnt from them.
            rest = {name: each for name, each in value.items() if name not in incidental}
            return {**rest, "address": _NO_ADDRESS}
        inner = {
            name: each if isinstance(each, _LEAF) else _insert_content(each, folder)
            for name, each in value.items()
        }
        return inner if any(inner[name] is not value[name] for name in inner) else value
    if isinstance(value, (list, tuple)):
        items = [_insert_content(each, folder) for each in value]
        return items if any(one is not other for one, other in zip(items, value, strict=True)) else value
    return value


def _source(source: Mapping[str, Any], folder: Path, prints: Fingerprints, hub_kind: str) -> dict[str, Any]:
    """Return a source with its present content: a checksum, a commit or a version."""
    match source["kind"]:
        case "file" | "results":
            path = folder / source["path"]
            checksum = prints.file(path) if path.suffix.lower() in DATA_FILES else None
            return {**source, "path": f"sha256:{checksum}{path.suffix}"}
        case "folder":
            return {**source, "path": f"sha256:{prints.folder(folder / source['path'])}"}
        case "hub":
            named = {**source, "revision": hub_revision(hub_kind, source["repo"], source.get("revision"))}
            copy = local_copy(source["repo"], folder) if hub_kind == "datasets" else None
            return named if copy is None else {**named, "copy": prints.tree(copy)}
        case "package":
            return {**source, "version": package_version(source["package"])}
        case "served":
            # Only its tokenizer is read here; tasks that ask it name the model.
            inner = source["tokenizer"]
            if inner["kind"] == "folder":
                texts = prints.folder(folder / inner["path"], MODEL_TEXTS)
                inner = {**inner, "path": f"sha256:{texts}"}
            else:
                inner = _source(inner, folder, prints, hub_kind)
            return {"kind": "served", "tokenizer": inner}
    return dict(source)


def _weights(source: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the source of a model's files on this machine; of a served model, the tokenizer's."""
    return source["tokenizer"] if source.get("kind") == "served" else source


def absent(task: Task, folder: Path) -> tuple[str, ...]:
    """Return the sources of a task's questions or weights that are not on this machine, as the spec spells them."""
    if task.kind == "data":
        sources, hub_kind = task.payload["data"]["sources"], "datasets"
    elif "base" in task.payload:
        sources, hub_kind = [task.payload["base"]], ""
    elif task.kind == "model":
        sources, hub_kind = [_weights(task.payload["model"]["source"])], "models"
    else:
        return ()
    return tuple(
        str(source.get("path") or source.get("repo") or source["package"])
        for source in sources
        if not _is_here(source, folder, hub_kind)
    )


def _is_here(source: Mapping[str, Any], folder: Path, hub_kind: str) -> bool:
    match source["kind"]:
        case "file" | "folder" | "results":
            return os.path.lexists(folder / source["path"])
        case "hub":
            copied = hub_kind == "datasets" and local_copy(source["repo"], folder) is not None
            return copied or hub_snapshot(hub_kind, source["repo"], source.get("revision")) is not None
        case "package":
            return package_version(source["package"]) is not None
    return True


def local_copy(repo: str, folder: Path) -> Path | None:
    """Return a data set's copy beside the spec, which a run prefers to the hub's cache; None without a copy."""
    copy = folder / "data" / repo
    return copy if REPO.holds(repo) and copy.is_dir() else None


def hub_cache() -> Path:
    """Return the folder of a hub's models and data sets on this machine."""
    home = Path(os.environ.get("HF_HOME") or Path.home() / ".cache" / "huggingface")
    return Path(os.environ.get("HF_HUB_CACHE") or os.environ.get("HUGGINGFACE_HUB_CACHE") or home / "hub")


def hub_place(hub_kind: str, repo: str) -> Path:
    """Return the folder of a hub's repository on this machine, whether it exists or not."""
    return hub_cache() / f"{hub_kind}--{repo.replace('/', '--')}"


def hub_snapshot(hub_kind: str, repo: str, revision: str | None) -> Path | None:
    """Return the folder of a model (`models`) or data set (`datasets`) in the local cache; None if missing or partial."""
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
    """Return the commits of hubs in a payload from `resolve_sources`, by repository."""
    sources = [
        *payload.get("data", {}).get("sources", ()),
        _weights(payload.get("model", {}).get("source", {})),
    ]
    return {
        str(source["repo"]): str(source["revision"])
        for source in sources
        if isinstance(source, Mapping) and source.get("kind") == "hub" and source.get("revision")
    }


def hub_revision(hub_kind: str, repo: str, revision: str | None) -> str | None:
    """Return the commit of a revision in the local cache; the revision itself if it is not cached."""
    snapshot = hub_snapshot(hub_kind, repo, revision)
    return snapshot.name if snapshot else revision


def package_version(package: str) -> str | None:
    """Return the version of an installed package by its distribution or import name; None if it is missing."""
    for name in (package, package.replace("_", "-")):
        try:
            return metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return None
