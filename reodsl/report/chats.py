"""Warn of questions that hold the marks of a chat."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

import polars as pl

from reodsl.diagnostics import Diagnostic, warning
from reodsl.graph.task import Graph
from reodsl.ir.chat import find_turn

_SHOWN = 60
_LONGEST = 300
"""Characters of a mark that a warning writes out."""


def chats(graph: Graph, folders: Mapping[str, Path]) -> dict[str, list[Diagnostic]]:
    """A warning (W0714) for every table whose questions hold the marks of a known chat format, by its task.

    `folders` holds the results by task id; what is not there, or cannot be read, is passed over.
    """
    warnings = {}
    for task in graph.tasks:
        if task.kind != "data" or task.id not in folders:
            continue
        try:
            table = pl.read_parquet(folders[task.id] / "questions.parquet", columns=["question"], glob=False)
        except (OSError, pl.exceptions.PolarsError):
            continue
        warnings[task.id] = marks_left(table["question"].drop_nulls().to_list(), task.id)
    return warnings


def marks_left(questions: Sequence[str], where: str) -> list[Diagnostic]:
    """The warning (W0714) of questions with marks of a chat, with the setting that takes off those of the first."""
    turns = [(text, turn) for text in questions if (turn := find_turn(text)) is not None]
    if not turns:
        return []
    text, first = turns[0]
    parts = [
        f"{name}: {json.dumps(part.strip(), ensure_ascii=False)}"
        for name, part in (("before", first.before), ("after", first.after))
        if part.strip() and len(part) <= _LONGEST
    ]
    return [
        warning(
            "W0714",
            f"{len(turns)} of {len(questions)} questions hold the marks of a chat ({first.format})",
            where=where,
            notes=(f"the first is: {_short(text)}",),
            help=f"a model's prompt puts its own around a question: write `strip = marks({', '.join(parts) or '…'})`",
        )
    ]


def _short(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= _SHOWN else line[: _SHOWN - 1] + "…"
