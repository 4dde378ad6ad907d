"""Load the questions table of a data declaration: read every source, strip marks, join them, and check the rows."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import polars as pl

from reodsl.diagnostics import Diagnostic, Problem, problem, refuse, warning
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
    """Return different questions of a dataset split that a Python function of the user generates.

    The function generates question n from (seed, n). It is called for whole batches of numbers, so the first rows do
    not depend on the number of questions.

    Args:
        source: The number of questions, the seed and the split.
        task: The function.
        folder: The folder of the spec, to which the function's file is relative.
        resources: Which Python may run, and how it is confined.

    Returns:
        A table with the text columns id, question and answer, and meta and trace if a question has them.

    Raises:
        Problem: E0711 if too many generated questions repeat or are in the other split; E0741 to E0746 if the function
            cannot run.
    """
    function = open_function(task, "task", folder, resources)
    rows: list[dict[str, str | None]] = []
    seen: set[str] = set()
    cursor, max_draws = 0, _DRAWS_PER_QUESTION * (source.count + HELD_OUT_ONE_IN)
    try:
        while len(rows) < source.count and cursor < max_draws:
            # Only full batches, so that the questions do not depend on how many are still missing.
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
            f"{source.count} questions of the split `{source.split}` are needed, and {cursor} calls gave {len(rows)}",
            where=task.function,
            help="lower `count`, or let the function choose from more questions",
        )
    table = pl.DataFrame(rows, schema=["id", "question", "answer", "meta", "trace"]).cast(pl.String)
    return table.drop([name for name in ("meta", "trace") if table[name].null_count() == table.height])


def strip_marks(question: str, marks: Sequence[Marks]) -> str:
    """Return a question without the texts of `marks` at its beginning and end, and without white space there.

    Without marks, the question is returned unchanged.

    Args:
        question: The question.
        marks: Pairs of a text before and a text after the question, which are removed in this order.
    """
    for mark in marks:
        before, after = mark.before.strip(), mark.after.strip()
        question = question.strip().removeprefix(before).removesuffix(after)
    return question.strip() if marks else question


def without_marks(table: pl.DataFrame, marks: Sequence[Marks]) -> pl.DataFrame:
    """Return a questions table whose questions have lost the texts of `marks` at their beginning and end.

    An id that is the hash of a question becomes the hash of the stripped question.

    Args:
        table: The questions table.
        marks: Pairs of a text before and a text after the question.
    """
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
    """Yield W0715 for each mark that no question has.

    A mark is looked for after the marks before it in `marks` have been removed.

    Args:
        questions: The questions with their marks.
        marks: The marks of `strip`.
        where: The source, for the message.
    """
    for number, pair in enumerate(marks):
        texts = [strip_marks(text.strip(), marks[:number]) for text in questions]
        for mark, matches, end in (
            (pair.before.strip(), str.startswith, "begins"),
            (pair.after.strip(), str.endswith, "ends"),
        ):
            if texts and not any(matches(text, mark) for text in texts):
                yield warning(
                    "W0715",
                    f"`strip` removes nothing: none of {len(texts)} questions {end} with `{shorten_text(mark)}`",
                    where=where,
                    notes=(f"the first is: {shorten_text(questions[0])}",),
                    help="write the mark exactly as the data has it, or remove it from `strip`",
                )


LOCAL_RESOURCES = Resources()
CHECKED_BYTES = 64 * 2**20
"""The most bytes of a source that is read completely before a run; of larger sources only the head is read."""


def load_data(data: Data, folder: Path) -> pl.DataFrame:
    """Load the questions of all sources of a data declaration, in order.

    Questions do not repeat, except if they are generated with worked solutions.

    Args:
        data: The declaration.
        folder: The folder that paths are relative to.

    Returns:
        A table with the text columns id, question and answer, and bare, trace and meta if a source has them.

    Raises:
        Problem: E07xx for a source that cannot be read, a row without a question or answer, duplicates that are not to be
            dropped, or an id of several questions.
    """
    return join_sources(data, read_sources(data, folder))


def read_sources(data: Data, folder: Path, resources: Resources = LOCAL_RESOURCES) -> list[pl.DataFrame]:
    """Return the questions table of each source, after its questions and references are prepared and checked.

    The marks of `strip` are removed from questions. References of files that are worked solutions are replaced by their
    answers. Rows must have a question and, unless the source scores answers itself, a reference.

    Args:
        data: The declaration.
        folder: The folder that paths are relative to.
        resources: Which Python of the user may run, and how it is confined.

    Raises:
        Problem: E0716 if no reference of a file can be read, E0718 for tests that cannot be read, E0704 for an empty row,
            and other problems of sources.
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
    """Return the rows of all sources' tables in order, without duplicates.

    If all sources are generated with worked solutions, rows may repeat, and are only joined.

    Args:
        data: The declaration.
        read: The table of each source, from `read_sources`.

    Raises:
        Problem: E0705 for duplicates or an id of several questions, E0712 if only some sources have worked solutions.
    """
    where = ", ".join(map(_where, data.sources))
    solved = [
        isinstance(source, (TaskData, PackageData)) and source.traces is not None for source in data.sources
    ]
    if all(solved):
        return pl.concat(read)
    if any(solved):
        raise problem(
            "E0712",
            "questions generated with worked solutions cannot be combined with other sources",
            where=where,
            help="put the generated questions into a separate declaration",
        )
    settled = settle_duplicates(pl.concat(read, how="diagonal"), data.duplicates, where)
    require_names(settled, where)
    return settled


def take_rows(table: pl.DataFrame, count: int | None) -> pl.DataFrame:
    """Return `count` evenly spaced rows of a table, or the full table if it is not longer or `count` is None."""
    if count is None or count >= table.height:
        return table
    return table[[row * table.height // count for row in range(count)]]


def doubts(data: Data, read: Sequence[pl.DataFrame]) -> dict[str, Any] | None:
    """Return the result of `doubtful_references` for the tables of a declaration's sources."""
    return doubtful_references(list(zip(map(_where, data.sources), read, strict=True)), data)


def read_source(source: DataSource, folder: Path, resources: Resources = LOCAL_RESOURCES) -> pl.DataFrame:
    """Return the questions table of a source, without the checks of `read_sources`.

    Args:
        source: The source.
        folder: The folder that paths are relative to.
        resources: Which Python of the user may run, and how it is confined.
    """
    if isinstance(source, TaskData):
        if isinstance(source.task, Python):
            return read_own(source, source.task, folder, resources)
        if source.traces is not None:
            return generate_traces(source.task, source.traces, source.count, source.seed, split=source.split)
        return generate_questions(source.task, source.count, source.seed, split=source.split)
    if isinstance(source, File):
        return read_questions(folder / source.path, source.columns)
    return read_hub(source, folder) if isinstance(source, HubData) else read_package(source)


def source_problems(data: Data, folder: Path) -> list[Diagnostic]:
    """Return the problems of a declaration's sources that this machine lacks: files, copies of hub data sets, packages.

    The contents of files are not read. `folder` is the folder that paths are relative to.
    """
    problems = []
    for source in data.sources:
        if isinstance(source, File):
            problems.append(file_problem(folder / source.path))
        elif isinstance(source, HubData):
            problems.append(hub_problem(source, folder))
        elif isinstance(source, PackageData):
            problems.append(package_problem(source))
    return [diagnostic for diagnostic in problems if diagnostic is not None]


def file_problems(data: Data, folder: Path) -> list[Diagnostic]:
    """Return the faults in the contents of a declaration's files and local copies of hub data sets.

    They are the problems that `load_data` would raise, found in about a second. A source with more than `CHECKED_BYTES`
    bytes is not read: only its columns are checked (`require_head`). If there is no fault, and all sources have been
    read, the result has warnings (W0715) of marks in `strip` that no question has. Other sources than files are not
    checked.

    Args:
        data: The declaration.
        folder: The folder that paths are relative to.
    """
    small = []
    try:
        for source in data.sources:
            if not isinstance(source, (File, HubData)):
                continue
            files = _files(source, folder)
            for path in files:
                refuse(file_problem(path))
            if sum(path.stat().st_size for path in files) > CHECKED_BYTES:
                for path in files:
                    require_head(path, source.columns)
            elif files:
                small.append(source)
        if small:
            load_data(data.model_copy(update={"sources": tuple(small)}), folder)
            if data.strip and len(small) == len(data.sources):
                raw = [text for source in small for text in read_source(source, folder)["question"]]
                return list(unused_marks(raw, data.strip, ", ".join(map(_where, small))))
    except Problem as caught:
        return list(caught.diagnostics)
    return []


def at_hand(data: Data, folder: Path) -> bool:
    """Return whether all sources are existing files on this machine with at most `CHECKED_BYTES` bytes together."""
    files = [_files(source, folder) for source in data.sources]
    paths = [path for of_source in files for path in of_source]
    exist = all(files) and all(path.is_file() for path in paths)
    return exist and sum(path.stat().st_size for path in paths) <= CHECKED_BYTES


def count_questions(data: Data, folder: Path) -> int | None:
    """Return the number of rows of a declaration's files and local copies of hub data sets.

    Duplicates and empty rows are counted too. The result is None if any source has no files on this machine (also if it
    is generated), or if a file cannot be read. `folder` is the folder that paths are relative to.
    """
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
    """Return the files of a source on this machine; empty for generated questions and for data sets without a copy."""
    if isinstance(source, File):
        return [folder / source.path]
    return local_files(source, folder) if isinstance(source, HubData) else []


def _where(source: DataSource) -> str:
    """Return the name of a source for messages."""
    if isinstance(source, File):
        return source.path
    if isinstance(source, HubData):
        return source.repo
    return "generated data" if isinstance(source, TaskData) else source.task


def data(job: Job) -> None:
    """Run a `data` task: write the questions table of a declaration to `questions.parquet`.

    `references.json` lists doubtful references, if there are any, and `left_out.json` counts dropped duplicates.

    Raises:
        Problem: E07xx for a source that cannot be read, or rows that are empty, repeated or have the same id.
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
