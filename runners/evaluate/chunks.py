"""Do work in chunks that survive an interruption, and join their tables.

A chunk is there as a whole or not at all, so that what is left to do is known by its marker alone.
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path

import polars as pl

from reodsl.store.files import sync
from reodsl.store.live import mark_kept


class Chunks:
    """Chunks of some tables in a folder of a task's work folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        for left in folder.glob("*.part"):
            shutil.rmtree(left)

    def done(self, index: int) -> bool:
        """Return whether a chunk is complete."""
        return self._place(index).is_dir()

    def put(self, index: int, tables: Mapping[str, pl.DataFrame]) -> None:
        """Store a chunk's tables: written aside, on the disk, then moved into place at once."""
        part = self._folder / f"{index:07d}.part"
        part.mkdir()
        for name, frame in tables.items():
            path = part / f"{name}.parquet"
            frame.write_parquet(path)
            sync(path)
        part.rename(self._place(index))
        mark_kept(self._folder.parent, sum(1 for _ in self._folder.iterdir()))

    def get(self, index: int, table: str, columns: Sequence[str]) -> pl.DataFrame:
        """Return some columns of one table of a chunk."""
        return pl.read_parquet(self._place(index) / f"{table}.parquet", columns=list(columns), glob=False)

    def join(self, count: int, table: str, path: Path) -> None:
        """Write a table of chunks 0 … count - 1, in their order, to one file without holding it in memory."""
        parts = [self._place(index) / f"{table}.parquet" for index in range(count)]
        pl.scan_parquet(parts, glob=False).sink_parquet(path, maintain_order=True)

    def _place(self, index: int) -> Path:
        return self._folder / f"{index:07d}"
