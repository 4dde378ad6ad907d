"""Read calls of tools in what a model wrote: JSON between `<tool_call>` and `</tool_call>`, as Hermes and Qwen write it."""

from __future__ import annotations

import re
from typing import Any

from runners.untrusted import Undecodable, decoded

MOST_CALLS = 16
"""Calls of one turn that are made; what comes after them is not."""
LONGEST_CALL = 2**20
"""Bytes of a call that are read."""
_THOUGHT = "</think>"
_CALL = re.compile(r"<tool_call>(.*?)</tool_call>", re.DOTALL)
Call = dict[str, Any]
"""`{"name", "arguments"}`, or `{"error"}` for what is none."""


def calls_of(text: str) -> list[Call]:
    """Return the calls in a turn, in order; those in its thinking are none."""
    _, _, reply = text.rpartition(_THOUGHT)
    return [_call(each) for each in _CALL.findall(reply)[:MOST_CALLS]]


def _call(text: str) -> Call:
    try:
        call = decoded(text, LONGEST_CALL)
        name, arguments = call["name"], call.get("arguments", {})
        if isinstance(arguments, str):
            arguments = decoded(arguments, LONGEST_CALL)
    except (Undecodable, TypeError, KeyError, AttributeError):
        return {"error": "the call is no JSON object with `name` and `arguments`"}
    if not isinstance(name, str) or not isinstance(arguments, dict):
        return {"error": "the call needs a text as its `name` and an object as its `arguments`"}
    return {"name": name, "arguments": arguments}
