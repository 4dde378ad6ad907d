"""Laying out a run's results in a folder for people: the report first, then every arm's samples and checkpoint.

The folder is marked as a run's. Only an empty folder or a marked one is written to, only files that runs wrote are replaced,
and no link in it is followed.
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
"""The file that marks a run's folder: a line for the form of it, then one for each file that runs wrote there."""
_FORM = "reodsl run 1"
_ASIDE = ".reodsl.unfinished"
"""The folder in which files are written before they take their places."""
_LARGEST_MARK = 1 << 26
_LONGEST = 60
_UNMARKED = {"report.html", "spec.reo.json"}


@dataclass(frozen=True, slots=True)
class _Piece:
    """A file to bring: where it is, what it is to be called in the run's folder, and whether it is copied or linked."""

    source: Path
    name: str
    copy: bool = False


def lay_out(graph: Graph, keys: Mapping[str, str], store: Store, out: Path) -> Path | None:
    """Put the report and the arms' results under `out`; the report's page, or None when it was not made.

    `arms/<arm>[.s<seed>]/` holds an evaluation's files and the `checkpoint/` it is of; `stages/<index>/` below it
    the training's metrics and rollouts. The report is copied, as people edit and send it; the rest is linked where
    the file system can. Raises E0118 for a folder that is not a run's.
    """
    report = graph["report"]
    pieces: list[_Piece] = []
    for role, source in report.inputs.items():
        if source not in keys:
            continue
        start_task = graph[source].inputs.get("start", "")
        start = store.path(keys[start_task]) if start_task in keys else None
        pieces += _list_arm_files(role, store.path(keys[source]), start)
    if report.id in keys:
        pieces += _list_folder_files(store.path(keys[report.id]), Path(), copy=True)
    _bring(pieces, store, out)
    return out / "report.html" if report.id in keys else None


def require_place(out: Path, store: Store) -> None:
    """Refuse a folder that no run may fill: a link, a folder with other files, or a folder of the store.

    Raises:
        Problem: E0118.
    """
    real, root = Path(os.path.realpath(out)), Path(os.path.realpath(store.root))
    if real == root or real.is_relative_to(root):
        raise _refuse_folder(out, "it is the store, or inside of it")
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
        raise _refuse_folder(out, "it holds files that no run wrote")


def _is_marked(out: Path, names: set[str]) -> bool:
    """Return whether a folder is a run's: by its mark, or by a report and its spec, as older runs left it."""
    if MARK in names:
        return _list_written(out) is not None
    return (
        all(stat.S_ISREG((out / name).lstat().st_mode) for name in _UNMARKED) if names >= _UNMARKED else False
    )


def _list_written(out: Path) -> set[str] | None:
    """Return the files that runs wrote to a folder; None without a mark."""
    try:
        if (out / MARK).is_symlink():
            return None
        form, *names = read_plain(out / MARK, _LARGEST_MARK).decode("utf-8").splitlines()
    except (OSError, ValueError):
        return None
    return set(names) if form == _FORM else None


def run_folder(study: str, digest: str) -> Path:
    """Return a run's default folder: `runs/STUDY-DIGEST`; `digest` is the spec's."""
    return Path("runs") / f"{slug(study)}-{digest[:8]}"


def arm_folder(arm: str, seed: str) -> Path:
    """Return an arm's folder in a run's folder, unique to the arm; `seed` may be empty.

    It has the arm's name if that is short and plain; else it ends with a digest of the name.
    """
    name = slug(arm)
    if name != arm:
        name = f"{name[: _LONGEST - 9]}-{hashlib.sha256(arm.encode()).hexdigest()[:8]}"
    return Path("arms") / (name + (f".s{seed}" if seed else ""))


def models(report: Path) -> list[Path]:
    """Return the folders of the arms' models in the run's folder that a report is in."""
    return sorted(report.parent.glob("arms/*/checkpoint"))


def put_report(store: Store, report: Path, out: Path) -> None:
    """Move a drawn report into `out`, each file in one step.

    Raises:
        Problem: E0118 if `out` may not be filled.
    """
    _bring(list(_list_folder_files(report, Path(), copy=True)), store, out)


def _list_arm_files(role: str, result: Path, start: Path | None) -> Iterator[_Piece]:
    """Yield the files of an arm for a role of the report; `start` is the result at which its training began."""
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
                yield _Piece(result / file, (folder / "stages" / index / file).as_posix())


def _list_folder_files(source: Path, folder: Path, copy: bool = False) -> Iterator[_Piece]:
    """Yield all files of a result, to be put below `place`."""
    for path in sorted(source.rglob("*")):
        name = path.relative_to(source)
        if path.is_file() and name.as_posix() not in (MATERIAL, MANIFEST):
            yield _Piece(path, (folder / name).as_posix(), copy)


def _bring(pieces: list[_Piece], store: Store, out: Path) -> None:
    """Put files under `out`, each in one step; E0118 before anything is written if a file may not be replaced."""
    require_place(out, store)
    if not pieces:
        return
    with storing(out), store.turn("layout"):
        before = _list_written(out)
        for piece in pieces:
            _require_free(out, piece.name, before)
        out.mkdir(parents=True, exist_ok=True)
        names = {piece.name for piece in pieces} | (before or set())
        # Written first: what a killed run leaves is known to be a run's.
        if names != before:
            write_atomic(out / MARK, "\n".join([_FORM, *sorted(names), ""]).encode())
        scratch = out / _ASIDE
        if scratch.is_symlink():
            raise _refuse_folder(out, f"`{_ASIDE}` in it is not a folder of a run")
        # Nobody else lays out now, so what is there is from a run that was killed at it.
        shutil.rmtree(scratch, ignore_errors=True)
        scratch.mkdir()
        try:
            for piece in pieces:
                _bring_file(piece, out, scratch)
        finally:
            shutil.rmtree(scratch, ignore_errors=True)


def _require_free(out: Path, name: str, run_files: set[str] | None) -> None:
    """Refuse to write through a link, or over a file that no run wrote; without a mark every name is a run's."""
    target = out / name
    for above in reversed(Path(name).parents[:-1]):
        folder = out / above
        if folder.is_symlink() or (os.path.lexists(folder) and not folder.is_dir()):
            raise _refuse_folder(out, f"`{above.as_posix()}` in it is not a folder of a run")
    if os.path.lexists(target) and (
        not stat.S_ISREG(target.lstat().st_mode) or (run_files is not None and name not in run_files)
    ):
        raise _refuse_folder(out, f"`{name}` in it was not written by a run")


def _bring_file(piece: _Piece, out: Path, scratch: Path) -> None:
    """Replace a file in one step, unless it is the same file already."""
    target = out / piece.name
    if target.exists() and target.samefile(piece.source):
        return
    target.parent.mkdir(parents=True, exist_ok=True)
    copy = scratch / secrets.token_hex(8)
    bring = shutil.copyfile if piece.copy else link_or_copy
    bring(piece.source, copy)
    copy.replace(target)


def _refuse_folder(out: Path, reason: str) -> Problem:
    return problem(
        "E0118",
        f"nothing can be written here: {reason}",
        where=str(out),
        help="name another place with --out: a new or empty folder, or one that a run filled",
    )
