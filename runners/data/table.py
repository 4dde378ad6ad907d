"""The questions table: text columns id, question, answer, bare, trace and meta, made from any frame or records and checked.

`bare` is there where what is asked is known without the words that it is asked in, `trace` where questions come with
worked solutions, `meta` (JSON) where more is known of questions: what scores the answers, or further columns.
"""

from __future__ import annotations

import difflib
import hashlib
import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Literal

import polars as pl

from reodsl.diagnostics import problem
from reodsl.diagnostics.model import shorten_text
from reodsl.ir.chat import question_key
from reodsl.ir.data import Columns
from runners.grade import SEPARATOR
from runners.sandbox.untrusted import SPELLINGS, is_missing

MOST_SHOWN = 5
"""The most rows or columns that a message names before it only counts them."""


def question_id(question: str) -> str:
    """Return the identity of a question: 16 hexadecimal digits of the SHA-256 of its text."""
    return hashlib.sha256(question.encode("utf-8", "surrogatepass")).hexdigest()[:16]


def _names_by_role(columns: Columns) -> dict[str, str]:
    """Return the source's column for each text column of the table."""
    return {
        role: name
        for role in ("question", "answer", "trace", "id")
        if (name := getattr(columns, role)) is not None
    }


def list_mapped(columns: Columns) -> list[str]:
    """Return the source's column names that are read."""
    return list(dict.fromkeys([*_names_by_role(columns).values(), *columns.meta]))


def require_columns(present: Sequence[str], columns: Columns, where: str) -> None:
    """Raise a Problem (E0701) naming each missing column of the mapping, the columns that exist, and how to map them.

    A field of a record has its path as its name, as in `reward_model.ground_truth`.
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
        help=f'say which column holds it, as in `columns: columns({role}: "problem")`',
    )


def questions_table(frame: pl.DataFrame, columns: Columns, where: str) -> pl.DataFrame:
    """Return the mapped columns of `frame` under the table's names, as text and with ids.

    A list of texts as answer is several right ones (see `join_answers`).

    Raises a Problem: E0701 for missing columns, and for a column of lists or records.
    """
    require_columns(frame.columns, columns, where)
    picked = _names_by_role(columns)
    for role, name in picked.items():
        kind = frame.schema[name]
        if role == "answer" and kind == pl.List(pl.String):
            joined = [None if several is None else join_answers(several) for several in frame[name].to_list()]
            frame = frame.with_columns(pl.Series(name, joined, dtype=pl.String))
            continue
        if kind.is_nested() or kind in (pl.Binary, pl.Object):
            raise problem(
                "E0701",
                f"column `{name}` holds {kind}, and `{role}` needs text",
                where=where,
                help=f"write a file in which `{name}` is one text (or number) a row",
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


def join_answers(several: Iterable[str | None]) -> str:
    """Return several right answers as a text, without duplicates and empty answers; grading accepts any of them."""
    return SEPARATOR.join(
        dict.fromkeys(text for text in several if text is not None and not is_missing(text))
    )


def add_ids(table: pl.DataFrame) -> pl.DataFrame:
    """Return `table` with column `id` made from its questions."""
    ids = [None if text is None else question_id(text) for text in table["question"]]
    return table.with_columns(pl.Series("id", ids, dtype=pl.String))


def require_filled(table: pl.DataFrame, where: str, scored: bool = False) -> None:
    """Raise a Problem (E0704) if the table has no rows, or a row lacks its question, answer, trace or id.

    A question that its source scores may have no single right answer.
    """
    if table.height == 0:
        raise problem("E0704", "the data has no questions", where=where, help="give a source with rows in it")
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
                notes=[f"row {rows[0]} has `{text}`, which programs write where there is none"]
                if text
                else (),
                help="fill them in, or take those rows out of the data",
            )


def settle_duplicates(table: pl.DataFrame, duplicates: Literal["error", "drop"], where: str) -> pl.DataFrame:
    """Return `table` with distinct questions; later rows of a question are dropped, or shown by E0705.

    Two questions are the same when their `question_key` is, which sees through marks of a chat; with traces, rows are the
    same when the traces are equal as well, since a question may come with several solutions.
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
        help="take them out, or write `duplicates = drop` to keep the first of each",
    )


def require_names(table: pl.DataFrame, where: str) -> None:
    """Raise E0705 if several questions, by their `question_key`, have the same id.

    Seeds of responses, references, budgets and scores go by the id, so such questions would be mixed up.
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
            f"{len(shared)} of {len(firsts)} ids are those of several questions",
            where=where,
            notes=list_first(list(shared.values())),
            help="give every question its own, or leave `id` out of `columns`: ids are made from the questions then",
        )


def list_first(lines: Sequence[str]) -> list[str]:
    """Return the first lines for a message, and the number of further lines."""
    rest = len(lines) - MOST_SHOWN
    return [*lines[:MOST_SHOWN], *([f"and {rest} more"] if rest > 0 else [])]


def _rows(rows: Sequence[int]) -> str:
    numbers = ", ".join(str(row) for row in rows[:MOST_SHOWN])
    return f"row{'s' if len(rows) > 1 else ''} {numbers}{', …' if len(rows) > MOST_SHOWN else ''}"


def _names(names: Iterable[str]) -> str:
    listed = [f"`{shorten_text(name)}`" for name in names]
    if not listed:
        return "no columns"
    return ", ".join(listed[:20]) + (f" and {len(listed) - 20} more" if len(listed) > 20 else "")


def jsonl_records(path: Path) -> Iterator[tuple[str, Any]]:
    """Yield the position and the value of each line; raise E0706 at a line that is not JSON."""
    with path.open(encoding="utf-8-sig") as file:
        for number, line in enumerate(file, start=1):
            if line.strip() in ("{", "["):
                raise problem(
                    "E0706",
                    "a record goes on over several lines, and this file has one in each",
                    where=f"{path}, line {number}",
                    help=f"name the file `{path.with_suffix('.json').name}`, which may be laid out so",
                )
            if line.strip():
                yield f"line {number}", _json(line, path, f"line {number}")


def json_records(path: Path) -> Iterator[tuple[str, Any]]:
    """Yield the position and the value of each item of a list, or of each record without a list around them.

    Raises E0706 if the file holds anything else.
    """
    text = path.read_text(encoding="utf-8-sig")
    if text.lstrip()[:1] == "{":
        # Hubs hold many `.json` files that are one record a line; others lay records out over lines.
        line, start = 1, 0
        while match := _SOMETHING.search(text, start):
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
            f"the file holds {_kind(content)}, not a list of records",
            where=str(path),
            help='write `[{"question": …, "answer": …}, …]`, or one record a line in a .jsonl file',
        )
    yield from ((f"record {n}", row) for n, row in enumerate(content, start=1))


class _DuplicateName(Exception):
    """A name that occurs twice in a record."""


def _record(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    record = dict(pairs)
    if len(record) < len(pairs):
        ((name, _),) = Counter(name for name, _ in pairs).most_common(1)
        raise _DuplicateName(name)
    return record


class _NumberText(str):
    """A number in its own spelling."""


_SOMETHING = re.compile(r"\S")
# NaN and infinities are no JSON, and some programs write them for a missing value.
_DECODER = json.JSONDecoder(
    parse_int=_NumberText,
    parse_float=_NumberText,
    parse_constant=lambda name: None,
    object_pairs_hook=_record,
)


def _json(text: str, path: Path, position: str, start: int | None = None) -> Any:
    """Return the value of a text, or the value that begins at `start` with its end. Raises E0706."""
    where = f"{path}, {position}" if position else str(path)
    try:
        return _DECODER.decode(text) if start is None else _DECODER.raw_decode(text, start)
    except _DuplicateName as failure:
        raise problem(
            "E0706",
            f"a record has `{shorten_text(str(failure))}` twice",
            where=where,
            help="give each of its fields a name of its own",
        ) from None
    except json.JSONDecodeError as failure:
        line = where if position else f"{path}, line {failure.lineno}"
        raise problem(
            "E0706", f"this is not JSON: {failure.msg}", where=line, help="correct or remove it"
        ) from None
    except RecursionError:
        raise problem(
            "E0706", "the JSON is nested too deep", where=where, help="correct or remove it"
        ) from None


def from_records(rows: list[tuple[str, Any]], path: Path, columns: Columns) -> pl.DataFrame:
    """Return the mapped fields of records as text; numbers are texts already, in their own spelling (`spell_numbers`)."""
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
    """Return a value of Parquet in the form of JSON's reader: numbers and times as texts."""
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


def field_paths(row: Mapping[str, Any], before: str = "") -> Iterator[str]:
    """Yield the names of a record's fields; fields of inner records are paths: `reward_model.ground_truth`."""
    for name, value in row.items():
        yield before + name
        if isinstance(value, dict):
            yield from field_paths(value, f"{before}{name}.")


def _field(row: Mapping[str, Any], name: str) -> Any:
    """Return a field by its name or its path, or None."""
    if name in row:
        return row[name]
    first, dot, rest = name.partition(".")
    inner = row.get(first)
    return _field(inner, rest) if dot and isinstance(inner, dict) else None


def _parse_numbers(value: Any) -> Any:
    """Return a field with its number texts as numbers."""
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
    """Return a value of a frame, with None in place of NaN."""
    return None if isinstance(value, float) and is_missing(value) else value


def _text(value: Any, name: str, path: Path, position: str, columns: Columns) -> str | None:
    """Return a field as text; a list of texts is several right answers, and a list of messages is their text."""
    several = isinstance(value, list)
    if several and value and all(isinstance(message, dict) and "content" in message for message in value):
        value = _message(value, name, path, position, is_question=name == columns.question)
    elif several and name == columns.answer:
        return join_answers(_text(item, name, path, position, columns) for item in value)
    if value is None:
        return None
    if isinstance(value, str):
        # Half of a surrogate pair is legal in JSON and in no UTF-8 text.
        return value.encode("utf-8", "replace").decode("utf-8")
    if isinstance(value, bool):
        return "true" if value else "false"
    inner = f", such as `{name}.{next(iter(value))}`" if isinstance(value, dict) and value else ""
    raise problem(
        "E0706",
        f"`{name}` is {_kind(value)}, where text or a number is needed",
        where=f"{path}, {position}",
        help=f"name a field of it{inner}" if inner else "write it as one text",
    )


def _message(messages: list[Any], name: str, path: Path, position: str, *, is_question: bool) -> Any:
    """Return a conversation's question behind its system message, or the text of its last message as an answer."""
    if not is_question:
        return _content(messages[-1]["content"], name, path, position)
    roles = [message.get("role") for message in messages]
    if roles[-1] != "user" or set(roles[:-1]) - {"system"}:
        raise problem(
            "E0706",
            f"`{name}` is a conversation ({', '.join(map(str, roles))}), where one question is needed",
            where=f"{path}, {position}",
            help="keep the user's message of the turn that is trained on, with a system message in front at most",
        )
    return "\n\n".join(_content(message["content"], name, path, position) for message in messages)


def _content(content: Any, name: str, path: Path, position: str) -> str:
    """Return a message's text, which may be a list of parts. Raises E0706 for a part that is no text."""
    texts = [text.get("text") for text in content] if _records(content) else [content]
    if all(isinstance(text, str) for text in texts):
        return "".join(texts)
    raise problem(
        "E0706",
        f"a message of `{name}` holds something else than text",
        where=f"{path}, {position}",
        help="keep only messages and parts of messages that are text",
    )


def _records(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(item, dict) for item in value)


def _kind(value: Any) -> str:
    names = {dict: "a record", list: "a list", str: "a text or number", bool: "a truth value"}
    return names.get(str if isinstance(value, str) else type(value), "null")
