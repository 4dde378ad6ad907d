"""Make and check questions tables, whose text columns are id, question, answer, bare, trace and meta.

`bare` is the question without its wording, if its source knows it; `trace` is a worked solution; `meta` is JSON with
metadata for scorers, or with further columns of a file.
"""

from __future__ import annotations

import difflib
import hashlib
import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Literal

import polars as pl

from reodsl.diagnostics import problem
from reodsl.diagnostics.model import RepeatedName, shorten_text, unique_record
from reodsl.ir.chat import question_key
from reodsl.ir.data import Columns
from runners.grade import SEPARATOR
from runners.sandbox.untrusted import SPELLINGS, is_missing

MOST_SHOWN = 5
"""The most rows or columns that a message names."""


def question_id(question: str) -> str:
    """Return the id of a question: 16 hexadecimal digits of the SHA-256 of its text."""
    return hashlib.sha256(question.encode("utf-8", "surrogatepass")).hexdigest()[:16]


def _names_by_role(columns: Columns) -> dict[str, str]:
    """Return the source's column for each of `question`, `answer`, `trace` and `id` that `columns` maps to a column."""
    return {
        role: name
        for role in ("question", "answer", "trace", "id")
        if (name := getattr(columns, role)) is not None
    }


def list_mapped(columns: Columns) -> list[str]:
    """Return the names of all columns of a source that are read, including columns of metadata."""
    return list(dict.fromkeys([*_names_by_role(columns).values(), *columns.meta]))


def require_columns(present: Sequence[str], columns: Columns, where: str) -> None:
    """Check that a source has all columns that are mapped.

    Args:
        present: The source's columns; a field of a record has its path, such as `reward_model.ground_truth`.
        columns: The mapping of columns.
        where: The source, for the message.

    Raises:
        Problem: E0701, with the missing and the existing columns and similar names.
    """
    mapped = _names_by_role(columns) | {f"meta {name}": name for name in columns.meta}
    missing = {role: name for role, name in mapped.items() if name not in present}
    if not missing:
        return
    names = ", ".join(f"`{name}`" for name in missing.values())
    notes = []
    records = {path.rpartition(".")[0] for path in present}
    fields = [path for path in present if path not in records]
    for role, name in missing.items():
        last = {path.rpartition(".")[2]: path for path in reversed(fields)}
        matches = difflib.get_close_matches(name, [*fields, *last], n=1)
        if matches:
            notes.append(f"for `{role}`, did you mean `{last.get(matches[0], matches[0])}`?")
    role = next(iter(missing)).partition(" ")[0]
    raise problem(
        "E0701",
        f"the data has no column{'s' if len(missing) > 1 else ''} {names}",
        where=where,
        notes=[f"it has {_names(present)}", *notes],
        help=f'name the column with the {role}, as in `columns: columns({role}: "problem")`',
    )


def questions_table(frame: pl.DataFrame, columns: Columns, where: str) -> pl.DataFrame:
    """Return the questions table of a source's frame: the mapped columns as text, with ids.

    Args:
        frame: The rows of the source. A list of texts as an answer means several right answers.
        columns: The mapping of columns. Without an `id`, ids are hashes of the questions.
        where: The source, for messages.

    Returns:
        A table with the columns id, question, answer, and trace and meta if they are mapped.

    Raises:
        Problem: E0701 for a missing column, or a column of lists or records.
    """
    require_columns(frame.columns, columns, where)
    picked = _names_by_role(columns)
    for role, name in picked.items():
        kind = frame.schema[name]
        if role == "answer" and kind == pl.List(pl.String):
            joined = [None if answers is None else join_answers(answers) for answers in frame[name].to_list()]
            frame = frame.with_columns(pl.Series(name, joined, dtype=pl.String))
            continue
        if kind.is_nested() or kind in (pl.Binary, pl.Object):
            raise problem(
                "E0701",
                f"column `{name}` has the type {kind}, and `{role}` needs text",
                where=where,
                help=f"write a file in which `{name}` has a text or number in each row",
            )
    table = frame.select(pl.col(name).cast(pl.String).alias(role) for role, name in picked.items())
    if columns.id is None:
        table = add_ids(table)
    if columns.meta:
        facts = frame.select(list(dict.fromkeys(columns.meta))).iter_rows(named=True)
        texts = [
            json.dumps({name: _without_nan(value) for name, value in row.items()}, default=str)
            for row in facts
        ]
        table = table.with_columns(pl.Series("meta", texts, dtype=pl.String))
    return table.select(
        name for name in ("id", "question", "answer", "trace", "meta") if name in table.columns
    )


def join_answers(answers: Iterable[str | None]) -> str:
    """Return several right answers as a single reference, joined by `SEPARATOR`, without duplicates and missing values."""
    return SEPARATOR.join(
        dict.fromkeys(text for text in answers if text is not None and not is_missing(text))
    )


def add_ids(table: pl.DataFrame) -> pl.DataFrame:
    """Return a table with a column `id` of the hashes of its questions."""
    ids = [None if text is None else question_id(text) for text in table["question"]]
    return table.with_columns(pl.Series("id", ids, dtype=pl.String))


def require_filled(table: pl.DataFrame, where: str, scored: bool = False) -> None:
    """Check that a table has rows, and that no row has a missing question, answer, trace or id.

    Columns that the table does not have are not checked. Words that programs write for a missing value, such as `nan`,
    count as missing.

    Args:
        table: The questions table of a source.
        where: The source, for messages.
        scored: True if the source scores answers itself, by the column `meta`: questions then need no reference answer.

    Raises:
        Problem: E0704 for a table without rows, or for the first column with missing values.
    """
    if table.height == 0:
        raise problem("E0704", "the data has no questions", where=where, help="name a source that has rows")
    for name in table.columns:
        if name in ("bare", "meta") or (name == "answer" and scored and "meta" in table.columns):
            continue
        missing = table[name].str.strip_chars().is_in(list(SPELLINGS)).fill_null(True)
        rows = [index + 1 for index in missing.arg_true().to_list()]
        if rows:
            text = (table[name][rows[0] - 1] or "").strip()
            raise problem(
                "E0704",
                f"{len(rows)} of {table.height} rows have no {name}",
                where=f"{where}, {_rows(rows)}",
                notes=[f"row {rows[0]} has `{text}`, which programs write for a missing value"]
                if text
                else (),
                help="fill them in, or remove these rows from the data",
            )


def settle_duplicates(table: pl.DataFrame, duplicates: Literal["error", "drop"], where: str) -> pl.DataFrame:
    """Return a table without rows that repeat the question of an earlier row.

    A row repeats an earlier row if both have the same `question_key` and the same trace. The key ignores the tokens of
    a chat template. The trace counts because a question may have several worked solutions.

    Args:
        table: The questions table.
        duplicates: `drop` to remove repeated rows, `error` to refuse them.
        where: The sources, for the message.

    Raises:
        Problem: E0705 for repeated rows, if `duplicates` is `error`.
    """
    seen: dict[tuple[str, str], int] = {}
    rows: list[int] = []
    repeated: list[tuple[int, int]] = []
    traces = table["trace"].to_list() if "trace" in table.columns else [""] * table.height
    for row, (question, trace) in enumerate(zip(table["question"].to_list(), traces, strict=True)):
        first = seen.setdefault((question_key(question), trace), row)
        if first == row:
            rows.append(row)
        else:
            repeated.append((first, row))
    if not repeated:
        return table
    if duplicates == "drop":
        return table[rows]
    pairs = [
        f"row {second + 1} repeats row {first + 1}: {shorten_text(table['question'][second])}"
        for first, second in repeated
    ]
    raise problem(
        "E0705",
        f"{len(repeated)} of {table.height} questions are duplicates",
        where=where,
        notes=list_first(pairs),
        help="remove them, or write `duplicates = drop` to keep the first row of each question",
    )


def require_names(table: pl.DataFrame, where: str) -> None:
    """Check that different questions have different ids, because seeds, references and scores are found by id.

    Questions are equal if they have the same `question_key`.

    Args:
        table: The questions table.
        where: The sources, for the message.

    Raises:
        Problem: E0705, with the ids and the questions.
    """
    firsts: dict[str, int] = {}
    texts = [question_key(text) for text in table["question"]]
    shared: dict[str, str] = {}
    for row, (name, text) in enumerate(zip(table["id"], texts, strict=True)):
        first = firsts.setdefault(name, row)
        if texts[first] != text:
            lines = [f"row {i + 1}, {shorten_text(table['question'][i])}" for i in (first, row)]
            shared.setdefault(name, f"`{shorten_text(name)}`: {'; '.join(lines)}")
    if shared:
        raise problem(
            "E0705",
            f"{len(shared)} of {len(firsts)} ids belong to several questions",
            where=where,
            notes=list_first(list(shared.values())),
            help="give every question a different id, or leave `id` out of `columns` to have ids made from the questions",
        )


def list_first(lines: Sequence[str]) -> list[str]:
    """Return the first `MOST_SHOWN` lines for a message, and a line with the number of further lines."""
    hidden = len(lines) - MOST_SHOWN
    return [*lines[:MOST_SHOWN], *([f"and {hidden} more"] if hidden > 0 else [])]


def _rows(rows: Sequence[int]) -> str:
    """Return row numbers for a message, such as `rows 1, 2, 5, …`."""
    numbers = ", ".join(str(row) for row in rows[:MOST_SHOWN])
    return f"row{'s' if len(rows) > 1 else ''} {numbers}{', …' if len(rows) > MOST_SHOWN else ''}"


def _names(names: Iterable[str]) -> str:
    """Return names in backquotes for a message, at most 20, and the number of further names."""
    listed = [f"`{shorten_text(name)}`" for name in names]
    if not listed:
        return "no columns"
    return ", ".join(listed[:20]) + (f" and {len(listed) - 20} more" if len(listed) > 20 else "")


def jsonl_records(path: Path) -> Iterator[tuple[str, Any]]:
    """Yield the position (`line 3`) and the JSON value of each line of a file.

    Raises:
        Problem: E0706 for a line that is not JSON.
    """
    with path.open(encoding="utf-8-sig") as file:
        for number, line in enumerate(file, start=1):
            if line.strip() in ("{", "["):
                raise problem(
                    "E0706",
                    "a record has several lines, and this file needs a record in each line",
                    where=f"{path}, line {number}",
                    help=f"name the file `{path.with_suffix('.json').name}`, whose records may have several lines",
                )
            if line.strip():
                yield f"line {number}", _json(line, path, f"line {number}")


def json_records(path: Path) -> Iterator[tuple[str, Any]]:
    """Yield the position and the value of each record of a JSON file.

    The file is a list of records, or records one after another without a list.

    Raises:
        Problem: E0706 for any other content.
    """
    text = path.read_text(encoding="utf-8-sig")
    if text.lstrip()[:1] == "{":
        # Many `.json` files on hubs have a record in each line, or records of several lines.
        line, start = 1, 0
        while match := _NOT_SPACE.search(text, start):
            line += text.count("\n", start, match.start())
            value, end = _json(text, path, "", match.start())
            yield f"line {line}", value
            line += text.count("\n", match.start(), end)
            start = end
        return
    content = _json(text, path, "")
    if not isinstance(content, list):
        raise problem(
            "E0706",
            f"the file is {_kind(content)}, not a list of records",
            where=str(path),
            help='write `[{"question": …, "answer": …}, …]`, or a record in each line of a .jsonl file',
        )
    yield from ((f"record {n}", row) for n, row in enumerate(content, start=1))


class _NumberText(str):
    """A number as the file spells it: `1.50` stays `1.50`."""


_NOT_SPACE = re.compile(r"\S")
_DECODER = json.JSONDecoder(
    parse_int=_NumberText,
    parse_float=_NumberText,
    parse_constant=lambda name: None,
    object_pairs_hook=unique_record,
)
"""A decoder that reads NaN and infinities, which some programs write for a missing value, as None."""


def _json(text: str, path: Path, position: str, start: int | None = None) -> Any:
    """Return the JSON value of a text.

    Args:
        text: The text.
        path: The file, for messages.
        position: The position in the file for messages, such as `line 3`; may be empty.
        start: None to decode the full text, or the index at which a value begins.

    Returns:
        The value; with `start`, the value and the index after it.

    Raises:
        Problem: E0706.
    """
    where = f"{path}, {position}" if position else str(path)
    try:
        return _DECODER.decode(text) if start is None else _DECODER.raw_decode(text, start)
    except RepeatedName as failure:
        raise problem(
            "E0706",
            f"in a record, {failure}",
            where=where,
            help="give every field of the record a different name",
        ) from None
    except json.JSONDecodeError as failure:
        line = where if position else f"{path}, line {failure.lineno}"
        raise problem(
            "E0706", f"this is not JSON: {failure.msg}", where=line, help="correct or remove this text"
        ) from None
    except RecursionError:
        raise problem(
            "E0706", "the JSON is nested too deep", where=where, help="correct or remove this text"
        ) from None


def from_records(rows: list[tuple[str, Any]], path: Path, columns: Columns) -> pl.DataFrame:
    """Return a frame with the mapped fields of records: text columns, and metadata as Python objects.

    Args:
        rows: The position (`line 3`) and the value of each row. Numbers are `_NumberText`, as `spell_numbers` gives them.
        path: The file, for messages.
        columns: The mapping of columns; a field of a record inside a record has its path as its name.

    Raises:
        Problem: E0701 for a missing column, E0706 for a row that is not a record or a field that is not text.
    """
    present: dict[str, None] = {}
    for position, row in rows:
        if not isinstance(row, dict):
            raise problem(
                "E0706",
                f"this is {_kind(row)}, not a record",
                where=f"{path}, {position}",
                help='each row is a record, as in `{"question": …, "answer": …}`',
            )
        present.update(dict.fromkeys(field_paths(row)))
    names = [name for name in list_mapped(columns) if name not in columns.meta]
    if rows:
        require_columns(list(present), columns, str(path))
    data = {
        name: [_text(_field(row, name), name, path, position, columns) for position, row in rows]
        for name in names
    }
    frame = pl.DataFrame(data, schema=dict.fromkeys(names, pl.String))
    facts = [
        pl.Series(name, [_parse_numbers(_field(row, name)) for _, row in rows], dtype=pl.Object)
        for name in dict.fromkeys(columns.meta)
    ]
    return frame.with_columns(facts)


def spell_numbers(value: Any) -> Any:
    """Return a value of a Parquet file in which every number and time is a `_NumberText`, as in values of the JSON reader.

    NaN and infinities become None. Texts and truth values stay, also inside lists and records.
    """
    match value:
        case dict():
            return {name: spell_numbers(item) for name, item in value.items()}
        case list():
            return [spell_numbers(item) for item in value]
        case str() | bool() | None:
            return value
        case float():
            return None if is_missing(value) else _NumberText(value)
    return _NumberText(value)


def field_paths(row: Mapping[str, Any], prefix: str = "") -> Iterator[str]:
    """Yield the names of a record's fields, and the paths of fields of inner records: `reward_model.ground_truth`."""
    for name, value in row.items():
        yield prefix + name
        if isinstance(value, dict):
            yield from field_paths(value, f"{prefix}{name}.")


def _field(row: Mapping[str, Any], name: str) -> Any:
    """Return the value of a record's field by its name or its path (`reward_model.ground_truth`).

    A field whose name is the full path comes first. The result is None if the record lacks the field.
    """
    if name in row:
        return row[name]
    first, dot, rest = name.partition(".")
    inner = row.get(first)
    return _field(inner, rest) if dot and isinstance(inner, dict) else None


def _parse_numbers(value: Any) -> Any:
    """Return a field's value in which every `_NumberText` that is a number is an int or a float."""
    match value:
        case _NumberText():
            with suppress(ValueError):
                return json.loads(value)
            # A date, or a time.
            return str(value)
        case list():
            return [_parse_numbers(item) for item in value]
        case dict():
            return {name: _parse_numbers(item) for name, item in value.items()}
    return value


def _without_nan(value: Any) -> Any:
    """Return a value of a frame, or None for NaN and infinities."""
    return None if isinstance(value, float) and is_missing(value) else value


def _text(value: Any, name: str, path: Path, position: str, columns: Columns) -> str | None:
    """Return the value of a field as text; None for null.

    A list of chat messages becomes the text of the question, in the question's column, or else of the last message.
    Another list in the answer's column is several right answers. Truth values become `true` and `false`.

    Args:
        value: The value; numbers are `_NumberText`.
        name: The name of the field.
        path: The file, for messages.
        position: The position of the row, for messages.
        columns: The mapping of columns.

    Raises:
        Problem: E0706 for a record, another list, or messages that are not text.
    """
    is_list = isinstance(value, list)
    if is_list and value and all(isinstance(message, dict) and "content" in message for message in value):
        value = _message(value, name, path, position, is_question=name == columns.question)
    elif is_list and name == columns.answer:
        return join_answers(_text(item, name, path, position, columns) for item in value)
    if value is None:
        return None
    if isinstance(value, str):
        # JSON may contain unpaired surrogates, which UTF-8 cannot encode.
        return value.encode("utf-8", "replace").decode("utf-8")
    if isinstance(value, bool):
        return "true" if value else "false"
    inner = f", such as `{name}.{next(iter(value))}`" if isinstance(value, dict) and value else ""
    raise problem(
        "E0706",
        f"`{name}` is {_kind(value)}, and must be a text or a number",
        where=f"{path}, {position}",
        help=f"name a field of the record{inner}" if inner else "write it as a text",
    )


def _message(messages: list[Any], name: str, path: Path, position: str, *, is_question: bool) -> Any:
    """Return the text of a conversation in a field.

    Args:
        messages: The messages, with `role` and `content`.
        name: The name of the field.
        path: The file, for messages of errors.
        position: The position of the row, for messages of errors.
        is_question: True to return the system message and the user's message; False to return the last message.

    Raises:
        Problem: E0706 if a question has other messages than a system message and a user's message.
    """
    if not is_question:
        return _content(messages[-1]["content"], name, path, position)
    roles = [message.get("role") for message in messages]
    if roles[-1] != "user" or set(roles[:-1]) - {"system"}:
        raise problem(
            "E0706",
            f"`{name}` is a conversation ({', '.join(map(str, roles))}), and must be a single question",
            where=f"{path}, {position}",
            help="keep only the user's message of the turn to train on, and a system message before it",
        )
    return "\n\n".join(_content(message["content"], name, path, position) for message in messages)


def _content(content: Any, name: str, path: Path, position: str) -> str:
    """Return the text of a chat message's content.

    Args:
        content: A text, or a list of parts with `text`.
        name: The name of the field with the messages, for errors.
        path: The file, for errors.
        position: The position of the row, for errors.

    Raises:
        Problem: E0706 for a part that is not text, such as an image.
    """
    texts = [text.get("text") for text in content] if _is_record_list(content) else [content]
    if all(isinstance(text, str) for text in texts):
        return "".join(texts)
    raise problem(
        "E0706",
        f"a message of `{name}` has content that is not text",
        where=f"{path}, {position}",
        help="keep only messages and parts of messages that are text",
    )


def _is_record_list(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(item, dict) for item in value)


def _kind(value: Any) -> str:
    """Return the type of a JSON value in words, such as "a record"."""
    names = {dict: "a record", list: "a list", str: "a text or number", bool: "a truth value"}
    return names.get(str if isinstance(value, str) else type(value), "null")
