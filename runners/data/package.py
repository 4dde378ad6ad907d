"""Questions that a package makes: tasks of reasoning-gym, each scored by the data set it came from."""

from __future__ import annotations

import importlib
import importlib.util
import json
import re
from typing import Any

import polars as pl

from reodsl.diagnostics import Diagnostic, Problem, error, problem
from reodsl.ir.data import PackageData
from runners.data.table import question_id

PACKAGES = {"reasoning_gym": "reasoning-gym"}
"""Packages that can make questions, and the name each is installed by. A spec cannot have any other imported."""
_TASK = re.compile(r"[a-z0-9_]{1,100}")


def package_problem(source: PackageData) -> Diagnostic | None:
    """Why these questions cannot be made here (E0709): a package that is not known, or not installed."""
    if _module(source) not in PACKAGES:
        return error(
            "E0709",
            f"`{source.package}` is no package that makes questions",
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
    """The questions table of a package's task: columns id, question, answer, meta (JSON with task and entry).

    Raises a Problem (E0709) for a package or task that is not there.
    """
    missing = package_problem(source)
    if missing is not None:
        raise Problem(missing)
    gym: Any = importlib.import_module(_module(source))
    try:
        if not _TASK.fullmatch(source.task):
            raise ValueError(f"`{source.task}` is no task's name")
        dataset = gym.create_dataset(source.task, size=source.count, seed=source.seed)
        entries = [dataset[index] for index in range(source.count)]
        rows = [_row(source.task, entry) for entry in entries]
    except (ValueError, KeyError, TypeError, AssertionError) as failure:
        raise problem(
            "E0709",
            f"`{source.package}` cannot make `{source.task}`: {str(failure)[:200]}",
            where="package data",
            help="check the task's name in the package's list",
        ) from None
    if entries and entries[0]["answer"] is not None and not _survives(dataset, rows[0]):
        raise problem(
            "E0709",
            f"the scorer of `{source.task}` does not accept its own answer once the question was stored as JSON",
            where="package data",
            help="choose another task of the package",
        )
    names = ["id", "question", "answer", "meta"]
    return pl.DataFrame(rows, schema=names, orient="row").cast(pl.String)


def _module(source: PackageData) -> str:
    """The import name of a package that may be named as it is installed (`reasoning-gym`)."""
    return source.package.replace("-", "_")


def _row(task: str, entry: dict[str, Any]) -> tuple[str, str, str, str]:
    question = str(entry["question"])
    answer = "" if entry["answer"] is None else str(entry["answer"])
    meta = json.dumps({"task": task, "entry": entry}, default=str)
    return question_id(question), question, answer, meta


def _survives(dataset: Any, row: tuple[str, str, str, str]) -> bool:
    """Whether the right answer still gets full marks from the stored entry (tuples and number keys do not last)."""
    try:
        return float(dataset.score_answer(answer=row[2], entry=json.loads(row[3])["entry"])) >= 1.0
    except Exception:
        return False
