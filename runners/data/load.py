"""Load the questions table of a data declaration: read every source, strip marks, join them, and check the rows."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import polars as pl

from reodsl.diagnostics import Diagnostic, Problem, problem, warning
from reodsl.diagnostics.model import shorten_text
from reodsl.graph.job import Job, Progress, Resources
from reodsl.ir.data import (
    Chance,
    Data,
    DataSource,
    File,
    HubData,
    Marks,
    PackageData,
    Python,
    TaskData,
    Tests,
    normal_question,
)
from runners.data.draws import HELD_OUT_ONE_IN, split_of
from runners.data.files import (
    count_rows,
    file_problem,
    hub_problem,
    local_files,
    read_hub,
    read_questions,
    require_head,
)
from runners.data.fold import generate_questions
from runners.data.package import package_problem, read_package
from runners.data.references import doubtful_references, require_read, require_tests, solutions_read
from runners.data.table import question_id, require_filled, require_names, settle_duplicates
from runners.data.traces import generate_traces
from runners.own.function import open_function

_DRAWS_PER_QUESTION = 40


def read_own(source: TaskData, task: Python, folder: Path, resources: Resources) -> pl.DataFrame:
    """Read `count` distinct questions of a side of the split from the user's function.

    The columns are id, question, answer, and meta and trace if some questions have them. Draw n is made from (seed, n)
    alone, so the first rows do not depend on the count.

    Raises E0711 if too many draws repeat or belong to the other side, and what the function's process raises.
    """
    function = open_function(task, "task", folder, resources)
    rows: list[dict[str, str | None]] = []
    seen: set[str] = set()
    cursor, patience = 0, _DRAWS_PER_QUESTION * (source.count + HELD_OUT_ONE_IN)
    try:
        while len(rows) < source.count and cursor < patience:
            # Batches are whole, so that what is drawn does not depend on how many are still missing.
            batches = -(-(source.count - len(rows)) // task.batch)
            draws = range(cursor, cursor + batches * task.batch)
            cursor = draws.stop
            for question in function.draw(source.seed, draws):
                text = normal_question(question["question"])
                if (
                    len(rows) < source.count
                    and text not in seen
                    and split_of(question["question"]) == source.split
                ):
                    seen.add(text)
                    rows.append(
                        {
                            "id": question_id(question["question"]),
                            **{
                                name: value if name == "answer" else value or None
                                for name, value in question.items()
                            },
                        }
                    )
    finally:
        function.close()
    if len(rows) < source.count:
        raise problem(
            "E0711",
            f"{source.count} questions of the split `{source.split}` were asked for, and {len(rows)} came of {cursor} draws",
            where=task.function,
            help="ask for fewer, or let the function draw from more questions",
        )
    table = pl.DataFrame(rows, schema=["id", "question", "answer", "meta", "trace"]).cast(pl.String)
    return table.drop([name for name in ("meta", "trace") if table[name].null_count() == table.height])


def strip_marks(question: str, marks: Sequence[Marks]) -> str:
    """Return the question without the `marks` around it, removed in their order, and without white space at its ends."""
    for mark in marks:
        before, after = mark.before.strip(), mark.after.strip()
        question = question.strip().removeprefix(before).removesuffix(after)
    return question.strip() if marks else question


def without_marks(table: pl.DataFrame, marks: Sequence[Marks]) -> pl.DataFrame:
    """Return `table` with stripped questions; ids that were made from questions are made again."""
    if not marks or not table.height:
        return table
    questions = [text and strip_marks(text, marks) for text in table["question"]]
    ids = [
        question_id(stripped) if text is not None and name == question_id(text) else name
        for name, text, stripped in zip(table["id"], table["question"], questions, strict=True)
    ]
    return table.with_columns(
        pl.Series("id", ids, dtype=pl.String), pl.Series("question", questions, dtype=pl.String)
    )


def unused_marks(questions: Sequence[str], marks: Sequence[Marks], where: str) -> Iterator[Diagnostic]:
    """Warn (W0715) of marks that no question begins or ends with after the marks before them are removed."""
    for number, pair in enumerate(marks):
        texts = [strip_marks(text.strip(), marks[:number]) for text in questions]
        for mark, matches, end in (
            (pair.before.strip(), str.startswith, "begins"),
            (pair.after.strip(), str.endswith, "ends"),
        ):
            if texts and not any(matches(text, mark) for text in texts):
                yield warning(
                    "W0715",
                    f"`strip` takes nothing off: none of {len(texts)} questions {end} with `{shorten_text(mark)}`",
                    where=where,
                    notes=(f"the first is: {shorten_text(questions[0])}",),
                    help="write the mark as it stands in the data, or take it out of `strip`",
                )


LOCAL_RESOURCES = Resources()
CHECKED_BYTES = 64 * 2**20
"""Bytes of a file that is read whole before anything starts; of a larger one only the head is."""


def load_data(data: Data, folder: Path) -> pl.DataFrame:
    """Load the questions of all sources, in order.

    The columns are id, question, answer, and bare, trace and meta if some have them.

    `folder` is where relative paths start. Raises a Problem for whatever is wrong with a source, for rows without
    a question or answer, for duplicates unless they are to be dropped, and for ids of several questions. Questions
    generated with worked solutions may repeat.
    """
    return join_sources(data, read_sources(data, folder))


def read_sources(data: Data, folder: Path, resources: Resources = LOCAL_RESOURCES) -> list[pl.DataFrame]:
    """Return the questions table of each source, without marks around its questions; every row is filled.

    `resources` say which Python of the user's may run, and how. Raises E0716 where no reference of a file can be read.
    """
    tables = []
    for source in data.sources:
        table = without_marks(read_source(source, folder, resources), data.strip)
        if isinstance(source, (File, HubData)):
            table = solutions_read(table, data)
        require_filled(table, _where(source), scored=isinstance(source, (TaskData, PackageData)))
        if isinstance(source, (File, HubData)):
            require_read(table, data, _where(source), source.columns, _files(source, folder))
        if isinstance(data.verifier.of if isinstance(data.verifier, Chance) else data.verifier, Tests):
            require_tests(table, _where(source))
        tables.append(table)
    return tables


def join_sources(data: Data, read: Sequence[pl.DataFrame]) -> pl.DataFrame:
    """Join the tables of the sources in order, as `load_data` says."""
    where = ", ".join(map(_where, data.sources))
    solved = [
        isinstance(source, (TaskData, PackageData)) and source.traces is not None for source in data.sources
    ]
    if all(solved):
        return pl.concat(read)
    if any(solved):
        raise problem(
            "E0712",
            "questions generated with worked solutions stand beside other sources",
            where=where,
            help="put them into a declaration of their own",
        )
    settled = settle_duplicates(pl.concat(read, how="diagonal"), data.duplicates, where)
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


def read_source(source: DataSource, folder: Path, resources: Resources = LOCAL_RESOURCES) -> pl.DataFrame:
    """Read the questions table of a source, unchecked."""
    if isinstance(source, TaskData):
        if isinstance(source.task, Python):
            return read_own(source, source.task, folder, resources)
        if source.traces is not None:
            return generate_traces(source.task, source.traces, source.count, source.seed, split=source.split)
        return generate_questions(source.task, source.count, source.seed, split=source.split)
    if isinstance(source, File):
        return read_questions(folder / source.path, source.columns)
    if isinstance(source, HubData):
        return read_hub(source, folder)
    return read_package(source)


def source_problems(data: Data, folder: Path) -> list[Diagnostic]:
    """Return the files, hub copies and packages that this machine lacks for the data, without reading any."""
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
    """Return the faults inside the data's files on this machine: the user's files, and local copies of hub data sets.

    Marks to strip that no question has are warned of (W0715).
    Finds what `load_data` would find, in about a second: of a source with more than `CHECKED_BYTES` bytes only missing
    columns, if its format names columns at its head.
    """
    small = []
    try:
        for source in data.sources:
            if not isinstance(source, (File, HubData)):
                continue
            files = _files(source, folder)
            for fault in filter(None, map(file_problem, files)):
                raise Problem(fault)
            if sum(path.stat().st_size for path in files) > CHECKED_BYTES:
                for path in files:
                    require_head(path, source.columns)
            elif files:
                small.append(source)
        if small:
            at_hand = data.model_copy(update={"sources": tuple(small)})
            load_data(at_hand, folder)
            if data.strip and len(small) == len(data.sources):
                raw = [text for source in small for text in read_source(source, folder)["question"]]
                return list(unused_marks(raw, data.strip, ", ".join(map(_where, small))))
    except Problem as caught:
        return list(caught.diagnostics)
    return []


def at_hand(data: Data, folder: Path) -> bool:
    """Return whether all questions are in files here that a second or so reads."""
    files = [_files(source, folder) for source in data.sources]
    return all(files) and sum(path.stat().st_size for paths in files for path in paths) <= CHECKED_BYTES


def count_questions(data: Data, folder: Path) -> int | None:
    """Return how many rows files and local copies of a hub's data sets have; None for other sources and faulty files."""
    stored = [source for source in data.sources if isinstance(source, (File, HubData))]
    files = [(path, source.columns) for source in stored for path in _files(source, folder)]
    if not all(_files(source, folder) for source in data.sources) or any(
        file_problem(path) for path, _ in files
    ):
        return None
    try:
        return sum(count_rows(path, columns) for path, columns in files)
    except Problem:
        return None


def _files(source: DataSource, folder: Path) -> list[Path]:
    """Return the files of a source on this machine; generated questions have no files."""
    if isinstance(source, File):
        return [folder / source.path]
    return local_files(source, folder) if isinstance(source, HubData) else []


def _where(source: DataSource) -> str:
    if isinstance(source, File):
        return source.path
    if isinstance(source, HubData):
        return source.repo
    return "generated data" if isinstance(source, TaskData) else source.task


def data(job: Job) -> None:
    """Write `questions.parquet`, `references.json` where references are doubtful, `left_out.json` where rows were dropped.

    Raises a Problem (E07xx) that says what is wrong with a source.
    """
    declared: Data = job.task.work["data"]
    read = read_sources(declared, job.folder, job.resources)
    joined = join_sources(declared, read)
    take_rows(joined, declared.take).write_parquet(job.out / "questions.parquet")
    repeated = sum(table.height for table in read) - joined.height
    if repeated:
        facts = {"rows": joined.height, "left_out_repeated": repeated}
        (job.out / "left_out.json").write_text(json.dumps(facts) + "\n", "utf-8")
        job.progress(Progress(1, 1, facts))
    doubtful = doubts(declared, read)
    if doubtful is not None:
        (job.out / "references.json").write_text(
            json.dumps(doubtful, indent=1, ensure_ascii=False) + "\n", "utf-8"
        )
