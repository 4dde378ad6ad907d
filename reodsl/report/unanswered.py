"""Warn of evaluations whose responses have no answer, and say what was looked for."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from pathlib import Path

import polars as pl

from reodsl.diagnostics import Diagnostic, warning
from reodsl.graph.task import Graph, Task
from reodsl.ir.data import Grading

FEW_ANSWERED = 0.5
"""The share of ended responses with an answer below which it is told of."""
LEAST = 8
"""Ended responses below which nothing is said."""
_SHOWN = 60
_MARK = re.compile(r"####\s*\S")
_NUMBER = re.compile(r"[0-9]")


def unanswered(graph: Graph, folders: Mapping[str, Path]) -> dict[str, list[Diagnostic]]:
    """A warning (W0804) for every evaluation in which most responses that ended hold no answer, by its task.

    `folders` holds the results by task id; what is not there, or cannot be read, is passed over. A response that was
    cut at the longest length had no chance to answer and counts for nothing.
    """
    warnings: dict[str, list[Diagnostic]] = {}
    for task in graph.tasks:
        if task.kind != "evaluate" or task.id not in folders:
            continue
        try:
            samples = pl.read_parquet(
                folders[task.id] / "samples.parquet",
                columns=["benchmark", "response", "finish", "answer"],
                glob=False,
            )
        except (OSError, pl.exceptions.PolarsError):
            continue
        warnings[task.id] = [
            each
            for (name,), rows in samples.filter(pl.col("finish") == "stop").group_by(
                "benchmark", maintain_order=True
            )
            if (each := _without(task, str(name), rows)) is not None
        ]
    return warnings


def untrained(task: Task, answered: float) -> Diagnostic:
    """The warning (W0804) of a step of training in which the share `answered` of the responses that ended has an answer."""
    return _warning(
        task.id, f"{1 - answered:.0%} of the responses that ended", task.payload["stage"]["data"], ()
    )


def _without(task: Task, benchmark: str, rows: pl.DataFrame) -> Diagnostic | None:
    silent = rows.filter(pl.col("answer").is_null())
    if rows.height < LEAST or silent.height <= (1 - FEW_ANSWERED) * rows.height:
        return None
    data = next(each["data"] for each in task.payload["suite"]["benchmarks"] if each["name"] == benchmark)
    ends = [" ".join(text[-4 * _SHOWN :].split())[-_SHOWN:] for text in silent["response"].head(20)]
    share = f"{silent.height} of {rows.height} responses to `{benchmark}` that ended"
    return _warning(task.id, share, data, ends)


def _warning(where: str, share: str, data: Mapping[str, object], ends: Iterable[str]) -> Diagnostic:
    last = list(ends)
    given = {name: data[name] for name in ("verifier", "answer", "tolerance") if name in data}
    read = f"`answer = {Grading.model_validate(given).words}`"
    advice = f"say where: {_advice(last)} in the data"
    if data.get("thinking") == "skip":
        read += " found none after the thinking"
        advice += "; where the model does not think, or never closes its thinking, take out `thinking = skip`"
    else:
        read += " found none"
    return warning(
        "W0804",
        f"{share} have no answer: {read}",
        where=where,
        notes=[f"one ends in: …{last[0]}"] if last else [],
        help=f"they count as wrong; if they do answer, {advice}",
    )


def _advice(ends: list[str]) -> str:
    """The setting that would read what responses end in, as far as that can be told."""
    if any(_MARK.search(end) for end in ends):
        return '`answer = after("####")`'
    if sum(_NUMBER.search(end) is not None for end in ends) > len(ends) / 2:
        return "`answer = last_number`"
    return '`answer = after("…")` or `answer = regex("…")`'
