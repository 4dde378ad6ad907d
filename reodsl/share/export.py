"""Writing a run's evaluations into a folder, in the form that another tool reads."""

from __future__ import annotations

import os
import secrets
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Literal

from reodsl.share import figures, inspect_log, lighteval_results
from reodsl.share.evaluated import Shared
from reodsl.store.files import storing, write_json

Format = Literal["inspect", "lighteval"]


def export(shared: Shared, to: Format, out: Path) -> list[Path]:
    """Write every evaluation of `shared` below `out`, each file whole or not at all, and return the files.

    A file that is there already under such a name is of the same evaluation, and is replaced. Raises E0950 or E0951 where
    the disk refuses.
    """
    with storing(out):
        return list(_inspect(shared, out) if to == "inspect" else _lighteval(shared, out))


def _inspect(shared: Shared, out: Path) -> Iterator[Path]:
    """A log for each evaluation and benchmark, all in one folder, as inspect's own logs are."""
    out.mkdir(parents=True, exist_ok=True)
    material = shared.material
    for one in shared.evaluations:
        for benchmark in figures.benchmarks(material, one):
            path = out / inspect_log.file_name(material, one, benchmark)
            _write(path, _lines_of(inspect_log.log(material, one, benchmark)))
            yield path


def _lighteval(shared: Shared, out: Path) -> Iterator[Path]:
    """`results/` and `details/`, as lighteval's `--output-dir` has them."""
    for one in shared.evaluations:
        name, date = lighteval_results.folder(shared.material, one), lighteval_results.date(one)
        path = out / "results" / name / f"results_{date}.json"
        path.parent.mkdir(parents=True, exist_ok=True)
        write_json(path, lighteval_results.results(shared.material, one))
        yield path
        below = out / "details" / name / date
        below.mkdir(parents=True, exist_ok=True)
        for task, frame in lighteval_results.details(shared.material, one).items():
            path = below / f"details_{task}_{date}.parquet"
            _write(path, frame.write_parquet)
            yield path


def _lines_of(pieces: Iterator[str]) -> Callable[[Any], object]:
    return lambda file: file.writelines(piece.encode() for piece in pieces)


def _write(path: Path, write: Callable[[Any], object]) -> None:
    """A file that may be large, under its name once it is whole."""
    aside = path.with_name(f".{path.name}.{os.getpid()}.{secrets.token_hex(4)}")
    try:
        with aside.open("wb") as file:
            write(file)
        aside.replace(path)
    except BaseException:
        aside.unlink(missing_ok=True)
        raise
