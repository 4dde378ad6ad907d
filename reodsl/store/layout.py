"""Laying out a run's results in a folder for people: the report first, then every arm's samples and checkpoint."""

from __future__ import annotations

import os
import secrets
import shutil
from collections.abc import Mapping
from pathlib import Path

from reodsl.graph.task import Graph
from reodsl.store.files import storing
from reodsl.store.manifest import MANIFEST
from reodsl.store.runs import slug
from reodsl.store.store import MATERIAL, Store

_ASIDE = ".unfinished"


def lay_out(graph: Graph, keys: Mapping[str, str], store: Store, out: Path) -> Path | None:
    """Put the report and the arms' results under `out`; the report's page, or None when it was not made.

    `arms/<arm>[.s<seed>]/` holds an evaluation's files and the `checkpoint/` it is of; `stages/<index>/` below it
    the training's metrics and rollouts. The report is copied, as people edit and send it; the rest is linked where
    the file system can.
    """
    report = graph["report"]
    with storing(out), store.turn("layout"):
        # Nobody else lays out now, so these are from a run that was killed at it.
        for left in out.rglob(f".*{_ASIDE}"):
            left.unlink()
        for role, source in report.inputs.items():
            if source not in keys:
                continue
            begun = graph[source].inputs.get("start", "")
            start = store.path(keys[begun]) if begun in keys else None
            _bring_arm(role, store.path(keys[source]), start, out)
        if report.id not in keys:
            return None
        _bring(store.path(keys[report.id]), out, copy=True)
    return out / "report.html"


def run_folder(study: str, digest: str) -> Path:
    """Where a run's results are laid out where nobody says: `runs/STUDY-DIGEST`; `digest` is the spec's."""
    return Path("runs") / f"{slug(study)}-{digest[:8]}"


def arm_folder(arm: str, seed: str) -> Path:
    """Where an arm's results are in a run's folder; `seed` is empty where there is none."""
    return Path("arms") / (slug(arm) + (f".s{seed}" if seed else ""))


def models(report: Path) -> list[Path]:
    """The folders of the arms' models in the run's folder that a report is in."""
    return sorted(report.parent.glob("arms/*/checkpoint"))


def put_report(store: Store, drawn: Path, out: Path) -> None:
    """Put a report that was drawn in a folder of its own under `out`, each file replaced in one step."""
    with storing(out), store.turn("layout"):
        _bring(drawn, out, copy=True)


def _bring_arm(role: str, result: Path, start: Path | None, out: Path) -> None:
    """What the report reads in a role, where it is an arm's; `start` is the result that this one began from."""
    name, _, seed = role.partition("@")
    kind, _, rest = name.partition(":")
    arm, _, index = rest.partition(":")
    place = out / arm_folder(arm, seed)
    if kind == "evaluate":
        _bring(result, place)
        if start is not None:
            _bring(start / "checkpoint", place / "checkpoint")
    elif kind == "train":
        for file in ("metrics.parquet", "rollouts.parquet"):
            if (result / file).exists():
                _bring_file(result / file, place / "stages" / index / file)


def _bring(source: Path, out: Path, copy: bool = False) -> None:
    for path in sorted(source.rglob("*")):
        name = path.relative_to(source)
        if path.is_file() and name.as_posix() not in (MATERIAL, MANIFEST):
            _bring_file(path, out / name, copy)


def _bring_file(source: Path, target: Path, copy: bool = False) -> None:
    """One file, replaced in one step; left alone where it is the same file already."""
    if target.exists() and target.samefile(source):
        return
    target.parent.mkdir(parents=True, exist_ok=True)
    aside = target.with_name(f".{target.name}.{secrets.token_hex(4)}{_ASIDE}")
    try:
        if copy:
            shutil.copyfile(source, aside)
        else:
            try:
                os.link(source, aside)
            except OSError:
                shutil.copyfile(source, aside)
        aside.replace(target)
    except BaseException:
        aside.unlink(missing_ok=True)
        raise
