"""The store: results by key. A result is a folder that appears in one step, never changes, and is checked when read."""

from __future__ import annotations

import os
import secrets
import shutil
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from reodsl.diagnostics import problem
from reodsl.graph.task import Task
from reodsl.ir import digest
from reodsl.store.external import Fingerprints
from reodsl.store.files import (
    hash_plain,
    hold,
    is_held,
    json_bytes,
    link_or_copy,
    read_object,
    read_plain,
    storing,
    sync,
    turn,
    walk,
    write_atomic,
)
from reodsl.store.manifest import MANIFEST, Manifest, differences, manifest_json, read

FORMAT = "reodsl store 1\n"
_LARGEST_MARK = 1 << 10
"""Largest size of the file `format` in bytes."""
MATERIAL = "material.json"
"""File of a result with the payload and inputs whose digest is the result's key."""
WEIGHTS = ("checkpoint/", "optimizer/")
"""Folders of a result's largest files."""


def find_store(folder: Path) -> Path:
    """Return the path of the store for the specs in a folder.

    It is the nearest store `.reodsl` of this user in `folder` or in a folder above. If there is none, it is the path of a
    new store `.reodsl` in `folder`.
    """
    places = [parent / ".reodsl" for parent in (folder, *folder.parents)]
    return next(filter(_is_mine, places), places[0])


def _is_mine(folder: Path) -> bool:
    """Return whether a folder is a store of this user; a shared folder, such as /tmp, may have a stranger's store."""
    mark = folder / "format"
    return mark.is_file() and mark.stat().st_uid == os.getuid()


class Store:
    """A folder of results.

    `objects/<2>/<key>/` has a finished result with `material.json`, whose digest is the key, and `manifest.json`.
    `work/<key>/` has the state that an interrupted task continues from, `tmp/` unfinished results, `locks/` a file for
    each key, `live/` the progress of running tasks, `errors/` tracebacks, and `runs/` the records of runs.
    """

    def __init__(self, root: Path) -> None:
        """Take the folder of the store; nothing is created or read yet."""
        self.root = root

    def open(self) -> Store:
        """Create the store if it is missing, check that it can be written, and return it.

        Raises:
            Problem: E0950 if it cannot be written, E0952 if the folder is no store of this version.
        """
        with storing(self.root, every_error=True):
            try:
                self.root.mkdir(parents=True, exist_ok=True)
            except (FileExistsError, NotADirectoryError):
                raise self._refuse_store("it is a file") from None
            self.recognise()
            mark = self.root / "format"
            if not mark.exists():
                self._mark(mark)
            for name in ("objects", "work", "tmp", "locks", "runs", "live", "errors"):
                (self.root / name).mkdir(exist_ok=True)
            probe = self.root / "tmp" / f"probe.{os.getpid()}.{secrets.token_hex(4)}"
            probe.write_bytes(b"")
            probe.unlink(missing_ok=True)
        return self

    @property
    def shown(self) -> str:
        """Return the store's path for messages, which is relative if the store is below the working folder."""
        root, cwd = self.root.absolute(), Path.cwd()
        return str(root.relative_to(cwd) if root.is_relative_to(cwd) else self.root)

    @property
    def exists(self) -> bool:
        """Return whether the store has been created."""
        return (self.root / "format").is_file()

    def recognise(self) -> None:
        """Check that the folder is a store of this version, or empty, or missing.

        Raises:
            Problem: E0952 for a folder with other files, a file, or a store of another version.
        """
        try:
            entries = {entry.name for entry in self.root.iterdir() if not entry.name.startswith(".format.")}
        except FileNotFoundError:
            return
        except NotADirectoryError:
            raise self._refuse_store("it is a file") from None
        # The mark is looked for after the entries: a run that creates the store meanwhile writes the mark first.
        mark = self.root / "format"
        if mark.exists():
            try:
                content = read_plain(mark, _LARGEST_MARK)
            except OSError as fault:
                raise self._refuse_store(f"its file `format` cannot be read: {fault.strerror}") from None
            if content != FORMAT.encode():
                raise self._refuse_store("it was written by another version of reodsl")
        elif {"objects", "locks", "runs"} <= entries:
            raise self._refuse_store(
                "its file `format`, which has the version of its results, is missing",
                f"if this version of reodsl wrote the store, restore the file: echo {FORMAT.strip()} > {mark}",
            )
        elif entries - {"fingerprints.json"}:
            # Version 0.2 wrote `fingerprints.json` alone into an empty folder when it planned.
            raise self._refuse_store("it has other files")

    def _mark(self, mark: Path) -> None:
        """Write the file `format` at the path `mark`, which marks the folder as a store of this version."""
        try:
            write_atomic(mark, FORMAT.encode())
        except FileNotFoundError:
            # Another run created the store at the same moment, and removed our unfinished mark as a leftover.
            if not mark.exists():
                raise

    def path(self, key: str) -> Path:
        """Return the path of the folder of the result `key`, whether it exists or not."""
        return self.root / "objects" / key[:2] / key

    def get(self, key: str) -> Manifest | None:
        """Return the manifest of the result `key`; None if the result is missing or evidently damaged.

        The files must exist and have the sizes in the manifest. Their contents are not read.
        """
        folder = self.path(key)
        manifest = read(folder, key)
        if manifest is None:
            return None
        for path, (size, _) in manifest.files.items():
            try:
                if (folder / path).stat().st_size != size:
                    return None
            except OSError:
                return None
        return manifest

    def material(self, key: str) -> dict[str, Any] | None:
        """Return the payload and inputs of the task that made the result `key`; None if they cannot be read.

        The key is the digest of these data.
        """
        return read_object(self.path(key) / MATERIAL)

    def damage(
        self, key: str, unread: tuple[str, ...] = (), prints: Fingerprints | None = None
    ) -> tuple[str, ...]:
        """Return a sentence for each damaged file of a stored result; empty if the result is intact.

        Args:
            key: Key of the result.
            unread: Starts of paths of large files, such as weights. These files are read only if they changed since the
                last check; otherwise only their sizes are compared. All other files are read completely.
            prints: Checksums of the last check; None to compare the time of change with the time of storing.
        """
        folder = self.path(key)
        manifest = read(folder, key)
        if manifest is None:
            return (f"{MANIFEST} is missing or unreadable",)
        differing = differences(manifest, folder, unread, prints)
        material = self.material(key)
        if material is None or digest(material) != key:
            differing.append(f"{MATERIAL} does not belong to this key")
        return tuple(differing)

    def __iter__(self) -> Iterator[str]:
        """Yield the keys of all stored results, damaged or not."""
        for group in sorted((self.root / "objects").glob("??")):
            yield from (entry.name for entry in sorted(group.iterdir()))

    @contextmanager
    def lock(self, key: str) -> Iterator[bool]:
        """Try to hold the lock of a key inside a `with` block, and yield whether this succeeded, without waiting.

        False is yielded if another process, or another thread of this process, holds the lock.
        """
        with ExitStack() as stack:
            with storing(self.root):
                is_locked = stack.enter_context(hold(self.root / "locks" / key))
            yield is_locked

    def busy(self, key: str) -> bool:
        """Return whether any process holds the lock of a key, which means that it computes the result."""
        return is_held(self.root / "locks" / key)

    @contextmanager
    def turn(self, name: str) -> Iterator[None]:
        """Wait for the store's lock called `name`, and hold it inside a `with` block, which should be short."""
        with ExitStack() as stack:
            with storing(self.root):
                stack.enter_context(turn(self.root / "locks" / f"turn.{name}"))
            yield

    def begin(self, key: str) -> Path:
        """Create an empty folder for the files of the result `key`, which `commit` makes visible, and return its path.

        The caller holds the key's lock. Files of a killed attempt are removed first.
        """
        self.tidy(key)
        with storing(self.root):
            folder = self.root / "tmp" / f"{key}.{os.getpid()}.{secrets.token_hex(4)}"
            folder.mkdir()
            return folder

    def work(self, key: str) -> Path:
        """Return the path of the folder in which an attempt at the result `key` saves its state for the next attempt.

        The caller holds the key's lock, and makes the folder if it does not exist. Files in it that a killed attempt was
        still writing (their names begin with a point) are removed.
        """
        folder = self.root / "work" / key
        if folder.is_dir():
            # An unfinished file of a killed attempt may be as large as a checkpoint.
            with storing(self.root):
                for path in walk(folder):
                    if path.name.startswith(".") and path.is_file():
                        path.unlink()
        return folder

    def commit(
        self,
        key: str,
        out: Path,
        material: Mapping[str, Any],
        origin: Mapping[str, Any],
        durable: bool = True,
    ) -> Manifest:
        """Store a folder as the result of a key in one step, remove the key's work folder, and return the manifest.

        The caller holds the key's lock.

        Args:
            key: Key of the result, which is the digest of `material`.
            out: Folder with the result's files, from `begin`.
            material: Payload and inputs of the task.
            origin: Further facts for the manifest, such as the task's name and its seconds.
            durable: Whether to wait until the result is on the disk. Otherwise a power cut may lose the result, which is
                then found missing or damaged, and computed again.

        Raises:
            Problem: E0990 for a result with links or without files, E0950 if the disk refuses; then no part of the
                result is visible.
        """
        with storing(self.root):
            files: dict[str, tuple[int, str]] = {}
            for entry in walk(out):
                if entry.is_symlink() or not (entry.is_dir() or entry.is_file()):
                    raise self._refuse(f"`{entry.relative_to(out)}` is neither a file nor a folder")
                if entry.is_file():
                    files[entry.relative_to(out).as_posix()] = (entry.stat().st_size, hash_plain(entry))
            if not files or {MATERIAL, MANIFEST} & files.keys():
                raise self._refuse("no files" if not files else f"a file named {MATERIAL} or {MANIFEST}")
            manifest = Manifest(key, files, datetime.now(UTC).isoformat(timespec="seconds"), dict(origin))
            (out / MATERIAL).write_bytes(json_bytes(dict(material)))
            (out / MANIFEST).write_bytes(json_bytes(manifest_json(manifest)))
            for entry in walk(out):
                if durable:
                    sync(entry)
                # A file with further hard links, such as linked weights of a user, keeps its permissions.
                if entry.is_file() and entry.stat().st_nlink == 1:
                    entry.chmod(0o444)
            target = self.path(key)
            target.parent.mkdir(exist_ok=True)
            if target.exists():
                self._discard(target)
            if durable:
                sync(out)
            out.rename(target)
            if durable:
                sync(target.parent)
        self.forget_work(key)
        return manifest

    def abandon(self, out: Path) -> None:
        """Remove a folder of `begin` that will not be committed."""
        shutil.rmtree(out, ignore_errors=True)

    def tidy(self, key: str) -> None:
        """Remove the unfinished results and the progress that killed attempts at the result `key` left.

        The caller holds the key's lock.
        """
        # Not `glob`, which would compile a pattern for every key.
        for name in os.listdir(self.root / "tmp"):
            if name.startswith(f"{key}."):
                shutil.rmtree(self.root / "tmp" / name, ignore_errors=True)
        (self.root / "live" / f"{key}.json").unlink(missing_ok=True)

    def forget_work(self, key: str) -> None:
        """Remove the work folder of `key`, with the state that an interrupted attempt saved."""
        shutil.rmtree(self.root / "work" / key, ignore_errors=True)

    def remove(self, key: str) -> None:
        """Remove the result `key`, which disappears from the store in one step before its files are removed."""
        with storing(self.root):
            if self.path(key).exists():
                self._discard(self.path(key))

    def _discard(self, folder: Path) -> None:
        """Remove a folder: rename it in one step, then remove its files."""
        removed = self.root / "tmp" / f"{folder.name}.{os.getpid()}.{secrets.token_hex(4)}.removed"
        folder.rename(removed)
        shutil.rmtree(removed, ignore_errors=True)

    def _refuse_store(self, reason: str, advice: str = "") -> Exception:
        """Return E0952 for a folder that cannot be used as a store.

        Args:
            reason: Why it cannot be used.
            advice: Advice to the user; empty for the advice to name another folder.
        """
        return problem(
            "E0952",
            f"this folder cannot be used as a store: {reason}",
            where=self.shown,
            help=advice or "name an empty or new folder: --store DIR (or REODSL_STORE)",
        )

    def _refuse(self, reason: str) -> Exception:
        """Return E0990 for a result that is not made of plain files."""
        return problem(
            "E0990",
            f"a task's result cannot be stored: {reason}",
            where=self.shown,
            help="this is a defect of the runner, which must write plain files",
        )


ACCEPTED = "accepted"


@dataclass(frozen=True, slots=True)
class Acceptance:
    """A person's decision that an old result stays valid for a task that would otherwise run again."""

    result: str
    """Key of the accepted result."""
    because: str
    """The person's reason."""
    changes: tuple[str, ...]
    """Descriptions of the changes for which the task would run."""
    at: str
    """Time of the decision, in ISO format."""


def acceptances(manifest: Manifest) -> tuple[Acceptance, ...]:
    """Return the acceptances by which a result came about, oldest first; empty if the result itself was computed.

    An accepted result is a copy of an older result, which may itself have been accepted.
    """
    return tuple(
        Acceptance(item["result"], item["because"], tuple(item["changes"]), item["at"])
        for item in manifest.provenance.get(ACCEPTED, ())
    )


def add_acceptances(task: Task, manifests: Mapping[str, Manifest]) -> Task:
    """Return a task of the kind `report` with the acceptances of its study's results, which the report shows.

    They are added to the task's `work` as `accepted`. A task of another kind, or without acceptances, is unchanged.

    Args:
        task: Any task.
        manifests: Manifests of the study's results by task.
    """
    if task.kind != "report":
        return task
    accepted = [
        {"task": name, **asdict(item)}
        for name, manifest in sorted(manifests.items())
        for item in acceptances(manifest)
    ]
    return replace(task, work={**task.work, "accepted": accepted}) if accepted else task


def adopt(
    store: Store,
    old: Manifest,
    key: str,
    task_id: str,
    material: Mapping[str, Any],
    because: str,
    changes: tuple[str, ...],
) -> Manifest:
    """Store the files of an old result as the result of another key, as a person accepted them, and return its manifest.

    Files are linked if the file system can. The new manifest has the old provenance and acceptances, and this acceptance.
    The caller holds the lock of `key`.

    Args:
        store: The store.
        old: Manifest of the accepted result.
        key: Key of the new result.
        task_id: Name of the task.
        material: Payload and inputs of the task now, whose digest is `key`.
        because: The person's reason.
        changes: Descriptions of the changes for which the task would run.

    Raises:
        Problem: E0950 if the disk refuses.
    """
    now = datetime.now(UTC).isoformat(timespec="seconds")
    chain = (*acceptances(old), Acceptance(old.key, because, changes, now))
    out = store.begin(key)
    try:
        for name in old.files:
            (out / name).parent.mkdir(parents=True, exist_ok=True)
            link_or_copy(store.path(old.key) / name, out / name)
        record = {**old.provenance, "task": task_id, ACCEPTED: [asdict(item) for item in chain]}
        return store.commit(key, out, material, record)
    finally:
        store.abandon(out)
