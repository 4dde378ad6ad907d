"""Turn bytes that somebody else wrote into values, within bounds that hold before anything is built of them.

Everything goes through here that a model's program, a function of the user's, a worker or a judge says. What does not fit
is refused in one way, whatever is wrong with it.
"""

from __future__ import annotations

import json
import math
import re
from collections import Counter
from typing import Any

MOST_DIGITS = 4300
"""Digits of a number: as many as Python writes as a text again."""
DEEPEST = 400
"""Lists and records inside each other. Values of programs take up to three of them for each level of their own."""
_SHOWN_CHARACTERS = 200
"""Characters of somebody else's words that are shown."""
MOST_VALUES = 1 << 22
"""Values in one, which its commas and opening brackets count. A value takes up to a hundred bytes of memory."""
_MARKS = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"?|([\[{])|[\]},]', re.DOTALL)


class Undecodable(Exception):
    """Bytes that hold no value within the bounds, with the reason."""


def decoded(data: bytes | str, longest: int) -> Any:
    """Return the value that at most `longest` bytes of JSON hold. Raises Undecodable, and nothing else."""
    if isinstance(data, str):
        data = data.encode("utf-8", "surrogatepass")
    if len(data) > longest:
        raise Undecodable(f"it has {len(data):,} bytes, and may have {longest:,}")
    opened = data.count(b"[") + data.count(b"{")
    if opened > DEEPEST or opened + data.count(b",") > MOST_VALUES:
        _require_bounded(data)
    try:
        return _DECODER.decode(data.decode("utf-8", "surrogatepass"))
    except UnicodeDecodeError:
        raise Undecodable("it is not UTF-8") from None
    except (ValueError, RecursionError, MemoryError):
        raise Undecodable("it is not JSON") from None


def encoded(value: object) -> bytes:
    """Return a value as a line of JSON. Raises Undecodable if the value is nested too deep."""
    try:
        return json.dumps(value).encode("ascii") + b"\n"
    except (ValueError, RecursionError):
        raise Undecodable("it is nested too deep") from None


def shown(text: str) -> str:
    """Return the beginning of a foreign text as a single line of printable characters."""
    line = "".join(
        character if character.isprintable() else " " for character in text[: 4 * _SHOWN_CHARACTERS]
    )
    words = " ".join(line.split())
    return words if len(words) <= _SHOWN_CHARACTERS else f"{words[: _SHOWN_CHARACTERS - 1]}…"


def _require_bounded(data: bytes) -> None:
    """Count the values and their depth outside of texts. Raises Undecodable."""
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


def _record(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    record = dict(pairs)
    if len(record) < len(pairs):
        ((name, _),) = Counter(name for name, _ in pairs).most_common(1)
        raise Undecodable(f"it has `{shown(name)}` twice")
    return record


def _integer(text: str) -> int:
    _require_short(text)
    return int(text)


def _decimal(text: str) -> float:
    _require_short(text)
    return float(text)


def _require_short(text: str) -> None:
    if len(text.lstrip("-")) > MOST_DIGITS:
        raise Undecodable(f"one of its numbers has more than {MOST_DIGITS:,} digits")


_QUOTE = ord('"')
_DECODER = json.JSONDecoder(parse_int=_integer, parse_float=_decimal, object_pairs_hook=_record)


SPELLINGS = frozenset({"", "nan", "NaN", "NAN", "None", "null", "NULL", "<NA>", "NaT", "inf", "-inf", "+inf"})
"""Texts that programs write for a missing value, or for a number that is none."""


def is_missing(value: object) -> bool:
    """Return whether a field holds no value: null, NaN, an infinity, white space, or a word for a missing value."""
    if isinstance(value, str):
        return value.strip() in SPELLINGS
    return value is None or (isinstance(value, float) and not math.isfinite(value))
