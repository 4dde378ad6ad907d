"""Find doubtful references: those that no parser reads, and those that disagree about one question."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import polars as pl

from reodsl.ir.chat import question_key
from reodsl.ir.data import Chance, Data, Judge, Python, Tests
from runners.verify import SEPARATOR, Answer, make_verifier
from runners.verify.references import unread

KEPT = 20
"""Rows of a kind that are named; the others are only counted."""


@dataclass(frozen=True, slots=True)
class Row:
    """A row of a source, counted from 1."""

    source: str
    row: int
    question: str
    answer: str


def doubtful_references(tables: Sequence[tuple[str, pl.DataFrame]], data: Data) -> dict[str, Any] | None:
    """What `references.json` holds, or None where no reference is doubtful. `tables` are those of the sources by name.

    `unread`: references that the mathematical verifier reads as nothing but text though they are no words.
    `disagree`: pairs of rows of one question whose references are not each other's right answers. What a package scores
    or the user's own code is left to it, and so are tests of programs and what a judge is asked.
    """
    if data.verifier == "package" or isinstance(data.verifier, (Python, Chance, Judge, Tests)):
        return None
    rows = list(_rows(tables))
    silent: list[Row] = []
    if data.verifier == "math":
        marks = unread([each.answer for each in rows])
        silent = [row for row, mark in zip(rows, marks, strict=True) if mark]
    apart = _disagreeing(rows, data.verifier, data.tolerance)
    if not silent and not apart:
        return None
    return {
        "rows": len(rows),
        "unread": _written(len(silent), map(asdict, silent)),
        "disagree": _written(len(apart), ([asdict(each) for each in pair] for pair in apart)),
    }


def _rows(tables: Sequence[tuple[str, pl.DataFrame]]) -> Iterator[Row]:
    for source, table in tables:
        for number, (question, answer) in enumerate(table.select("question", "answer").iter_rows(), 1):
            if answer:
                yield Row(source, number, question, answer)


def _disagreeing(rows: Sequence[Row], verifier: str, tolerance: float) -> list[tuple[Row, Row]]:
    """The first row of a question with each later one that has no right answer in common with it."""
    firsts: dict[str, Row] = {}
    pairs = []
    for row in rows:
        first = firsts.setdefault(question_key(row.question), row)
        if first.answer != row.answer:
            pairs.append((first, row))
    if not pairs:
        return []
    asked = [list(_both_ways(*pair)) for pair in pairs]
    grader = make_verifier(verifier, tolerance=tolerance)
    try:
        verdicts = iter(grader.grade([answer for answers in asked for answer in answers]))
        graded = [[next(verdicts) for _ in answers] for answers in asked]
    finally:
        grader.close()
    return [
        pair
        for pair, answers in zip(pairs, graded, strict=True)
        if not any(verdict.correct or verdict.unsettled for verdict in answers)
    ]


def _both_ways(first: Row, second: Row) -> Iterator[Answer]:
    for gold, other in ((first, second), (second, first)):
        for text in other.answer.split(SEPARATOR):
            yield Answer(text, gold.answer)


def _written(count: int, rows: Iterable[Any]) -> dict[str, Any]:
    return {"count": count, "first": [row for row, _ in zip(rows, range(KEPT), strict=False)]}
