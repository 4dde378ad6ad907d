"""Questions of a hub's data set: from a local mirror, the hub's cache on this machine, or the hub itself.

A mirror is a folder of Parquet, JSONL, JSON or CSV files under `data/OWNER/NAME` beside the spec, or under the
folder that `REODSL_DATA` names. Nothing of a data set is executed: loading scripts are not run.

`datasets` is asked only for what is not on this machine. It guesses the files of a split as this does, but copies them into
a cache of its own, with pyarrow and pandas, which a mirror is there to do without. Names have their form from `reodsl.ir`.
"""

from __future__ import annotations

import importlib.util
import os
import re
from pathlib import Path

import polars as pl

from reodsl.diagnostics import Diagnostic, Problem, error, first_line, problem
from reodsl.ir.data import HubData
from reodsl.ir.names import DATA_FILES
from reodsl.store.external import hub_snapshot
from runners.data.files import read_questions
from runners.data.table import questions_table

_SPLIT = re.compile(r"(?<![a-z])(train|test|valid|validation|dev|eval)(?![a-z])", re.IGNORECASE)


def read_hub(source: HubData, folder: Path) -> pl.DataFrame:
    """Read the questions table of a hub data set; `folder` is the spec's. Emptiness and duplicates are not yet checked.

    Raises a Problem: E0708 where the data set is nowhere to be found or has no such split, and what reading a
    file raises.
    """
    files = local_files(source, folder)
    if files:
        return pl.concat([read_questions(path, source.columns) for path in files])
    missing = hub_problem(source, folder)
    if missing is not None:
        raise Problem(missing)
    return _download(source)


def hub_problem(source: HubData, folder: Path) -> Diagnostic | None:
    """Return why this data set cannot be read here (E0708): no local copy and no way to fetch one."""
    if local_files(source, folder) or (importlib.util.find_spec("datasets") is not None and not _offline()):
        return None
    return _missing(
        source, "it is not on this machine, and the package `datasets` is not installed (or is offline)"
    )


def local_files(source: HubData, folder: Path) -> list[Path]:
    """Return the files of the data set's split on this machine, from the first place that has some, sorted by path."""
    for place in _places(source, folder):
        files = _split_files(place, source)
        if files:
            return files
    return []


def _places(source: HubData, folder: Path) -> list[Path]:
    """Return where a copy of the data set may lie: beside the spec, in REODSL_DATA, in the hub's cache."""
    places = [folder / "data" / source.repo]
    if os.environ.get("REODSL_DATA"):
        places.append(Path(os.environ["REODSL_DATA"]) / source.repo)
    snapshot = hub_snapshot("datasets", source.repo, source.revision)
    return places if snapshot is None else [*places, snapshot]


def _split_files(place: Path, source: HubData) -> list[Path]:
    """Return files such as `test.jsonl`, `data/test-00000-of-00002.parquet`, `NAME/test-0.parquet` or `test/0.parquet`.

    Where no file names any split, all of them are the split `train`, as hubs have it.
    """
    if not place.is_dir():
        return []
    roots = [place / source.name, place / "data" / source.name] if source.name else [place, place / "data"]
    for root in roots:
        for pattern in (f"{source.split}.*", f"{source.split}-*", f"{source.split}/*"):
            files = sorted(path for path in root.glob(pattern) if path.suffix.lower() in DATA_FILES)
            if files:
                return files
        every = sorted(path for path in root.glob("*") if path.suffix.lower() in DATA_FILES)
        if every and source.split == "train" and not any(_SPLIT.search(path.stem) for path in every):
            return every
    return []


def _offline() -> bool:
    return any(
        os.environ.get(name, "") not in ("", "0") for name in ("HF_HUB_OFFLINE", "HF_DATASETS_OFFLINE")
    )


def _download(source: HubData) -> pl.DataFrame:
    """Ask the `datasets` package, which keeps what it fetches."""
    datasets = importlib.import_module("datasets")
    try:
        loaded = datasets.load_dataset(source.repo, source.name, split=source.split, revision=source.revision)
        frame = pl.from_arrow(loaded.data.table)
    except Exception as failure:
        raise Problem(_missing(source, first_line(failure))) from None
    if not isinstance(frame, pl.DataFrame):
        raise problem(
            "E0708", "the data set is not a table", where=source.repo, help="name one of its splits"
        )
    return questions_table(frame, source.columns, source.repo)


def _missing(source: HubData, why: str) -> Diagnostic:
    name = f", part `{source.name}`" if source.name else ""
    revision = f" --revision {source.revision}" if source.revision else ""
    return error(
        "E0708",
        f"the data set `{source.repo}`{name}, split `{source.split}`, cannot be read: {why}",
        where="hub data",
        notes=[
            f"looked for `{source.split}.jsonl`, `{source.split}-*.parquet` and the like in "
            f"`data/{source.repo}` beside the spec, in $REODSL_DATA and in the hub's cache"
        ],
        help=f"where there is a network: `hf download --repo-type dataset {source.repo}{revision} "
        f"--local-dir data/{source.repo}`, then copy that folder beside the spec",
    )
