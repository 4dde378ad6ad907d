"""Values of settings in few characters, and what changed since a plan was saved, a line for every setting."""

from __future__ import annotations

from typing import Any

from reodsl.diff.compare import ABSENT, compare
from reodsl.graph.task import Graph
from reodsl.ir import Spec
from reodsl.ir.reward_text import number_text
from reodsl.ir.study import Study
from reodsl.plan.places import Places

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


_NO_WORK = Graph(())


def changes(before: Study, now: Spec) -> tuple[str, ...]:
    """List `reo_exp: optim.lr 5e-6 -> 1e-6 (specs/a.reo:8)` for every setting that differs."""
    difference = compare(Spec(study=before), now, _NO_WORK, _NO_WORK)
    lines, places = [], Places(now)
    for each in (*difference.arms, difference.study):
        owner = "" if each is difference.study else f"{each.a}: "
        for row in each.rows:
            old, new = value_text(row.setting, row.a), value_text(row.setting, row.b)
            origin = places.setting(each.b, row.setting)
            place = f" ({origin.path}:{origin.line})" if origin is not None and origin.line else ""
            lines.append(f"{owner}{row.setting} {old} -> {new}{place}")
    lines += [f"{name} is no longer an arm" for name in difference.only_a]
    lines += [f"{name} is a new arm" for name in difference.only_b]
    return tuple(dict.fromkeys(lines))
