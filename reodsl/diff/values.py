"""Values of settings in few characters: with their units, sizes of what is long, and never a line break."""

from __future__ import annotations

from typing import Any

from reodsl.diff.compare import ABSENT
from reodsl.ir.reward_text import number_text

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
    """A value as a person would write it: `32K tokens`, `on`, `5 budgets`-long lists by their ends, `none`."""
    name = setting.rpartition(".")[2]
    if value is ABSENT or value == ABSENT:
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
        case int() | float():
            return number_text(float(value))
        case str():
            return value if value and value == value.strip() and value.isprintable() else repr(value)
        case list() | tuple():
            return _list(name, list(value))
    return str(value)


def _list(name: str, value: list[Any]) -> str:
    items = [value_text(name, item).removesuffix(" tokens") for item in value]
    if len(items) > _LISTED:
        items = [*items[:3], "…", items[-1]]
        return f"{len(value)}: {', '.join(items)}" + (" tokens" if name in _TOKENS else "")
    return f"[{', '.join(items)}]" + (" tokens" if name in _TOKENS else "")
