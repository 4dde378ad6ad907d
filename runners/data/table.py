"""The questions table: text columns id, question, answer, bare, trace and meta, made from any frame and checked.

`bare` is there where what is asked is known without the words that it is asked in, `trace` where questions come with
worked solutions, `meta` (JSON) where more is known of questions: what scores the answers, or further columns.
"""

from __future__ import annotations

import difflib
import hashlib
import json
import re
from collections.abc import Iterable, Sequence
from typing import Literal

import polars as pl

from reodsl.diagnostics import problem
from reodsl.ir.chat import question_key
from reodsl.ir.data import Columns
from runners.verify import SEPARATOR

SHOWN = 5
"""The most rows or columns that a message names before it only counts them."""
_SPACE = re.compile(r"\s+")


def question_id(question: str) -> str:
    """Return the identity of a question: 16 hexadecimal digits of the SHA-256 of its text."""
    return hashlib.sha256(question.encode("utf-8", "surrogatepass")).hexdigest()[:16]


def list_mapped(columns: Columns) -> list[str]:
    """Return the source's column names that are read."""
    every = (columns.question, columns.answer, columns.trace, columns.id)
    return list(dict.fromkeys([name for name in every if name is not None] + list(columns.meta)))


def require_columns(present: Sequence[str], columns: Columns, where: str) -> None:
    """Raise a Problem (E0701) naming each missing column of the mapping, the columns that exist, and how to map them.

    A field of a record has its path as its name, as in `reward_model.ground_truth`.
    """
    wanted = {
        "question": columns.question,
        "answer": columns.answer,
        "trace": columns.trace,
        "id": columns.id,
    }
    wanted.update({f"meta {name}": name for name in columns.meta})
    missing = {role: name for role, name in wanted.items() if name is not None and name not in present}
    if not missing:
        return
    names = ", ".join(f"`{name}`" for name in missing.values())
    notes = []
    records = {path.rpartition(".")[0] for path in present}
    fields = [path for path in present if path not in records]
    for role, name in missing.items():
        last = {path.rpartition(".")[2]: path for path in reversed(fields)}
        near = difflib.get_close_matches(name, [*fields, *last], n=1)
        if near:
            notes.append(f"for `{role}`, did you mean `{last.get(near[0], near[0])}`?")
    role = next(iter(missing)).partition(" ")[0]
    raise problem(
        "E0701",
        f"the data has no column{'s' if len(missing) > 1 else ''} {names}",
        where=where,
        notes=[f"it has {_names(present)}", *notes],
        help=f'say which column holds it, as in `columns: columns({role}: "problem")`',
    )


def questions_table(frame: pl.DataFrame, columns: Columns, where: str) -> pl.DataFrame:
    """Return the mapped columns of `frame` under the table's names; numbers and truth values become text, ids are added.

    A list of texts as answer is several right ones (see `join_answers`).

    Raises a Problem: E0701 for missing columns, E0702 for a column of lists or records.
    """
    require_columns(frame.columns, columns, where)
    picked = {"question": columns.question, "answer": columns.answer}
    if columns.trace is not None:
        picked["trace"] = columns.trace
    if columns.id is not None:
        picked["id"] = columns.id
    for role, name in picked.items():
        kind = frame.schema[name]
        if role == "answer" and kind == pl.List(pl.String):
            joined = [None if several is None else join_answers(several) for several in frame[name].to_list()]
            frame = frame.with_columns(pl.Series(name, joined, dtype=pl.String))
            continue
        if kind.is_nested() or kind in (pl.Binary, pl.Object):
            raise problem(
                "E0702",
                f"column `{name}` holds {kind}, and `{role}` needs text",
                where=where,
                help=f"write a file in which `{name}` is one text (or number) a row",
            )
    table = frame.select(pl.col(name).cast(pl.String).alias(role) for role, name in picked.items())
    if columns.id is None:
        table = add_ids(table)
    if columns.meta:
        facts = frame.select(list(dict.fromkeys(columns.meta))).iter_rows(named=True)
        texts = [json.dumps(row, default=str) for row in facts]
        table = table.with_columns(pl.Series("meta", texts, dtype=pl.String))
    order = [name for name in ("id", "question", "answer", "trace", "meta") if name in table.columns]
    return table.select(order)


def join_answers(several: Iterable[str | None]) -> str:
    """Return several right answers as one text, without equal and empty ones; grading takes any of them."""
    return SEPARATOR.join(dict.fromkeys(text for text in several if text is not None and text.strip()))


def add_ids(table: pl.DataFrame) -> pl.DataFrame:
    """Return `table` with column `id` made from its questions."""
    ids = [None if text is None else question_id(text) for text in table["question"]]
    return table.with_columns(pl.Series("id", ids, dtype=pl.String))


def require_filled(table: pl.DataFrame, where: str, scored: bool = False) -> None:
    """Raise a Problem where the table has no rows (E0703), or a row lacks its question, answer, trace or id (E0704).

    A question that its source scores may have no single right answer.
    """
    if table.height == 0:
        raise problem("E0703", "the data has no questions", where=where, help="give a source with rows in it")
    for name in table.columns:
        if name in ("bare", "meta") or (name == "answer" and scored and "meta" in table.columns):
            continue
        text = table[name]
        empty = (text.is_null() | (text.str.strip_chars() == "")).fill_null(True)
        rows = [index + 1 for index in empty.arg_true().to_list()]
        if rows:
            raise problem(
                "E0704",
                f"{len(rows)} of {table.height} rows have no {name}",
                where=f"{where}, {_rows(rows)}",
                help="fill them in, or take those rows out of the data",
            )


def settle_duplicates(table: pl.DataFrame, duplicates: Literal["error", "drop"], where: str) -> pl.DataFrame:
    """Return `table` with each question once; later rows of a question are dropped, or raise E0705, which shows them.

    Two questions are the same when their `question_key` is, which sees through marks of a chat; with traces, rows are the
    same when the traces are equal as well, since a question may come with several solutions.
    """
    seen: dict[tuple[str, str], int] = {}
    kept: list[int] = []
    repeated: list[tuple[int, int]] = []
    traces = table["trace"].to_list() if "trace" in table.columns else [""] * table.height
    for row, (question, trace) in enumerate(zip(table["question"].to_list(), traces, strict=True)):
        first = seen.setdefault((question_key(question), trace), row)
        if first == row:
            kept.append(row)
        else:
            repeated.append((first, row))
    if not repeated:
        return table
    if duplicates == "drop":
        return table[kept]
    pairs = [
        f"row {second + 1} repeats row {first + 1}: {_shorten(table['question'][second])}"
        for first, second in repeated
    ]
    raise problem(
        "E0705",
        f"{len(repeated)} of {table.height} questions are duplicates",
        where=where,
        notes=_first(pairs),
        help="take them out, or write `duplicates = drop` to keep the first of each",
    )


def require_names(table: pl.DataFrame, where: str) -> None:
    """Raise a Problem (E0713) if several questions, by their `question_key`, have one id.

    Seeds of responses, references, budgets and scores go by the id: such questions would be taken for one.
    """
    firsts: dict[str, int] = {}
    texts = [question_key(text) for text in table["question"]]
    shared: dict[str, str] = {}
    for row, (name, text) in enumerate(zip(table["id"], texts, strict=True)):
        first = firsts.setdefault(name, row)
        if texts[first] != text:
            shown = [f"row {at + 1}, {_shorten(table['question'][at])}" for at in (first, row)]
            shared.setdefault(name, f"`{_shorten(name)}`: {'; '.join(shown)}")
    if shared:
        raise problem(
            "E0713",
            f"{len(shared)} of {len(firsts)} ids are those of several questions",
            where=where,
            notes=_first(list(shared.values())),
            help="give every question its own, or leave `id` out of `columns`: ids are made from the questions then",
        )


def _first(lines: Sequence[str]) -> list[str]:
    rest = len(lines) - SHOWN
    return [*lines[:SHOWN], *([f"and {rest} more"] if rest > 0 else [])]


def _rows(rows: Sequence[int]) -> str:
    shown = ", ".join(str(row) for row in rows[:SHOWN])
    return f"row{'s' if len(rows) > 1 else ''} {shown}{', …' if len(rows) > SHOWN else ''}"


def _names(names: Iterable[str]) -> str:
    shown = [f"`{_shorten(name)}`" for name in names]
    if not shown:
        return "no columns"
    return ", ".join(shown[:20]) + (f" and {len(shown) - 20} more" if len(shown) > 20 else "")


def _shorten(text: str) -> str:
    line = _SPACE.sub(" ", text)
    return line if len(line) <= 60 else line[:59] + "…"
