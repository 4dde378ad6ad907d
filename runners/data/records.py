"""Read JSON records as data: the values of named columns, as texts."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import polars as pl

from reodsl.diagnostics import problem
from reodsl.ir.data import Columns
from runners.data.table import join_answers, mapped, require_columns


def read_jsonl(path: Path, columns: Columns) -> pl.DataFrame:
    """A file of one record a line; E0707 at the line where there is none."""
    rows = []
    with path.open(encoding="utf-8-sig") as file:
        for number, line in enumerate(file, start=1):
            if line.strip():
                rows.append((f"line {number}", _json(line, path, f"line {number}")))
    return _from_records(rows, path, columns)


def read_json(path: Path, columns: Columns) -> pl.DataFrame:
    """A file of one list of records; E0707 at the record where there is none."""
    text = path.read_text(encoding="utf-8-sig")
    if text.lstrip()[:1] == "{":
        # Hubs hold many `.json` files that are one record a line.
        return read_jsonl(path, columns)
    content = _json(text, path, "")
    if not isinstance(content, list):
        raise problem(
            "E0707",
            f"the file holds {_kind(content)}, not a list of records",
            where=str(path),
            help='write `[{"question": …, "answer": …}, …]`, or one record a line in a .jsonl file',
        )
    return _from_records([(f"record {n}", row) for n, row in enumerate(content, start=1)], path, columns)


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


def _from_records(rows: list[tuple[str, Any]], path: Path, columns: Columns) -> pl.DataFrame:
    """The mapped fields of JSON records as text (numbers are texts already, in their own spelling)."""
    present: dict[str, None] = {}
    for place, row in rows:
        if not isinstance(row, dict):
            raise problem(
                "E0707",
                f"this is {_kind(row)}, not a record",
                where=f"{path}, {place}",
                help='each row is a record, as in `{"question": …, "answer": …}`',
            )
        present.update(dict.fromkeys(row))
    names = [name for name in mapped(columns) if name not in columns.meta]
    if rows:
        require_columns(list(present), columns, str(path))
    several = columns.answer
    data = {
        name: [_text(row.get(name), name, path, place, several=name == several) for place, row in rows]
        for name in names
    }
    frame = pl.DataFrame(data, schema=dict.fromkeys(names, pl.String))
    facts = [
        pl.Series(name, [_valued(row.get(name)) for _, row in rows], dtype=pl.Object)
        for name in dict.fromkeys(columns.meta)
    ]
    return frame.with_columns(facts)


def _valued(value: Any) -> Any:
    """A field as JSON has it, its numbers as numbers."""
    match value:
        case _Spelled():
            return json.loads(value)
        case list():
            return [_valued(each) for each in value]
        case dict():
            return {name: _valued(each) for name, each in value.items()}
    return value


def _text(value: Any, name: str, path: Path, place: str, *, several: bool) -> str | None:
    """A field as text; with `several`, a list of texts stands for several right answers."""
    if several and isinstance(value, list):
        return join_answers(_text(item, name, path, place, several=False) for item in value)
    if value is None:
        return None
    if isinstance(value, str):
        # Half of a surrogate pair is legal in JSON and in no UTF-8 text.
        return value.encode("utf-8", "replace").decode("utf-8")
    if isinstance(value, bool):
        return "true" if value else "false"
    raise problem(
        "E0707",
        f"`{name}` is {_kind(value)}, where text or a number is needed",
        where=f"{path}, {place}",
        help="write it as one text",
    )


def _kind(value: Any) -> str:
    names = {dict: "a record", list: "a list", str: "a text or number", bool: "a truth value"}
    return names.get(str if isinstance(value, str) else type(value), "null")
