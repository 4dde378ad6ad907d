"""Load the questions table of a data declaration: read every source, join them, and check the rows."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import polars as pl

from reodsl.diagnostics import Diagnostic, Problem, problem
from reodsl.graph.job import Resources
from reodsl.ir.data import (
    Chance,
    Comparison,
    Data,
    DataSource,
    File,
    Generated,
    HubData,
    PackageData,
    Python,
    Tests,
)
from reodsl.ir.task import Programs
from runners.data.files import count_rows, file_problem, read_questions, require_head
from runners.data.fold import generate_questions
from runners.data.hub import hub_problem, local_files, read_hub
from runners.data.marks import unused_marks, without_marks
from runners.data.own import read_own
from runners.data.package import package_problem, read_package
from runners.data.programs import generate_programs, require_tests
from runners.data.references import doubtful_references, require_read, solutions_read
from runners.data.table import require_filled, require_names, settle_duplicates
from runners.data.traces import generate_traces

HERE = Resources()
READ_AHEAD = 64 * 2**20
"""Bytes of a file that is read whole before anything starts; of a larger one only the head is."""


def load_data(data: Data, folder: Path) -> pl.DataFrame:
    """Load the questions of all sources, in order.

    The columns are id, question, answer, and bare, trace and meta if some have them.

    `folder` is where relative paths start. Raises a Problem for whatever is wrong with a source, for rows without
    a question or answer, for duplicates unless they are to be dropped, and for ids of several questions. Questions
    generated with worked solutions may repeat.
    """
    return join_sources(data, read_sources(data, folder))


def read_sources(data: Data, folder: Path, resources: Resources = HERE) -> list[pl.DataFrame]:
    """Return the questions table of each source, without marks around its questions; every row is filled.

    `resources` say which Python of the user's may run, and how. Raises E0716 where no reference of a file can be read.
    """
    tables = []
    for source in data.sources:
        table = without_marks(read_source(source, folder, resources), data.strip)
        if isinstance(source, (File, HubData)):
            table = solutions_read(table, data)
        require_filled(table, _where(source), scored=isinstance(source, (Generated, PackageData)))
        if isinstance(source, (File, HubData)):
            require_read(table, data, _where(source), source.columns, _files(source, folder))
        if _runs_programs(data.verifier):
            require_tests(table, _where(source))
        tables.append(table)
    return tables


def _runs_programs(verifier: Comparison) -> bool:
    return isinstance(verifier.of if isinstance(verifier, Chance) else verifier, Tests)


def join_sources(data: Data, read: Sequence[pl.DataFrame]) -> pl.DataFrame:
    """Join the tables of the sources one after another, as `load_data` says."""
    tables: list[pl.DataFrame] = []
    repeating: list[pl.DataFrame] = []
    for source, table in zip(data.sources, read, strict=True):
        solved = isinstance(source, (Generated, PackageData)) and source.traces is not None
        (repeating if solved else tables).append(table)
    if tables and repeating:
        raise problem(
            "E0712",
            "questions generated with worked solutions stand beside other sources",
            where=", ".join(_where(source) for source in data.sources),
            help="put them into a declaration of their own",
        )
    if repeating:
        return pl.concat(repeating)
    where = ", ".join(_where(source) for source in data.sources)
    settled = settle_duplicates(pl.concat(tables, how="diagonal"), data.duplicates, where)
    require_names(settled, where)
    return settled


def take_rows(table: pl.DataFrame, count: int | None) -> pl.DataFrame:
    """Return `count` rows of a table, evenly spaced; all of them if it has no more, or without a count."""
    if count is None or count >= table.height:
        return table
    return table[[row * table.height // count for row in range(count)]]


def doubts(data: Data, read: Sequence[pl.DataFrame]) -> dict[str, Any] | None:
    """Return what `doubtful_references` finds in the tables of the sources."""
    return doubtful_references(list(zip(map(_where, data.sources), read, strict=True)), data)


def read_source(source: DataSource, folder: Path, resources: Resources = HERE) -> pl.DataFrame:
    """Read the questions table of one source, unchecked."""
    if isinstance(source, Generated):
        if isinstance(source.task, Python):
            return read_own(source, source.task, folder, resources)
        if isinstance(source.task, Programs):
            return generate_programs(source.task, source.count, source.seed, source.split)
        if source.traces is not None:
            return generate_traces(source.task, source.traces, source.count, source.seed, split=source.split)
        return generate_questions(source.task, source.count, source.seed, split=source.split)
    if isinstance(source, File):
        return read_questions(folder / source.path, source.columns)
    if isinstance(source, HubData):
        return read_hub(source, folder)
    return read_package(source)


def source_problems(data: Data, folder: Path) -> list[Diagnostic]:
    """Return what this machine lacks to load the data, found without reading it: files, hub copies, packages."""
    lacks = []
    for source in data.sources:
        if isinstance(source, File):
            lacks.append(file_problem(folder / source.path))
        elif isinstance(source, HubData):
            lacks.append(hub_problem(source, folder))
        elif isinstance(source, PackageData):
            lacks.append(package_problem(source))
    return [diagnostic for diagnostic in lacks if diagnostic is not None]


def file_problems(data: Data, folder: Path) -> list[Diagnostic]:
    """Return what is wrong inside the data's files on this machine: the user's, and local copies of hub data sets.

    Marks to strip that no question has are warned of (W0715).
    Finds what `load_data` would of them, in a second or so: of a source with more than `READ_AHEAD` bytes only that
    columns are missing, where its format names them at its head.
    """
    small = []
    try:
        for source in data.sources:
            if not isinstance(source, (File, HubData)):
                continue
            files = _files(source, folder)
            for fault in filter(None, map(file_problem, files)):
                raise Problem(fault)
            if sum(path.stat().st_size for path in files) > READ_AHEAD:
                for path in files:
                    require_head(path, source.columns)
            elif files:
                small.append(source)
        if small:
            at_hand = data.model_copy(update={"sources": tuple(small)})
            load_data(at_hand, folder)
            if data.strip and len(small) == len(data.sources):
                raw = [text for source in small for text in read_source(source, folder)["question"]]
                return unused_marks(raw, data.strip, ", ".join(map(_where, small)))
    except Problem as caught:
        return list(caught.diagnostics)
    return []


def count_questions(data: Data, folder: Path) -> int | None:
    """Return how many rows files and local copies of a hub's data sets have; None for other sources and faulty files."""
    rows = []
    for source in data.sources:
        if not isinstance(source, (File, HubData)):
            return None
        files = _files(source, folder)
        if not files or any(map(file_problem, files)):
            return None
        try:
            rows += [count_rows(path, source.columns) for path in files]
        except Problem:
            return None
    return sum(rows)


def _files(source: File | HubData, folder: Path) -> list[Path]:
    """Return the files of a source on this machine."""
    return [folder / source.path] if isinstance(source, File) else local_files(source, folder)


def _where(source: DataSource) -> str:
    if isinstance(source, File):
        return source.path
    if isinstance(source, HubData):
        return source.repo
    return "generated data" if isinstance(source, Generated) else source.task
