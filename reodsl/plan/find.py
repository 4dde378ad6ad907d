"""A plan and what a person calls a task of it to that task, or to the names that were most likely meant."""

from __future__ import annotations

import difflib

from reodsl.diagnostics import problem
from reodsl.plan.verdict import Item, Plan

_SHOWN = 12


def find(plan: Plan, name: str | None) -> Item:
    """The task of that id, or the only one that starts so. Raises E0955 with near names, or all for no name."""
    ids = [item.task.id for item in plan.items]
    if name is None:
        raise problem("E0955", "no task is named", help=f"name one of: {_listed(ids)}")
    chosen = [item for item in plan.items if item.task.id == name]
    chosen = chosen or [item for item in plan.items if item.task.id.startswith(f"{name}.")]
    if len(chosen) != 1:
        near = (
            [item.task.id for item in chosen] or difflib.get_close_matches(name, ids, n=5, cutoff=0.4) or ids
        )
        what = "several tasks start with" if chosen else "no task is called"
        raise problem("E0955", f"{what} `{name}`", help=f"name one of: {_listed(near)}")
    return chosen[0]


def _listed(names: list[str]) -> str:
    more = f" and {len(names) - _SHOWN} more (`reodsl graph SPEC`)" if len(names) > _SHOWN else ""
    return ", ".join(names[:_SHOWN]) + more
