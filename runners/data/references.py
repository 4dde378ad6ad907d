"""Read references out of worked solutions, and find doubtful ones: unread by any parser, or at odds with each other."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import polars as pl

from reodsl.diagnostics import problem
from reodsl.ir.chat import question_key
from reodsl.ir.data import (
    After,
    AnswerReader,
    Boxed,
    Chance,
    Comparison,
    Data,
    Judge,
    Python,
    Tests,
    reader_words,
)
from runners.verify import SEPARATOR, Answer, make_verifier, read_answer
from runners.verify.references import unread

KEPT = 20
"""Rows of a kind that are named; the others are only counted."""

HEAD = 50
"""References of a file that are looked at before a run starts; only where none of them is read are all looked at."""
COMMON_MARKERS = ("The answer is:", "The answer is", "answer is", "Answer:", "answer:", "A:", "ANSWER:")
"""Words that precede answers in sets of worked solutions; a table that nothing reads is tried with each."""
_MARKS = (After(marker="####"), Boxed())
"""The marks that worked solutions of published sets put before or around their answers."""


@dataclass(frozen=True, slots=True)
class Row:
    """A row of a source, counted from 1."""

    source: str
    row: int
    question: str
    answer: str


def solutions_read(table: pl.DataFrame, data: Data) -> pl.DataFrame:
    """Return the table with each reference that is a worked solution replaced by the answer that it marks.

    A mark is one of the data's own (`after(…)`), `####` as GSM8K has it, or a box as MATH has it, in this order; the last
    one counts, as it does in a response. A reference without a mark stays as it is, and so does a box alone, and what code
    or a judge is given.
    """
    comparison = _comparison(data)
    if comparison not in ("math", "exact"):
        return table
    readers: list[AnswerReader] = [reader for reader in data.answer if isinstance(reader, After)]
    readers += _MARKS

    def answer_of(part: str) -> str:
        answer = read_answer(readers, part)
        return part if not answer or part.strip() == f"\\boxed{{{answer}}}" else answer

    read = [
        text and SEPARATOR.join(dict.fromkeys(map(answer_of, text.split(SEPARATOR))))
        for text in table["answer"]
    ]
    return table.with_columns(pl.Series("answer", read, dtype=pl.String))


def _comparison(data: Data) -> Comparison:
    return data.verifier.of if isinstance(data.verifier, Chance) else data.verifier


def require_read(tables: Sequence[tuple[str, pl.DataFrame]], data: Data) -> None:
    """Raise a Problem (E0716) where no reference of a table can be read, so that no answer could ever be right."""
    if _comparison(data) != "math":
        return
    for source, table in tables:
        rows = [row for row in _rows([(source, table)]) if row.answer.strip()]
        if not rows or not all(unread([row.answer for row in rows[:HEAD]])):
            continue
        if len(rows) > HEAD and not all(unread([row.answer for row in rows[HEAD:]])):
            continue
        first = " ".join(rows[0].answer.split())
        raise problem(
            "E0716",
            f"no parser reads any of the {len(rows):,} references: no answer could be right",
            where=source,
            notes=[f"row 1 has `{first if len(first) < 80 else first[:79] + '…'}`"],
            help=_advice(table, data),
        )


def _advice(table: pl.DataFrame, data: Data) -> str:
    """Return what reads most of a table that nothing read: the first common marker that does, tried on its head."""
    head = table.head(HEAD)
    for marker in COMMON_MARKERS:
        readers = (*data.answer, After(marker=marker))
        tried = solutions_read(head, data.model_copy(update={"answer": readers}))
        rows = [row.answer for row in _rows([("", tried)])]
        if 2 * sum(unread(rows)) < len(rows):
            return f"write `answer = [{', '.join(map(reader_words, readers))}]`, which reads these references too"
    return (
        "name the column that holds the answers alone by `columns`, or mark each answer by a box or `#### `"
    )


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
