"""Read references out of worked solutions, and find those that no parser reads, and tests that no program could pass."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from contextlib import suppress
from itertools import compress, islice
from pathlib import Path
from typing import Any

import polars as pl

from reodsl.diagnostics import Problem, problem
from reodsl.ir.data import After, AnswerReader, Chance, Columns, Comparison, Data, LastBox, reader_words
from runners.data.files import read_head
from runners.data.table import MOST_SHOWN, field_paths, from_records, list_first, questions_table
from runners.grade import SEPARATOR, read_answer
from runners.grade.checks import find_unreadable
from runners.programs.tests import Unreadable, read_tests

LISTED_ROWS = 20
"""Rows of a kind that are named; the others are only counted."""

HEAD_ROWS = 50
"""References of a file that are looked at before a run starts; only where none of them is read are all looked at."""
COMMON_MARKERS = ("The answer is:", "The answer is", "answer is", "Answer:", "answer:", "A:", "ANSWER:")
"""Words that precede answers in sets of worked solutions; a table that nothing reads is tried with each."""
SENTENCE, LONG_SENTENCE = 5, 12
"""Words from which on a reference is a sentence and no answer: with a full stop, and without one."""
_LIKELY = re.compile("answer|truth|gold|solution|final|target|result|expected|reference", re.IGNORECASE)
"""Names that columns with answers have; of several columns that can be read these are named first."""
_WORDS = re.compile(r"[\u3040-\u9fff]|(?<![\\\w])(?:[0-9]+|[^\W\d_]{2,})")
_MARKS = (After(marker="####"), LastBox())
"""The marks that worked solutions of published sets put before or around their answers."""


def solutions_read(table: pl.DataFrame, data: Data) -> pl.DataFrame:
    """Return the table with each reference that is a worked solution replaced by the answer that it marks.

    A mark is one of the data's own (`after(…)`), `####` as GSM8K has it, or a box as MATH has it, in this order; the last
    one counts, as it does in a response. A reference without a mark stays as it is, and so does a box alone, and what code
    is given.
    """
    comparison = _comparison(data)
    if comparison not in ("math", "exact"):
        return table
    readers: list[AnswerReader] = [reader for reader in data.answer if isinstance(reader, After)]
    readers += _MARKS

    def answer_of(reference: str) -> str:
        answer = read_answer(readers, reference)
        return reference if not answer or reference.strip() == f"\\boxed{{{answer}}}" else answer

    read = [
        text and SEPARATOR.join(dict.fromkeys(map(answer_of, text.split(SEPARATOR))))
        for text in table["answer"]
    ]
    return table.with_columns(pl.Series("answer", read, dtype=pl.String))


def _comparison(data: Data) -> Comparison:
    return data.verifier.of if isinstance(data.verifier, Chance) else data.verifier


def require_read(
    table: pl.DataFrame, data: Data, source: str, columns: Columns, files: Sequence[Path]
) -> None:
    """Raise E0716 if no reference of a table can be read, so that no answer could be right.

    A sentence counts as unread here: as words, it would be right in just these words. `files` are the source's.
    """
    if _comparison(data) != "math":
        return
    references = [text for text in table["answer"] if text and text.strip()]
    if not (references and all(_unread(references[:HEAD_ROWS])) and all(_unread(references[HEAD_ROWS:]))):
        return
    first = " ".join(references[0].split())
    raise problem(
        "E0716",
        f"none of the {len(references):,} references reads as an answer: no response could be right",
        where=source,
        notes=[f"row 1 has `{first if len(first) < 80 else first[:79] + '…'}`"],
        help=_advice(table, data, columns, files),
    )


def _unread(references: Sequence[str]) -> list[bool]:
    """Return for each reference whether it is no answer: a text that no parser reads, or a sentence."""
    sentences = [all(map(_is_sentence, text.split(SEPARATOR))) for text in references]
    return [mark or sentence for mark, sentence in zip(find_unreadable(references), sentences, strict=True)]


def _is_sentence(text: str) -> bool:
    words = _WORDS.findall(text)
    full_stop = text.rstrip().endswith((".", "!", "。"))
    return len(words) >= (SENTENCE if full_stop else LONG_SENTENCE) and sum(map(str.isalpha, words)) > 2


def _advice(table: pl.DataFrame, data: Data, columns: Columns, files: Sequence[Path]) -> str:
    """Return a remedy for a table that nothing reads: a common marker, or else another column or field.

    Each is tried on the table's head, all at once, as a parser takes a second to start.
    """
    head = table.head(HEAD_ROWS)
    by_marker = {}
    for marker in COMMON_MARKERS:
        readers = (*data.answer, After(marker=marker))
        way = f"write `answer = [{', '.join(map(reader_words, readers))}]`, which reads these references too"
        read = solutions_read(head, data.model_copy(update={"answer": readers}))
        by_marker[way] = read["answer"].to_list()
    by_column = dict(_other_columns(data, columns, files))
    tried = [*by_marker.values(), *by_column.values()]
    marks = iter(_unread([text for answers in tried for text in answers]))
    few = [2 * sum(islice(marks, len(answers))) < len(answers) for answers in tried]
    for way in compress(by_marker, few):
        return way
    names = sorted(compress(by_column, few[len(by_marker) :]), key=lambda name: _LIKELY.search(name) is None)
    if not names:
        return "name the column that holds the answers alone by `columns`, or mark each answer by a box or `#### `"
    roles = dict(columns) | {"answer": names[0], "meta": list(columns.meta) or None}
    call = ", ".join(
        f"{role}: {json.dumps(name, ensure_ascii=False)}"
        for role, name in roles.items()
        if name not in (None, role)
    )
    more = f"; {', '.join(f'`{name}`' for name in names[1:MOST_SHOWN])} can be read too" if names[1:] else ""
    return f"if `{names[0]}` holds the answers, write `columns: columns({call})`{more}"


def _other_columns(data: Data, columns: Columns, files: Sequence[Path]) -> Iterator[tuple[str, list[str]]]:
    """Yield the columns and fields that hold texts and have no role yet, with the references that they would be."""
    records = read_head(files[0], HEAD_ROWS) if files else []
    named = {columns.question, columns.answer, columns.trace, columns.id, *columns.meta}
    for name in dict.fromkeys(path for _, row in records for path in field_paths(row) if path not in named):
        roles = Columns(question=columns.question, answer=name)
        with suppress(Problem):
            table = questions_table(from_records(records, files[0], roles), roles, "").drop_nulls("answer")
            yield name, solutions_read(table, data)["answer"].to_list()


def doubtful_references(tables: Sequence[tuple[str, pl.DataFrame]], data: Data) -> dict[str, Any] | None:
    """Return the content of `references.json`, or None if no reference is doubtful.

    `tables` are the sources' tables by name. `unread` are references that the mathematical verifier reads only as text
    though they are no words.
    """
    if data.verifier != "math":
        return None
    rows = [
        {"source": source, "row": number, "question": question, "answer": answer}
        for source, table in tables
        for number, (question, answer) in enumerate(table.select("question", "answer").iter_rows(), 1)
        if answer
    ]
    unread = list(compress(rows, find_unreadable([row["answer"] for row in rows])))
    return (
        {"rows": len(rows), "unread": {"count": len(unread), "first": unread[:LISTED_ROWS]}}
        if unread
        else None
    )


def require_tests(table: pl.DataFrame, where: str) -> None:
    """Raise E0718, which names rows whose tests cannot judge a program."""
    metas = table["meta"].to_list() if "meta" in table.columns else [""] * table.height
    faults = []
    for row, (answer, meta) in enumerate(zip(table["answer"], metas, strict=True), 1):
        try:
            read_tests(tuple(answer.split(SEPARATOR)), meta or "")
        except Unreadable as failure:
            faults.append(f"row {row}: {failure}")
    if faults:
        raise problem(
            "E0718",
            f"{len(faults)} of {table.height} rows have no tests that can be read",
            where=where,
            notes=list_first(faults),
            help='name the column with the tests, as `columns: columns(answer: "test_list")`: see `reodsl explain own_code`',
        )
