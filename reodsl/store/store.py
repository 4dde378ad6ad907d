"""The store: results by key, each a folder that appears whole, is never changed, and is checked when it is read."""

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
MATERIAL = "material.json"
WEIGHTS = ("checkpoint/", "optimizer/")
"""The starts of the paths of a result's largest files."""


def find_store(folder: Path) -> Path:
    """Return the store for specs in `folder`: the nearest `.reodsl` of this user in it or above, else a new one in it."""
    places = [parent / ".reodsl" for parent in (folder, *folder.parents)]
    return next(filter(_is_mine, places), places[0])


def _is_mine(folder: Path) -> bool:
    # A shared folder above, such as /tmp, may hold what somebody else has put there.
    mark = folder / "format"
    return mark.is_file() and mark.stat().st_uid == os.getuid()


class Store:
    """A folder of results.

    `objects/<2>/<key>/` are finished results, with `material.json` (what the key is the digest of) and
    `manifest.json`; `work/<key>/` is what an interrupted task goes on from; `tmp/` what is being written;
    `locks/` one file a key; `live/` how far running tasks are; `errors/` tracebacks; `runs/` the record of each run.
    """

    def __init__(self, root: Path) -> None:
        """Name the store at `root`; nothing is created or read yet."""
        self.root = root

    def open(self) -> Store:
        """Create the store if needed, and check that it can be written. Raises E0950 or E0952."""
        with storing(self.root, anything=True):
            try:
                self.root.mkdir(parents=True, exist_ok=True)
            except (FileExistsError, NotADirectoryError):
                raise self._foreign("it is a file") from None
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
        """Return the store's path as messages show it: from the working folder, if it is below that."""
        root, cwd = self.root.absolute(), Path.cwd()
        return str(root.relative_to(cwd) if root.is_relative_to(cwd) else self.root)

    @property
    def exists(self) -> bool:
        """Return whether the folder is a store already."""
        return (self.root / "format").is_file()

    def recognise(self) -> None:
        """Refuse with E0952 what a run would: anything but a store of this form, an empty folder, or none yet."""
        try:
            entries = {entry.name for entry in self.root.iterdir() if not entry.name.startswith(".format.")}
        except FileNotFoundError:
            return
        except NotADirectoryError:
            raise self._foreign("it is a file") from None
        # Looked for after the folder was, as another run that makes the store writes it before anything else.
        mark = self.root / "format"
        if mark.exists():
            try:
                form = read_plain(mark, _LARGEST_MARK)
            except OSError as fault:
                raise self._foreign(f"its file `format` cannot be read: {fault.strerror}") from None
            if form != FORMAT.encode():
                raise self._foreign("it was written by another version of reodsl")
        elif {"objects", "locks", "runs"} <= entries:
            raise self._foreign(
                "its file `format` is gone, so that nothing says in which form its results are",
                f"if this version of reodsl wrote it, mark it again: echo {FORMAT.strip()} > {mark}",
            )
        elif entries - {"fingerprints.json"}:
            # Version 0.2 wrote that file alone into an empty folder as it planned.
            raise self._foreign("it holds other files")

    def _mark(self, mark: Path) -> None:
        try:
            write_atomic(mark, FORMAT.encode())
        except FileNotFoundError:
            # Another run made the store at the same moment, and took our unfinished mark for a leftover.
            if not mark.exists():
                raise

    def path(self, key: str) -> Path:
        """Return the folder of the result of `key`, whether it exists or not."""
        return self.root / "objects" / key[:2] / key

    def get(self, key: str) -> Manifest | None:
        """Return the manifest of a finished result whose files have the right sizes, or None."""
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
        """Return the payload that the key of a finished result is the digest of; None if it cannot be read."""
        return read_object(self.path(key) / MATERIAL)

    def damage(
        self, key: str, unread: tuple[str, ...] = (), prints: Fingerprints | None = None
    ) -> tuple[str, ...]:
        """Describe the damage of a stored result, file by file; empty if it is intact.

        Every byte is read except those of files whose path starts with an entry of `unread`: of these only what
        changed since `prints` saw it last, or since the result was stored, and else the size.
        """
        folder = self.path(key)
        manifest = read(folder, key)
        if manifest is None:
            return (f"{MANIFEST} is missing or unreadable",)
        wrong = differences(manifest, folder, unread, prints)
        material = self.material(key)
        if material is None or digest(material) != key:
            wrong.append(f"{MATERIAL} does not belong to this key")
        return tuple(wrong)

    def __iter__(self) -> Iterator[str]:
        """Yield the keys of everything in `objects/`, damaged or not."""
        for group in sorted((self.root / "objects").glob("??")):
            yield from (entry.name for entry in sorted(group.iterdir()))

    @contextmanager
    def lock(self, key: str) -> Iterator[bool]:
        """Hold the key for this process inside the block; False at once if another process has it."""
        with ExitStack() as stack:
            with storing(self.root):
                got = stack.enter_context(hold(self.root / "locks" / key))
            yield got

    def busy(self, key: str) -> bool:
        """Return whether a process holds the key."""
        return is_held(self.root / "locks" / key)

    @contextmanager
    def turn(self, name: str) -> Iterator[None]:
        """Hold the lock called `name` inside the block, after waiting for it; keep the block short."""
        with ExitStack() as stack:
            with storing(self.root):
                stack.enter_context(turn(self.root / "locks" / f"turn.{name}"))
            yield

    def begin(self, key: str) -> Path:
        """Create an empty folder to write the result of `key` into, invisible until it is committed.

        Call with the key's lock held: what a killed attempt left behind is removed.
        """
        self.tidy(key)
        with storing(self.root):
            folder = self.root / "tmp" / f"{key}.{os.getpid()}.{secrets.token_hex(4)}"
            folder.mkdir()
            return folder

    def work(self, key: str) -> Path:
        """Return the folder that an interrupted attempt at `key` left, or would leave. Call with the key's lock held."""
        folder = self.root / "work" / key
        if folder.is_dir():
            # What an attempt was in the middle of writing when it was killed: as large as a checkpoint each time.
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
        """Make `out` the complete, durable result of `key`, and forget the work folder.

        Without `durable` the disk is not waited for: a power cut may lose the result, which is then found missing or
        damaged and computed again. Call with the key's lock held.

        Raises:
            Problem: E0990 for a result with links or without files, E0950 if it cannot be stored; then nothing of it
                is visible.
        """
        with storing(self.root):
            files: dict[str, tuple[int, str]] = {}
            for entry in walk(out):
                if entry.is_symlink() or not (entry.is_dir() or entry.is_file()):
                    raise self._illegal(f"`{entry.relative_to(out)}` is neither a file nor a folder")
                if entry.is_file():
                    files[entry.relative_to(out).as_posix()] = (entry.stat().st_size, hash_plain(entry))
            if not files or {MATERIAL, MANIFEST} & files.keys():
                raise self._illegal("no files" if not files else f"a file named {MATERIAL} or {MANIFEST}")
            created = datetime.now(UTC).isoformat(timespec="seconds")
            manifest = Manifest(key, files, created, dict(origin))
            (out / MATERIAL).write_bytes(json_bytes(dict(material)))
            (out / MANIFEST).write_bytes(json_bytes(manifest_json(manifest)))
            for entry in walk(out):
                if durable:
                    sync(entry)
                # A file with another name elsewhere, such as linked weights, keeps its owner's permissions.
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
        """Remove a folder that was begun and will not be committed."""
        shutil.rmtree(out, ignore_errors=True)

    def tidy(self, key: str) -> None:
        """Remove what a process that is gone was writing for `key`. Call when no other can be at it."""
        # Not `glob`, which would compile a pattern for every key.
        for name in os.listdir(self.root / "tmp"):
            if name.startswith(f"{key}."):
                shutil.rmtree(self.root / "tmp" / name, ignore_errors=True)
        (self.root / "live" / f"{key}.json").unlink(missing_ok=True)

    def forget_work(self, key: str) -> None:
        """Remove what an interrupted attempt at `key` left."""
        shutil.rmtree(self.root / "work" / key, ignore_errors=True)

    def remove(self, key: str) -> None:
        """Remove a result: first its name in a single step, then the files."""
        with storing(self.root):
            if self.path(key).exists():
                self._discard(self.path(key))

    def _discard(self, folder: Path) -> None:
        grave = self.root / "tmp" / f"{folder.name}.{os.getpid()}.{secrets.token_hex(4)}.removed"
        folder.rename(grave)
        shutil.rmtree(grave, ignore_errors=True)

    def _foreign(self, reason: str, instead: str = "") -> Exception:
        return problem(
            "E0952",
            f"this folder cannot be used as a store: {reason}",
            where=self.shown,
            help=instead or "name an empty or new folder: --store DIR (or REODSL_STORE)",
        )

    def _illegal(self, reason: str) -> Exception:
        return problem(
            "E0990",
            f"a task's result cannot be stored: {reason}",
            where=self.shown,
            help="this is a defect of the runner: a result is plain files in its folder",
        )


ACCEPTED = "accepted"


@dataclass(frozen=True, slots=True)
class Acceptance:
    """A person's decision that a result stays valid for a task that would now run otherwise.

    `result` is the key of the result that was accepted, `because` the person's reason, `changes` in words what would
    have made the task run, `at` when it was accepted.
    """

    result: str
    because: str
    changes: tuple[str, ...]
    at: str


def acceptances(manifest: Manifest) -> tuple[Acceptance, ...]:
    """Return every acceptance behind a result, the first one first; empty for a result that was computed as recorded."""
    return tuple(
        Acceptance(item["result"], item["because"], tuple(item["changes"]), item["at"])
        for item in manifest.provenance.get(ACCEPTED, ())
    )


def add_acceptances(task: Task, manifests: Mapping[str, Manifest]) -> Task:
    """Return a report's task with the acceptances among the results of its study; another task unchanged."""
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
    """Make the content of `old` the result of `key` too, linked if the file system can, with the reason beside it.

    Its provenance is kept, and so are acceptances before this one. Call with the key's lock held. Raises E0950 or
    E0950 if it cannot be stored.
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
