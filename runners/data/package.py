"""Questions of reasoning-gym's tasks, each scored by the data set that it came from."""

from __future__ import annotations

import importlib
import importlib.util
import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

import polars as pl

from reodsl.diagnostics import Diagnostic, Problem, error, problem, refuse
from reodsl.ir.data import PackageData, normal_question
from runners.data.draws import HELD_OUT_ONE_IN, Stream, split_of
from runners.data.fold import chain_of_expression
from runners.data.table import question_id
from runners.data.traces import check_traces, write_trace
from runners.programs.values import create_dataset, entry_of, pack

PACKAGES = {"reasoning_gym": "reasoning-gym"}
"""The packages that can generate questions, with the names by which they are installed. A spec can import no others."""
_TASK = re.compile(r"[a-z0-9_]{1,100}")
_OPTION = re.compile(r"\s*([a-z][a-z0-9_]{0,60})\s*=\s*(.{1,4000}?)\s*", re.DOTALL)
_WORD = re.compile(r"[A-Za-z_][A-Za-z0-9_ -]*")
_ARITHMETIC = re.compile(r"[0-9][-+*/(). 0-9]*|[-(][-+*/(). 0-9]*")
_DIGIT = re.compile(r"[0-9]")
_RESERVED = ("size", "seed")
_DRAWS_PER_QUESTION = 20


def package_problem(source: PackageData) -> Diagnostic | None:
    """Return E0709 if the package of a source is unknown or not installed; else None."""
    if _module(source) not in PACKAGES:
        return error(
            "E0709",
            f"`{source.package}` is not a package that generates questions",
            where="package data",
            help=f"write one of: {', '.join(PACKAGES.values())}",
        )
    if importlib.util.find_spec(_module(source)) is None:
        return error(
            "E0709",
            f"the package `{source.package}` is not installed",
            where="package data",
            help=f"install it with `pip install {PACKAGES[_module(source)]}`",
        )
    return None


def read_package(source: PackageData) -> pl.DataFrame:
    """Return questions that a task of a package generates.

    In the splits `train` and `held_out` all questions are different, except if they have worked solutions. The split
    `all` has the questions as the package generates them, with repetitions.

    The package's scorer must accept the package's own answer after the question was stored as JSON. If it does not
    accept the plain JSON of the entry, the entry is stored packed (`pack`), with its Python types.

    Args:
        source: The package, the task with its options, the number of questions, the seed and the split.

    Returns:
        A table with the text columns id, question, answer, bare (the question without its wording), meta (JSON with the
        task and the package's entry), and trace if worked solutions are requested.

    Raises:
        Problem: E0709 for a missing package, an unknown task or option, or a task without worked solutions; E0711 if the
            task has too few questions.
    """
    refuse(package_problem(source))
    importlib.import_module(_module(source))
    try:
        if not _TASK.fullmatch(source.task):
            raise ValueError(f"`{source.task}` is not the name of a task")
        options = _options(source)
        most = (
            source.count if source.split == "all" else _DRAWS_PER_QUESTION * (source.count + HELD_OUT_ONE_IN)
        )
        dataset = create_dataset(source.task, most, source.seed, options)
        entries = list(_entries(dataset, source, most))
    except (ValueError, KeyError, TypeError, AssertionError) as failure:
        raise _cannot(source, f"cannot generate `{source.task}`: {str(failure)[:200]}") from None
    if len(entries) < source.count:
        raise problem(
            "E0711",
            f"{source.count} questions of the split `{source.split}` are needed, and {len(entries)} were found",
            where="package data",
            help="lower `count`, or make the task larger by its `options`",
        )
    rows = [_row(source.task, entry, {"entry": entry}, options) for entry in entries]
    has_answers = entries[0]["answer"] is not None
    if has_answers and not _scores_stored_answer(dataset, rows[0]):
        # Some scorers need tuples or numbers as keys, which JSON lacks and `pack` keeps.
        rows = [_row(source.task, entry, {"packed": pack(entry)}, options) for entry in entries]
        if not _scores_stored_answer(dataset, rows[0]):
            raise problem(
                "E0709",
                f"the scorer of `{source.task}` does not accept its own answer once the question was stored as JSON",
                where="package data",
                help="choose another task of the package",
            )
    table = pl.DataFrame(rows, schema=["id", "question", "answer", "bare", "meta"], orient="row").cast(
        pl.String
    )
    if source.traces is None:
        return table
    traces = pl.Series("trace", _traces(source, entries))
    return table.with_columns(traces).select("id", "question", "answer", "bare", "trace", "meta")


def _entries(dataset: Any, source: PackageData, most: int) -> Iterator[dict[str, Any]]:
    """Yield the first `source.count` entries of a package's data set that are in the source's split.

    Of equal questions only the first is yielded, unless the split is `all` or the source has worked solutions.

    Args:
        dataset: The data set of reasoning-gym.
        source: The number of entries and the split.
        most: The number of entries to look at.
    """
    seen: set[str] = set()
    yielded = 0
    for index in range(most):
        entry = dataset[index]
        question = str(entry["question"])
        if source.split != "all":
            is_repeated = source.traces is None and normal_question(question) in seen
            if is_repeated or split_of(bare_question(entry)) != source.split:
                continue
            seen.add(normal_question(question))
        yield entry
        yielded += 1
        if yielded == source.count:
            return


def bare_question(entry: dict[str, Any]) -> str:
    """Return the arithmetic expression in an entry's question without spaces, or else the full question.

    `Calculate 5 - 3.` and `What is 5 - 3?` both give `5-3`, and are in the same dataset split. The full question is
    returned if the entry has no arithmetic expression, if the question does not contain it (it may be the answer), or
    if the question has further digits.
    """
    question = str(entry["question"])
    metadata = entry.get("metadata")
    expression = metadata.get("expression") if isinstance(metadata, dict) else None
    if not isinstance(expression, str) or not _ARITHMETIC.fullmatch(expression):
        return question
    before, separator, after = question.partition(expression)
    return "".join(expression.split()) if separator and not _DIGIT.search(before + after) else question


def _options(source: PackageData) -> dict[str, Any]:
    """Return the options of a package's task by name.

    Raises:
        ValueError: A text is not `name=value` with a value in JSON or a word, or sets the size or the seed, which the
            spec sets.
    """
    options = {}
    for text in source.options:
        match = _OPTION.fullmatch(text)
        if match is None or match[1] in _RESERVED:
            raise ValueError(f"`{text[:60]}` is not an option: write `name=value`, the value in JSON")
        try:
            options[match[1]] = json.loads(match[2], parse_constant=_refuse_constant)
        except (ValueError, RecursionError):
            if _WORD.fullmatch(match[2]) is None:
                raise ValueError(f"`{text[:60]}` is not an option: `{match[2][:60]}` is not JSON") from None
            options[match[1]] = match[2]
    return options


def _refuse_constant(name: str) -> None:
    """Raise ValueError for `NaN` and infinities, which Python's JSON reader accepts by default."""
    raise ValueError(f"{name} is not a number")


def _traces(source: PackageData, entries: list[dict[str, Any]]) -> list[str]:
    """Return a worked solution for each entry, written from the expression in the entry's metadata.

    The expression has to be a chain of sums and differences, such as `5 - 3 + 2`, whose value is the entry's answer.

    Raises:
        Problem: E0709 if an entry has no such expression, E0720 for settings of solutions that do not fit together.
    """
    assert source.traces is not None
    check_traces(source.traces)
    traces = []
    for index, entry in enumerate(entries):
        metadata = entry.get("metadata")
        expression = metadata.get("expression") if isinstance(metadata, dict) else None
        chain = chain_of_expression(expression) if isinstance(expression, str) else None
        if chain is None or str(chain.end) != str(entry["answer"]):
            raise _cannot(
                source,
                f"has no worked solutions for `{source.task}`: its questions are not chains of + and -",
            )
        text, _ = write_trace(chain, source.traces, Stream(source.seed, "trace", index))
        traces.append(text)
    return traces


def _cannot(source: PackageData, words: str) -> Problem:
    """Return E0709 for a package, with what it cannot do, such as "cannot generate `sudoku`: …"."""
    return problem(
        "E0709",
        f"`{source.package}` {words}",
        where="package data",
        help="check the task's name and options in the documentation of the package",
    )


def _module(source: PackageData) -> str:
    """Return the import name of a source's package, which a spec may also name as it is installed (`reasoning-gym`)."""
    return source.package.replace("-", "_")


def _row(
    task: str, entry: dict[str, Any], stored: Mapping[str, Any], options: Mapping[str, Any]
) -> tuple[str, str, str, str, str]:
    """Return the row of an entry: id, question, answer, bare question and metadata.

    Args:
        task: The name of the task.
        entry: The entry of the package.
        stored: The entry in the form that metadata stores, by `entry` or `packed`.
        options: The options of the task.
    """
    question = str(entry["question"])
    answer = "" if entry["answer"] is None else str(entry["answer"])
    facts = {"task": task, **stored, **({"options": options} if options else {})}
    meta = json.dumps(facts, default=str)
    return question_id(question), question, answer, bare_question(entry), meta


def _scores_stored_answer(dataset: Any, row: tuple[str, ...]) -> bool:
    """Return whether the package's scorer accepts a row's answer by the entry that the row's metadata stores."""
    try:
        return float(dataset.score_answer(answer=row[2], entry=entry_of(json.loads(row[-1])))) >= 1.0
    except Exception:
        return False
