"""What other people's code says of its failure: an exception in, one short line for a diagnostic out."""

from __future__ import annotations

import json
from typing import Any


def first_line(fault: BaseException, otherwise: str | None = None, most: int = 200) -> str:
    """The first line that says anything, `most` characters of it; without one `otherwise`, or the exception's own name."""
    lines = str(fault).strip().splitlines()
    return lines[0][:most] if lines else type(fault).__name__ if otherwise is None else otherwise


def misread(fault: Exception) -> str:
    """Why a JSON file is not what it should be, for its reader: of many things that are wrong the first, with its place."""
    errors: Any = getattr(fault, "errors", None)
    if callable(errors):
        first = errors()[0]
        place = ".".join(map(str, first["loc"]))
        return f"`{place}`: {first['msg']}" if place else str(first["msg"])
    match fault:
        case UnicodeDecodeError():
            return f"it is no UTF-8 text: byte {fault.start} is 0x{fault.object[fault.start]:02x}"
        case json.JSONDecodeError():
            return f"it is no JSON: {fault.msg} at line {fault.lineno}, column {fault.colno}"
        case RecursionError():
            return "it is nested too deeply"
        case KeyError():
            return f"it has no `{fault.args[0]}`"
        case ValueError() if "integer string conversion" in str(fault):
            return "a number in it has thousands of digits"
    return first_line(fault)
