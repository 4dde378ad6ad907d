"""Text of a setting's value: in few characters, with its unit, and never a line break."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from reodsl.ir.reward_text import number_text

ABSENT = "\0absent"
"""A mark for a setting that one side does not have; never a value of a setting."""
_TOKENS = frozenset(
    {
        "max_tokens",
        "max_prompt",
        "context",
        "l_max",
        "reg_to",
        "to",
        "answer_tokens",
        "expected_length",
        "grid",
        "budgets",
    }
)
_STEPS = frozenset({"steps", "warmup_steps", "save_every", "window"})
_LISTED = 8


def value_text(setting: str, value: Any) -> str:
    """Format a value as a person would: `32K tokens`, `on`, `none`, and long lists by their ends."""
    name = setting.rpartition(".")[2]
    if value == ABSENT:
        return "not there"
    match value:
        case None:
            return "none"
        case bool():
            return "on" if value else "off"
        case int() | float() if name in _TOKENS:
            return number_text(float(value), tokens=True)
        case int() if name in _STEPS:
            return f"{value} step{'' if value == 1 else 's'}"
        case int() | float() if name == "limit":
            return (
                f"{number_text(value / 1000)}K gpu_hours"
                if value >= 1000
                else f"{number_text(float(value))} gpu_hours"
            )
        case int():
            return str(value)
        case float():
            return number_text(value)
        case str():
            return value if value and value == value.strip() and value.isprintable() else repr(value)
        case list() | tuple():
            return _list(name, list(value))
        case Mapping():
            return str(value.get("kind") or value.get("op") or f"{len(value)} settings")
    return str(value)


def _list(name: str, value: list[Any]) -> str:
    items = [value_text(name, item).removesuffix(" tokens") for item in value]
    if len(items) > _LISTED:
        items = [*items[:3], "…", items[-1]]
        return f"{len(value)}: {', '.join(items)}" + (" tokens" if name in _TOKENS else "")
    return f"[{', '.join(items)}]" + (" tokens" if name in _TOKENS else "")
