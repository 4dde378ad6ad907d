"""Writing a run's evaluations into a folder, as logs of inspect_ai."""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator
from pathlib import Path

from reodsl.share import figures, inspect_log
from reodsl.share.evaluated import Shared
from reodsl.store.files import storing


def export(shared: Shared, out: Path) -> list[Path]:
    """Write a log per evaluation and benchmark into `out`, each file whole or not at all, and return the files.

    An older file of that name is of the same evaluation, and is replaced. Raises E0950 or E0951 where the disk refuses.
    """
    files = []
    with storing(out):
        out.mkdir(parents=True, exist_ok=True)
        for one in shared.evaluations:
            for benchmark in figures.benchmarks(shared.material, one):
                files.append(out / inspect_log.file_name(shared.material, one, benchmark))
                _write(files[-1], inspect_log.log(shared.material, one, benchmark))
    return files


def _write(path: Path, pieces: Iterator[str]) -> None:
    """Write a file that may be large, and give it its name once it is whole."""
    aside = path.with_name(f".{path.name}.{os.getpid()}.{secrets.token_hex(4)}")
    try:
        with aside.open("wb") as file:
            file.writelines(piece.encode() for piece in pieces)
        aside.replace(path)
    except BaseException:
        aside.unlink(missing_ok=True)
        raise
