"""Put the failure of other people's code in one short line for a diagnostic."""

from __future__ import annotations

import json
from typing import Any


def first_line(fault: BaseException, otherwise: str | None = None, most: int = 200) -> str:
    """Get the first line with words, at most `most` characters of it; else `otherwise` or the exception's name."""
    lines = str(fault).strip().splitlines()
    return lines[0][:most] if lines else type(fault).__name__ if otherwise is None else otherwise


def misread(fault: Exception) -> str:
    """Say what is wrong with a JSON file: the first mistake, with its place."""
    errors: Any = getattr(fault, "errors", None)
    if callable(errors):
        first = errors()[0]
        place = ".".join(map(str, first["loc"]))
        return f"`{place}`: {first['msg']}" if place else str(first["msg"])
    match fault:
        case UnicodeDecodeError():
            return f"it is not UTF-8 text: byte {fault.start} is 0x{fault.object[fault.start]:02x}"
        case json.JSONDecodeError():
            return f"it is not JSON: {fault.msg} at line {fault.lineno}, column {fault.colno}"
        case RecursionError():
            return "it is nested too deeply"
        case KeyError():
            return f"it has no `{fault.args[0]}`"
        case ValueError() if "integer string conversion" in str(fault):
            return "a number in it has thousands of digits"
    return first_line(fault)
