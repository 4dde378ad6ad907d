"""Questions of reasoning-gym's tasks, each scored by the data set that it came from."""

from __future__ import annotations

import importlib
import importlib.util
import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

import polars as pl

from reodsl.diagnostics import Diagnostic, Problem, error, problem
from reodsl.ir.data import PackageData, normal_question
from runners.data.draws import HELD_OUT_ONE_IN, Stream, split_of
from runners.data.fold import chain_of_expression
from runners.data.table import question_id
from runners.data.traces import check_traces, write_trace
from runners.programs.values import create_dataset, entry_of, pack

PACKAGES = {"reasoning_gym": "reasoning-gym"}
"""Packages that can make questions, and the name each is installed by. A spec cannot have any other imported."""
_TASK = re.compile(r"[a-z0-9_]{1,100}")
_OPTION = re.compile(r"\s*([a-z][a-z0-9_]{0,60})\s*=\s*(.{1,4000}?)\s*", re.DOTALL)
_WORD = re.compile(r"[A-Za-z_][A-Za-z0-9_ -]*")
_ARITHMETIC = re.compile(r"[0-9][-+*/(). 0-9]*|[-(][-+*/(). 0-9]*")
_DIGIT = re.compile(r"[0-9]")
_RESERVED = ("size", "seed")
_DRAWS_PER_QUESTION = 20


def package_problem(source: PackageData) -> Diagnostic | None:
    """Return E0709 if a package is unknown or not installed."""
    if _module(source) not in PACKAGES:
        return error(
            "E0709",
            f"`{source.package}` is not a package that makes questions",
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
    """Read the questions table of a package's task.

    The columns are id, question, answer, bare, meta (JSON with task and entry), and trace if worked solutions were
    asked for.

    Without worked solutions every question of a split (`train`, `held_out`) is distinct. Raises a Problem: E0709 for a
    missing package, task or option, or a task without worked solutions; E0711 if it has too few questions.
    """
    missing = package_problem(source)
    if missing is not None:
        raise Problem(missing)
    importlib.import_module(_module(source))
    try:
        if not _TASK.fullmatch(source.task):
            raise ValueError(f"`{source.task}` is not a task's name")
        options = _options(source)
        most = (
            source.count if source.split == "all" else _DRAWS_PER_QUESTION * (source.count + HELD_OUT_ONE_IN)
        )
        dataset = create_dataset(source.task, most, source.seed, options)
        entries = list(_entries(dataset, source, most))
    except (ValueError, KeyError, TypeError, AssertionError) as failure:
        raise _cannot(source, f"cannot make `{source.task}`: {str(failure)[:200]}") from None
    if len(entries) < source.count:
        raise problem(
            "E0711",
            f"{source.count} questions of the split `{source.split}` were asked for, and {len(entries)} were found",
            where="package data",
            help="ask for fewer, or make the task larger by its `options`",
        )
    rows = [_row(source.task, entry, {"entry": entry}, options) for entry in entries]
    answered = entries[0]["answer"] is not None
    if answered and not _survives(dataset, rows[0]):
        # Some scorers need the tuples, or the numbers as keys, that JSON alone does not have.
        rows = [_row(source.task, entry, {"packed": pack(entry)}, options) for entry in entries]
        if not _survives(dataset, rows[0]):
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
    """Yield the first `count` entries; those of a split are on its side and distinct unless their solutions differ."""
    seen: set[str] = set()
    yielded = 0
    for index in range(most):
        entry = dataset[index]
        question = str(entry["question"])
        if source.split != "all":
            repeated = source.traces is None and normal_question(question) in seen
            if repeated or split_of(bare_question(entry)) != source.split:
                continue
            seen.add(normal_question(question))
        yield entry
        yielded += 1
        if yielded == source.count:
            return


def bare_question(entry: dict[str, Any]) -> str:
    """Return an entry's expression if its question is only that, and else the question as it is written.

    So `Calculate 5 - 3.` and `What is 5 - 3?` are the same question, of any task. An expression that is the answer (of
    `countdown`), or beside which the question says more, does not count.
    """
    question = str(entry["question"])
    metadata = entry.get("metadata")
    expression = metadata.get("expression") if isinstance(metadata, dict) else None
    if not isinstance(expression, str) or not _ARITHMETIC.fullmatch(expression):
        return question
    before, separator, after = question.partition(expression)
    return "".join(expression.split()) if separator and not _DIGIT.search(before + after) else question


def _options(source: PackageData) -> dict[str, Any]:
    """Return the task's settings by name. Raises ValueError for a text that is not `name=value` or sets what a spec does."""
    options = {}
    for text in source.options:
        match = _OPTION.fullmatch(text)
        if match is None or match[1] in _RESERVED:
            raise ValueError(f"`{text[:60]}` is not an option: write `name=value`, the value in JSON")
        try:
            options[match[1]] = json.loads(match[2], parse_constant=_no_number)
        except (ValueError, RecursionError):
            if _WORD.fullmatch(match[2]) is None:
                raise ValueError(f"`{text[:60]}` is not an option: `{match[2][:60]}` is not JSON") from None
            options[match[1]] = match[2]
    return options


def _no_number(name: str) -> None:
    raise ValueError(f"{name} is not a number")


def _traces(source: PackageData, entries: list[dict[str, Any]]) -> list[str]:
    """Return a worked solution for each entry whose metadata holds an expression of sums and differences."""
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
                f"makes no worked solutions for `{source.task}`: its questions are no chains of + and -",
            )
        text, _ = write_trace(chain, source.traces, Stream(source.seed, "trace", index))
        traces.append(text)
    return traces


def _cannot(source: PackageData, words: str) -> Problem:
    return problem(
        "E0709",
        f"`{source.package}` {words}",
        where="package data",
        help="check the task's name and options in the package's list",
    )


def _module(source: PackageData) -> str:
    """Return the import name of a package that may be named as it is installed (`reasoning-gym`)."""
    return source.package.replace("-", "_")


def _row(
    task: str, entry: dict[str, Any], stored: Mapping[str, Any], options: Mapping[str, Any]
) -> tuple[str, str, str, str, str]:
    question = str(entry["question"])
    answer = "" if entry["answer"] is None else str(entry["answer"])
    facts = {"task": task, **stored, **({"options": options} if options else {})}
    meta = json.dumps(facts, default=str)
    return question_id(question), question, answer, bare_question(entry), meta


def _survives(dataset: Any, row: tuple[str, ...]) -> bool:
    """Return whether the right answer gets full marks from the stored entry, which has no tuples or number keys."""
    try:
        return float(dataset.score_answer(answer=row[2], entry=entry_of(json.loads(row[-1])))) >= 1.0
    except Exception:
        return False
