"""Read records as data, of JSON or of nested Parquet: the values of named columns and of fields in them, as texts."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import polars as pl

from reodsl.diagnostics import problem
from reodsl.ir.data import Columns
from runners.data.table import join_answers, list_mapped, require_columns


def jsonl_records(path: Path) -> Iterator[tuple[str, Any]]:
    """Yield the place and the value of each line; raise E0707 at a line that is not JSON."""
    with path.open(encoding="utf-8-sig") as file:
        for number, line in enumerate(file, start=1):
            if line.strip():
                yield f"line {number}", _json(line, path, f"line {number}")


def json_records(path: Path) -> Iterator[tuple[str, Any]]:
    """Yield the place and the value of each item of a list; raise E0707 where the file holds something else."""
    text = path.read_text(encoding="utf-8-sig")
    if text.lstrip()[:1] == "{":
        # Hubs hold many `.json` files that are one record a line.
        yield from jsonl_records(path)
        return
    content = _json(text, path, "")
    if not isinstance(content, list):
        raise problem(
            "E0707",
            f"the file holds {_kind(content)}, not a list of records",
            where=str(path),
            help='write `[{"question": …, "answer": …}, …]`, or one record a line in a .jsonl file',
        )
    yield from ((f"record {n}", row) for n, row in enumerate(content, start=1))


class _NoNumber(Exception):
    """NaN or an infinity, which is not JSON and is written by some programs for a missing value."""


def _no_number(name: str) -> str:
    raise _NoNumber(name)


class _Spelled(str):
    """A number, as it is written."""


_DECODER = json.JSONDecoder(parse_int=_Spelled, parse_float=_Spelled, parse_constant=_no_number)


def _json(text: str, path: Path, place: str) -> Any:
    where = f"{path}, {place}" if place else str(path)
    try:
        return _DECODER.decode(text)
    except _NoNumber as failure:
        raise problem(
            "E0707",
            f"{failure} stands where a value should",
            where=where,
            help="write `null` where there is none, or take the row out",
        ) from None
    except json.JSONDecodeError as failure:
        line = where if place else f"{path}, line {failure.lineno}"
        raise problem(
            "E0707", f"this is not JSON: {failure.msg}", where=line, help="correct or remove it"
        ) from None
    except RecursionError:
        raise problem(
            "E0707", "the JSON is nested too deep", where=where, help="correct or remove it"
        ) from None


def from_records(rows: list[tuple[str, Any]], path: Path, columns: Columns) -> pl.DataFrame:
    """Return the mapped fields of records as text; numbers are texts already, in their own spelling (`spell_numbers`)."""
    present: dict[str, None] = {}
    for place, row in rows:
        if not isinstance(row, dict):
            raise problem(
                "E0707",
                f"this is {_kind(row)}, not a record",
                where=f"{path}, {place}",
                help='each row is a record, as in `{"question": …, "answer": …}`',
            )
        present.update(dict.fromkeys(field_paths(row)))
    names = [name for name in list_mapped(columns) if name not in columns.meta]
    if rows:
        require_columns(list(present), columns, str(path))
    data = {
        name: [_text(_field(row, name), name, path, place, columns) for place, row in rows] for name in names
    }
    frame = pl.DataFrame(data, schema=dict.fromkeys(names, pl.String))
    facts = [
        pl.Series(name, [_valued(_field(row, name)) for _, row in rows], dtype=pl.Object)
        for name in dict.fromkeys(columns.meta)
    ]
    return frame.with_columns(facts)


def spell_numbers(value: Any) -> Any:
    """Return a value of Parquet as JSON's reader gives one: numbers and times as texts."""
    match value:
        case dict():
            return {name: spell_numbers(each) for name, each in value.items()}
        case list():
            return [spell_numbers(each) for each in value]
        case str() | bool() | None:
            return value
    return _Spelled(value)


def field_paths(row: Mapping[str, Any], before: str = "") -> Iterator[str]:
    """Yield the names of a record's fields, those inside other records as paths: `reward_model.ground_truth`."""
    for name, value in row.items():
        yield before + name
        if isinstance(value, dict):
            yield from field_paths(value, f"{before}{name}.")


def _field(row: Mapping[str, Any], name: str) -> Any:
    """Return a field by its name or its path; None where it is not there."""
    if name in row:
        return row[name]
    first, dot, rest = name.partition(".")
    inner = row.get(first)
    return _field(inner, rest) if dot and isinstance(inner, dict) else None


def _valued(value: Any) -> Any:
    """Return a field as JSON has it, its numbers as numbers."""
    match value:
        case _Spelled():
            return json.loads(value)
        case list():
            return [_valued(each) for each in value]
        case dict():
            return {name: _valued(each) for name, each in value.items()}
    return value


def _text(value: Any, name: str, path: Path, place: str, columns: Columns) -> str | None:
    """Return a field as text. A list of texts as answer is several right ones; a list of messages is what they say."""
    several = isinstance(value, list)
    if several and value and all(isinstance(each, dict) and "content" in each for each in value):
        value = _message(value, name, path, place, asked=name == columns.question)
    elif several and name == columns.answer:
        return join_answers(_text(item, name, path, place, columns) for item in value)
    if value is None:
        return None
    if isinstance(value, str):
        # Half of a surrogate pair is legal in JSON and in no UTF-8 text.
        return value.encode("utf-8", "replace").decode("utf-8")
    if isinstance(value, bool):
        return "true" if value else "false"
    inner = f", such as `{name}.{next(iter(value))}`" if isinstance(value, dict) and value else ""
    raise problem(
        "E0707",
        f"`{name}` is {_kind(value)}, where text or a number is needed",
        where=f"{path}, {place}",
        help=f"name a field of it{inner}" if inner else "write it as one text",
    )


def _message(messages: list[Any], name: str, path: Path, place: str, *, asked: bool) -> Any:
    """Return what a conversation asks, with its system's words in front, or what its last message answers."""
    if not asked:
        return _content(messages[-1]["content"], name, path, place)
    roles = [message.get("role") for message in messages]
    if roles[-1] != "user" or set(roles[:-1]) - {"system"}:
        raise problem(
            "E0707",
            f"`{name}` is a conversation ({', '.join(map(str, roles))}), where one question is needed",
            where=f"{path}, {place}",
            help="keep the user's message of the turn that is trained on, with a system message in front at most",
        )
    return "\n\n".join(_content(message["content"], name, path, place) for message in messages)


def _content(content: Any, name: str, path: Path, place: str) -> str:
    """Return a message's words, which may be parts as servers take them. Raises E0707 for a part that is no text."""
    parts = [part.get("text") for part in content] if _records(content) else [content]
    if all(isinstance(part, str) for part in parts):
        return "".join(parts)
    raise problem(
        "E0707",
        f"a message of `{name}` holds something else than text",
        where=f"{path}, {place}",
        help="keep only messages and parts of messages that are text",
    )


def _records(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(each, dict) for each in value)


def _kind(value: Any) -> str:
    names = {dict: "a record", list: "a list", str: "a text or number", bool: "a truth value"}
    return names.get(str if isinstance(value, str) else type(value), "null")
