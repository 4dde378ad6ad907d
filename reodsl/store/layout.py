"""Copy or link a run's results into a folder for people: the report, and every arm's samples and checkpoint.

A mark in the folder says that runs fill it. Only an empty or a marked folder is written to, only files that runs wrote are
replaced, and links in the folder are not followed.
"""

from __future__ import annotations

import hashlib
import os
import secrets
import shutil
import stat
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from reodsl.diagnostics import Problem, problem
from reodsl.graph.task import Graph
from reodsl.store.files import link_or_copy, read_plain, storing, write_atomic
from reodsl.store.manifest import MANIFEST
from reodsl.store.runs import slug
from reodsl.store.store import MATERIAL, Store

MARK = ".reodsl-run"
"""File that marks a run's folder: a line with the mark's version, then the name of each file that runs wrote there."""
_FORM = "reodsl run 1"
_ASIDE = ".reodsl.unfinished"
"""Folder in which files are written before they are moved to their names."""
_LARGEST_MARK = 1 << 26
"""Largest size of a mark in bytes."""
_LONGEST = 60
"""Characters of an arm's folder name at most."""
_UNMARKED = {"report.html", "spec.reo.json"}
"""Files of a run's folder from before there were marks."""


@dataclass(frozen=True, slots=True)
class _ResultFile:
    """A file of a result that belongs into a run's folder."""

    source: Path
    """Path in the store."""
    name: str
    """Path in the run's folder."""
    copy: bool = False
    """True to copy the file; False to link it if possible."""


def lay_out(graph: Graph, keys: Mapping[str, str], store: Store, out: Path) -> Path | None:
    """Copy or link the report and the arms' results into a folder.

    `arms/<arm>[.s<seed>]/` gets the files of the arm's evaluation and its `checkpoint/`, and `stages/<index>/` below it
    the metrics and rollouts of a stage. The report is copied, as people edit and send it; other files are linked if the
    file system can.

    Args:
        graph: Tasks of the run.
        keys: Keys of the results by task, as far as they exist.
        store: Store of the results.
        out: The folder.

    Returns:
        The report's page in the folder, or None if the report has no result.

    Raises:
        Problem: E0118 for a folder with files that no run wrote.
    """
    report = graph["report"]
    files: list[_ResultFile] = []
    for role, source in report.inputs.items():
        if source not in keys:
            continue
        start_id = graph[source].inputs.get("start", "")
        start = store.path(keys[start_id]) if start_id in keys else None
        files += _list_arm_files(role, store.path(keys[source]), start)
    if report.id in keys:
        files += _list_folder_files(store.path(keys[report.id]), Path(), copy=True)
    _write_files(files, store, out)
    return out / "report.html" if report.id in keys else None


def require_place(out: Path, store: Store) -> None:
    """Check that a run may write its results into a folder.

    Raises:
        Problem: E0118 for a link, a folder with files that no run wrote, or a folder in the store.
    """
    real, root = Path(os.path.realpath(out)), Path(os.path.realpath(store.root))
    if real == root or real.is_relative_to(root):
        raise _refuse_folder(out, "it is the store, or in the store")
    try:
        if out.is_symlink():
            raise _refuse_folder(out, f"it is a link, to {os.readlink(out)}")
        names = {entry.name for entry in out.iterdir()}
    except FileNotFoundError:
        return
    except OSError as fault:
        raise _refuse_folder(
            out, "it is not a folder" if isinstance(fault, NotADirectoryError) else str(fault.strerror)
        ) from None
    if names and not _is_marked(out, names):
        raise _refuse_folder(out, "it has files that no run wrote")


def _is_marked(out: Path, names: set[str]) -> bool:
    """Return whether a folder with the entries `names` was filled by a run.

    Such a folder has the file `MARK` of this version. Runs of earlier versions left no mark, but a report and a compiled
    spec.
    """
    if MARK in names:
        return _list_written(out) is not None
    return (
        all(stat.S_ISREG((out / name).lstat().st_mode) for name in _UNMARKED) if names >= _UNMARKED else False
    )


def _list_written(out: Path) -> set[str] | None:
    """Return the paths of the files that runs wrote to a folder, as the file `MARK` in the folder lists them.

    The result is None if the mark is missing, a link, unreadable, or of another version.
    """
    try:
        if (out / MARK).is_symlink():
            return None
        version, *names = read_plain(out / MARK, _LARGEST_MARK).decode("utf-8").splitlines()
    except (OSError, ValueError):
        return None
    return set(names) if version == _FORM else None


def run_folder(study: str, digest: str) -> Path:
    """Return the default folder for a run's report: `runs/STUDY-DIGEST`, with the start of the spec's digest."""
    return Path("runs") / f"{slug(study)}-{digest[:8]}"


def arm_folder(arm: str, seed: str) -> Path:
    """Return the path of an arm's folder in a run's folder, which no other arm has.

    It is the arm's name if that is a short file name; otherwise it ends with a digest of the name.

    Args:
        arm: Name of the arm.
        seed: Seed of the arm's training; empty if the study has a single seed.
    """
    name = slug(arm)
    if name != arm:
        name = f"{name[: _LONGEST - 9]}-{hashlib.sha256(arm.encode()).hexdigest()[:8]}"
    return Path("arms") / (name + (f".s{seed}" if seed else ""))


def models(report: Path) -> list[Path]:
    """Return the checkpoint folders of all arms in the run's folder of a report's page."""
    return sorted(report.parent.glob("arms/*/checkpoint"))


def put_report(store: Store, report: Path, out: Path) -> None:
    """Copy a report into a run's folder, each file in one step.

    Args:
        store: The store, which the folder must not be in.
        report: Folder of the report's files.
        out: The run's folder.

    Raises:
        Problem: E0118 if the folder has files that no run wrote.
    """
    _write_files(list(_list_folder_files(report, Path(), copy=True)), store, out)


def _list_arm_files(role: str, result: Path, start: Path | None) -> Iterator[_ResultFile]:
    """Yield the files of a result that belong into an arm's folder; none for a result that is no evaluation or training.

    Args:
        role: Role of the result in the report, such as `evaluate:vanilla@1` or `train:vanilla:0@1`.
        result: Folder of the result in the store.
        start: For an evaluation, the folder of the result with the evaluated checkpoint; None if it has no such result.
    """
    name, _, seed = role.partition("@")
    kind, _, rest = name.partition(":")
    arm, _, index = rest.partition(":")
    folder = arm_folder(arm, seed)
    if kind == "evaluate":
        yield from _list_folder_files(result, folder)
        if start is not None:
            yield from _list_folder_files(start / "checkpoint", folder / "checkpoint")
    elif kind == "train":
        for file in ("metrics.parquet", "rollouts.parquet"):
            if (result / file).exists():
                yield _ResultFile(result / file, (folder / "stages" / index / file).as_posix())


def _list_folder_files(source: Path, folder: Path, copy: bool = False) -> Iterator[_ResultFile]:
    """Yield all files of a result, with their paths in a run's folder.

    Args:
        source: Folder of the result.
        folder: Folder for the files, relative to the run's folder.
        copy: Whether the files will be copied instead of linked.
    """
    for path in sorted(source.rglob("*")):
        name = path.relative_to(source)
        if path.is_file() and name.as_posix() not in (MATERIAL, MANIFEST):
            yield _ResultFile(path, (folder / name).as_posix(), copy)


def _write_files(files: list[_ResultFile], store: Store, out: Path) -> None:
    """Copy or link files into a run's folder, each in one step.

    Args:
        files: The files.
        store: The store, whose lock `layout` is held meanwhile.
        out: The run's folder.

    Raises:
        Problem: E0118, before anything is written, if the folder or a file in it was not written by runs.
    """
    require_place(out, store)
    if not files:
        return
    with storing(out), store.turn("layout"):
        written = _list_written(out)
        for file in files:
            _require_free(out, file.name, written)
        out.mkdir(parents=True, exist_ok=True)
        names = {file.name for file in files} | (written or set())
        # The mark is written first, so that files of a killed run are known to be a run's.
        if names != written:
            write_atomic(out / MARK, "\n".join([_FORM, *sorted(names), ""]).encode())
        scratch = out / _ASIDE
        if scratch.is_symlink():
            raise _refuse_folder(out, f"`{_ASIDE}` in it is not a folder of a run")
        # This process holds the lock `layout`, so present files are from a run that was killed.
        shutil.rmtree(scratch, ignore_errors=True)
        scratch.mkdir()
        try:
            for file in files:
                _write_file(file, out, scratch)
        finally:
            shutil.rmtree(scratch, ignore_errors=True)


def _require_free(out: Path, name: str, run_files: set[str] | None) -> None:
    """Check that a file may be written: not through a link, and not over a file that no run wrote.

    Args:
        out: The run's folder.
        name: Path of the file in the folder.
        run_files: Paths of the files that runs wrote; None if the folder has no mark, so that any file may be replaced.

    Raises:
        Problem: E0118 if it may not be written.
    """
    target = out / name
    for relative in reversed(Path(name).parents[:-1]):
        folder = out / relative
        if folder.is_symlink() or (os.path.lexists(folder) and not folder.is_dir()):
            raise _refuse_folder(out, f"`{relative.as_posix()}` in it is not a folder of a run")
    if os.path.lexists(target) and (
        not stat.S_ISREG(target.lstat().st_mode) or (run_files is not None and name not in run_files)
    ):
        raise _refuse_folder(out, f"`{name}` in it was not written by a run")


def _write_file(file: _ResultFile, out: Path, scratch: Path) -> None:
    """Copy or link a file into a run's folder in one step; do nothing if the folder already has a link to this file.

    Args:
        file: The file.
        out: The run's folder.
        scratch: Folder on the same file system for the unfinished copy.
    """
    target = out / file.name
    if target.exists() and target.samefile(file.source):
        return
    target.parent.mkdir(parents=True, exist_ok=True)
    copy = scratch / secrets.token_hex(8)
    bring = shutil.copyfile if file.copy else link_or_copy
    bring(file.source, copy)
    copy.replace(target)


def _refuse_folder(out: Path, reason: str) -> Problem:
    """Return E0118 for a folder that a run may not fill, with the reason."""
    return problem(
        "E0118",
        f"nothing can be written here: {reason}",
        where=str(out),
        help="name another folder with --out: a new or empty folder, or a folder that a run filled",
    )
