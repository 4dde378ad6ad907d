"""Read artifacts for the report: what they hold and how they were made."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import polars as pl

from reodsl.diagnostics import first_line, problem
from reodsl.store.manifest import MANIFEST


@dataclass(frozen=True, slots=True)
class Made:
    """The origin of an artifact, as far as its store wrote it down: its key, seconds, device and versions.

    `unconfined` is why answers were checked outside a sandbox there; empty where they were inside. `hub` has the commits
    of a hub's models and data sets that it goes back to, by repository.
    """

    key: str
    seconds: float | None = None
    device: str = ""
    versions: Mapping[str, str] = field(default_factory=dict)
    unconfined: str = ""
    hub: Mapping[str, str] = field(default_factory=dict)


def read_origin(folder: Path) -> Made:
    """Return the store's manifest of an artifact; only its key if it has none."""
    try:
        record = json.loads((folder / MANIFEST).read_text("utf-8"))["made"]
        versions = {str(name): str(version) for name, version in record.get("versions", {}).items()}
        seconds, device = float(record["seconds"]), str(record.get("device", ""))
        hub = {str(repo): str(commit) for repo, commit in record.get("hub", {}).items()}
        return Made(folder.name, seconds, device, versions, str(record.get("unconfined") or ""), hub)
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return Made(folder.name)


@contextmanager
def reading(place: Path) -> Iterator[None]:
    """Says of what cannot be read in this block that the artifact at `place` is damaged (E0981)."""
    try:
        yield
    except (OSError, ValueError, pl.exceptions.PolarsError) as failure:
        raise problem(
            "E0981",
            f"an artifact of this run cannot be read: {first_line(failure)}",
            where=str(place),
            help="find what is damaged with `reodsl ls --verify`; running the spec again makes it anew",
        ) from None


def read_json(path: Path) -> Any:
    """Read a JSON file. Raises E0981."""
    with reading(path):
        return json.loads(path.read_text("utf-8"))


def read_parquet(path: Path) -> pl.DataFrame:
    """Return a Parquet file as a whole. Raises E0981."""
    with reading(path):
        return pl.read_parquet(path, glob=False)
