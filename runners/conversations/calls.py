"""Read calls of tools in what a model wrote: JSON between `<tool_call>` and `</tool_call>`, as Hermes and Qwen write it."""

from __future__ import annotations

import json
import re
from typing import Any

MOST_CALLS = 16
"""Calls of one turn that are made; what comes after them is not."""
_THOUGHT = "</think>"
_CALL = re.compile(r"<tool_call>(.*?)</tool_call>", re.DOTALL)
Call = dict[str, Any]
"""`{"name", "arguments"}`, or `{"error"}` for what is none."""


def calls_of(text: str) -> list[Call]:
    """The calls in a turn, in order; those in its thinking are none."""
    _, _, reply = text.rpartition(_THOUGHT)
    return [_call(each) for each in _CALL.findall(reply)[:MOST_CALLS]]


def _call(text: str) -> Call:
    try:
        call = json.loads(text)
        name, arguments = call["name"], call.get("arguments", {})
        if isinstance(arguments, str):
            arguments = json.loads(arguments)
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        return {"error": "the call is no JSON object with `name` and `arguments`"}
    if not isinstance(name, str) or not isinstance(arguments, dict):
        return {"error": "the call needs a text as its `name` and an object as its `arguments`"}
    return {"name": name, "arguments": arguments}
