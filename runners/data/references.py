"""Read reference answers from worked solutions, and find references and tests that cannot be read."""

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
"""The most doubtful rows that `references.json` lists."""

HEAD_ROWS = 50
"""The number of references that are checked first; the others are checked only if none of these can be read."""
COMMON_MARKERS = ("The answer is:", "The answer is", "answer is", "Answer:", "answer:", "A:", "ANSWER:")
"""Words before answers in published worked solutions, which are tried for a table whose references cannot be read."""
SENTENCE, LONG_SENTENCE = 5, 12
"""The fewest words of a reference that is a sentence and no answer: with a full stop, and without a full stop."""
_LIKELY = re.compile("answer|truth|gold|solution|final|target|result|expected|reference", re.IGNORECASE)
"""Words in the names of columns with answers; advice names these columns first."""
_WORDS = re.compile(r"[\u3040-\u9fff]|(?<![\\\w])(?:[0-9]+|[^\W\d_]{2,})")
_MARKS = (After(marker="####"), LastBox())
"""The markers that published worked solutions put before or around their answers."""


def solutions_read(table: pl.DataFrame, data: Data) -> pl.DataFrame:
    """Return a questions table in which references that are worked solutions are replaced by their answers.

    The answer is read after a marker of the declaration (`after(…)`), after `####` as in GSM8K, or from a box as in
    MATH. These are tried in this order, and the last marker or box in the text counts. A reference without a marker or
    box stays unchanged, and so does a reference that is only a box. With other verifiers than `math` and `exact` all
    references stay unchanged.

    Args:
        table: The questions table of a source.
        data: The declaration, for its markers and verifier.
    """
    comparison = _comparison(data)
    if comparison not in ("math", "exact"):
        return table
    readers: list[AnswerReader] = [reader for reader in data.answer if isinstance(reader, After)]
    readers += _MARKS

    def answer_of(reference: str) -> str:
        """Return the answer in a worked solution, or the reference itself."""
        answer = read_answer(readers, reference)
        return reference if not answer or reference.strip() == f"\\boxed{{{answer}}}" else answer

    read = [
        text and SEPARATOR.join(dict.fromkeys(map(answer_of, text.split(SEPARATOR))))
        for text in table["answer"]
    ]
    return table.with_columns(pl.Series("answer", read, dtype=pl.String))


def _comparison(data: Data) -> Comparison:
    """Return the verifier of a declaration, without the wrapper of a rehearsal."""
    return data.verifier.of if isinstance(data.verifier, Chance) else data.verifier


def require_read(
    table: pl.DataFrame, data: Data, source: str, columns: Columns, files: Sequence[Path]
) -> None:
    """Check that at least one reference of a table can be read as an answer, if the verifier is `math`.

    A table without references passes. A sentence does not count as an answer, because only a response with the same
    words would be right. The first `HEAD_ROWS` references are checked first, because one readable reference is enough.

    Args:
        table: The questions table of a source.
        data: The declaration.
        source: The name of the source for the message.
        columns: The source's names of columns.
        files: The files of the source, in which the advice looks for other columns.

    Raises:
        Problem: E0716, with advice which marker or column to name.
    """
    if _comparison(data) != "math":
        return
    references = [text for text in table["answer"] if text and text.strip()]
    if not (references and all(_unread(references[:HEAD_ROWS])) and all(_unread(references[HEAD_ROWS:]))):
        return
    first = " ".join(references[0].split())
    raise problem(
        "E0716",
        f"none of the {len(references):,} references can be read as an answer, so no response could be right",
        where=source,
        notes=[f"row 1 has `{first if len(first) < 80 else first[:79] + '…'}`"],
        help=_advice(table, data, columns, files),
    )


def _unread(references: Sequence[str]) -> list[bool]:
    """Return for each reference whether it is no answer, because the verifier cannot read it or it is a sentence."""
    sentences = [all(map(_is_sentence, text.split(SEPARATOR))) for text in references]
    return [
        unreadable or sentence
        for unreadable, sentence in zip(find_unreadable(references), sentences, strict=True)
    ]


def _is_sentence(text: str) -> bool:
    """Return whether a text is a sentence: it has at least three words, and enough words and numbers together.

    Enough are `SENTENCE` with a full stop at the end, `LONG_SENTENCE` without.
    """
    words = _WORDS.findall(text)
    has_full_stop = text.rstrip().endswith((".", "!", "。"))
    return len(words) >= (SENTENCE if has_full_stop else LONG_SENTENCE) and sum(map(str.isalpha, words)) > 2


def _advice(table: pl.DataFrame, data: Data, columns: Columns, files: Sequence[Path]) -> str:
    """Return advice for a table whose references cannot be read: a common marker, or another column.

    A marker or column is advised if it makes more than half of the table's first references readable. Markers come
    before columns, and among columns those with a likely name come first. All candidates are checked at once, because
    math-verify takes a second to start.

    Args:
        table: The questions table of a source.
        data: The declaration of the data, for its readers of answers.
        columns: The source's names of columns.
        files: The files of the source, in which other columns are looked for.
    """
    head = table.head(HEAD_ROWS)
    answers_by_advice = {}
    for marker in COMMON_MARKERS:
        readers = (*data.answer, After(marker=marker))
        advice = (
            f"write `answer = [{', '.join(map(reader_words, readers))}]`, which reads these references too"
        )
        read = solutions_read(head, data.model_copy(update={"answer": readers}))
        answers_by_advice[advice] = read["answer"].to_list()
    answers_by_column = dict(_other_columns(data, columns, files))
    candidates = [*answers_by_advice.values(), *answers_by_column.values()]
    unread = iter(_unread([text for answers in candidates for text in answers]))
    helps = [2 * sum(islice(unread, len(answers))) < len(answers) for answers in candidates]
    for advice in compress(answers_by_advice, helps):
        return advice
    names = sorted(
        compress(answers_by_column, helps[len(answers_by_advice) :]),
        key=lambda name: _LIKELY.search(name) is None,
    )
    if not names:
        return (
            "name the column that has only the answers in `columns`, or mark each answer by a box or `#### `"
        )
    roles = dict(columns) | {"answer": names[0], "meta": list(columns.meta) or None}
    call = ", ".join(
        f"{role}: {json.dumps(name, ensure_ascii=False)}"
        for role, name in roles.items()
        if name not in (None, role)
    )
    others = (
        f"; {', '.join(f'`{name}`' for name in names[1:MOST_SHOWN])} can be read too" if names[1:] else ""
    )
    return f"if `{names[0]}` has the answers, write `columns: columns({call})`{others}"


def _other_columns(data: Data, columns: Columns, files: Sequence[Path]) -> Iterator[tuple[str, list[str]]]:
    """Yield the names of a file's columns and fields that `columns` does not name, with their texts read as references.

    Columns that are not text are left out. Only the first rows of the first file are read.

    Args:
        data: The declaration of the data, for its readers of answers.
        columns: The source's names of columns.
        files: The files of the source.
    """
    records = read_head(files[0], HEAD_ROWS) if files else []
    named = {columns.question, columns.answer, columns.trace, columns.id, *columns.meta}
    for name in dict.fromkeys(path for _, row in records for path in field_paths(row) if path not in named):
        roles = Columns(question=columns.question, answer=name)
        with suppress(Problem):
            table = questions_table(from_records(records, files[0], roles), roles, "").drop_nulls("answer")
            yield name, solutions_read(table, data)["answer"].to_list()


def doubtful_references(tables: Sequence[tuple[str, pl.DataFrame]], data: Data) -> dict[str, Any] | None:
    """Return the references that the mathematical verifier cannot read, as the content of `references.json`.

    Args:
        tables: The name and the questions table of each source.
        data: The declaration.

    Returns:
        The number of `rows` with a reference, and under `unread` the `count` of unreadable references and the `first` of
        them, at most `LISTED_ROWS`. None if all references can be read, or if the verifier is not `math`.
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
    """Check that the tests of every row can be read, for the verifier `tests`.

    Raises:
        Problem: E0718, which names the rows.
    """
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
            f"the tests of {len(faults)} of {table.height} rows cannot be read",
            where=where,
            notes=list_first(faults),
            help='name the column with the tests, as `columns: columns(answer: "test_list")`: see `reodsl explain own_code`',
        )
