"""Decode untrusted JSON within bounds that are checked before any value is built.

Bytes from a model's program, a function of the user, a worker or a judge are decoded here. All faults raise `Undecodable`.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable
from functools import partial
from typing import Any

from reodsl.diagnostics.model import RepeatedName, shorten_text, unique_record

MOST_DIGITS = 4300
"""The most digits of a number, which is Python's limit for writing integers as text."""
DEEPEST = 400
"""The most levels of nested lists and records. A level of a program's value takes up to three levels."""
_SHOWN_CHARACTERS = 200
"""The most characters of an untrusted text in a message."""
MOST_VALUES = 1 << 22
"""The most values in a text, counted by commas and opening brackets. A value takes up to a hundred bytes of memory."""
_MARKS = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"?|([\[{])|[\]},]', re.DOTALL)


class Undecodable(Exception):
    """Bytes that are no JSON value within the bounds, with the reason as the message."""


def decoded(data: bytes | str, longest: int) -> Any:
    """Return the value of untrusted JSON.

    Args:
        data: The JSON.
        longest: The most bytes that the JSON may have.

    Raises:
        Undecodable: The JSON has a fault, such as bad syntax, a repeated name, or too deep nesting.
    """
    if isinstance(data, str):
        data = data.encode("utf-8", "surrogatepass")
    if len(data) > longest:
        raise Undecodable(f"it has {len(data):,} bytes, and may have {longest:,}")
    opened = data.count(b"[") + data.count(b"{")
    if opened > DEEPEST or opened + data.count(b",") > MOST_VALUES:
        _require_bounded(data)
    try:
        return _DECODER.decode(data.decode("utf-8", "surrogatepass"))
    except RepeatedName as failure:
        raise Undecodable(f"in a record, {shown(str(failure))}") from None
    except UnicodeDecodeError:
        raise Undecodable("it is not UTF-8") from None
    except (ValueError, RecursionError, MemoryError):
        raise Undecodable("it is not JSON") from None


def encoded(value: object) -> bytes:
    """Return a value as a line of JSON in ASCII.

    Raises:
        Undecodable: The value is nested too deep.
    """
    try:
        return json.dumps(value).encode("ascii") + b"\n"
    except (ValueError, RecursionError):
        raise Undecodable("it is nested too deep") from None


def shown(text: str) -> str:
    """Return the beginning of an untrusted text as a line of printable characters, for a message."""
    start = text[: 4 * _SHOWN_CHARACTERS]
    printable = "".join(character if character.isprintable() else " " for character in start)
    return shorten_text(printable, _SHOWN_CHARACTERS)


def _require_bounded(data: bytes) -> None:
    """Check the number of values and the depth of nesting in JSON.

    Brackets and commas inside texts do not count. The bytes are scanned once, and no value is built.

    Raises:
        Undecodable: The JSON is nested deeper than `DEEPEST`, or has more than `MOST_VALUES` values.
    """
    depth = values = 0
    for match in _MARKS.finditer(data):
        mark = match[0]
        if mark[0] == _QUOTE:
            continue
        depth += 1 if match[1] else 0 if mark == b"," else -1
        values += mark in b"[{,"
        if depth > DEEPEST:
            raise Undecodable(f"it is nested deeper than {DEEPEST}")
        if values > MOST_VALUES:
            raise Undecodable(f"it has more than {MOST_VALUES:,} values")


def _read_number(convert: Callable[[str], float], text: str) -> float:
    """Return a number as `int` or `float` converts it.

    Raises:
        Undecodable: It has more than `MOST_DIGITS` digits, whose conversion would take long.
    """
    if len(text.lstrip("-")) > MOST_DIGITS:
        raise Undecodable(f"one of its numbers has more than {MOST_DIGITS:,} digits")
    return convert(text)


_QUOTE = ord('"')
_DECODER = json.JSONDecoder(
    parse_int=partial(_read_number, int),
    parse_float=partial(_read_number, float),
    object_pairs_hook=unique_record,
)


SPELLINGS = frozenset({"", "nan", "NaN", "NAN", "None", "null", "NULL", "<NA>", "NaT", "inf", "-inf", "+inf"})
"""Texts that programs write for a missing value, NaN or an infinity."""


def is_missing(value: object) -> bool:
    """Return whether a field's value is null, NaN, an infinity, white space, or a word for a missing value."""
    if isinstance(value, str):
        return value.strip() in SPELLINGS
    return value is None or (isinstance(value, float) and not math.isfinite(value))
