"""Write tables of training as Parquet files, whole or not at all."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import polars as pl

WHOLE = {"step"}
"""Columns of metrics that hold whole numbers."""


def write_parquet(frame: pl.DataFrame, path: Path) -> None:
    """Write a Parquet file that appears whole or not at all."""
    aside = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        frame.write_parquet(aside)
        os.replace(aside, path)
    finally:
        aside.unlink(missing_ok=True)


def join_parquet(parts: Sequence[Path], schema: Mapping[str, Any], path: Path) -> None:
    """Join Parquet files in their order, never in memory as a whole; a column that a part lacks is null there."""
    none = pl.LazyFrame(schema=schema)
    frame = (
        pl.scan_parquet(list(parts), schema=schema, missing_columns="insert", glob=False) if parts else none
    )
    frame.sink_parquet(path, maintain_order=True)


def metrics_table(rows: Sequence[Mapping[str, float]]) -> pl.DataFrame:
    """Return one row a step, `step` counted from 1; a column for every name that any row has, null where one has not."""
    names = list(dict.fromkeys(name for row in rows for name in row))
    return pl.DataFrame(
        {name: [row.get(name) for row in rows] for name in names},
        schema={name: pl.Int64 if name in WHOLE else pl.Float64 for name in names},
        strict=False,
    )
