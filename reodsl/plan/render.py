"""A plan as text and as JSON data: the same facts, short by default with the hidden count."""

from __future__ import annotations

import re
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any

from reodsl.plan.changes import Difference
from reodsl.plan.verdict import Item, Plan

_MARKS = {"reuse": "=", "run": "+", "rerun": "~", "later": "?"}
_SEED = re.compile(r"\.s\d+(~\d+)?\b")


def to_json(plan: Plan) -> dict[str, Any]:
    """The plan as JSON data; documented in docs/ARTIFACTS.md."""
    study = plan.spec.study
    return {
        "study": study.name,
        "spec": plan.digest,
        "arms": [arm.name for arm in study.arms],
        "frontiers": [frontier.name for frontier in study.frontiers],
        "seeds": list(study.seeds),
        "changes": [change.model_dump() for change in plan.spec.changes],
        "tasks": [item_json(item) for item in plan.items],
        "totals": plan.totals,
    }


def to_text(plan: Plan, everything: bool = False, now: datetime | None = None) -> str:
    """The plan for people: what is to do and why; finished tasks too with `everything`."""
    rows = _rows(plan, everything, now or datetime.now(UTC))
    width = max([30, *(len(row[0]) for row in rows)]) + 2
    lines = [_head(plan, width + 40)]
    for name, verdict, reason, place in rows:
        lines.append(f"{name:<{width}}{verdict:<8}{reason}".rstrip())
        if place:
            lines.append(" " * (width + 8) + place)
    hidden = 0 if everything else plan.totals["reuse"]
    if hidden:
        lines.append(
            f"    {hidden} {_plural('task', hidden)} unchanged (--all shows {'it' if hidden == 1 else 'them'})"
        )
    for change in plan.spec.changes:
        lines.append(f"    {change.option} {change.target}={change.value} is not saved in a spec")
    counts = ", ".join(f"{count} {name}" for name, count in plan.totals.items() if count)
    lines.append(f"Plan: {counts}." if plan.work else "Nothing to do: every result is there.")
    return "\n".join(lines)


def ago(made: str, now: datetime) -> str:
    """How long ago an ISO time was, in its largest unit: `2 days ago`."""
    seconds = max(0.0, (now - datetime.fromisoformat(made)).total_seconds())
    for name, size in (("day", 86400), ("hour", 3600), ("minute", 60)):
        if seconds >= size:
            count = int(seconds // size)
            return f"{count} {_plural(name, count)} ago"
    return "just now"


def item_json(item: Item) -> dict[str, Any]:
    """One task of a plan as JSON data."""
    return {
        "id": item.task.id,
        "kind": item.task.kind,
        "arm": item.task.arm,
        "seed": item.task.seed,
        "verdict": item.verdict,
        "reason": item.reason,
        "changes": [_difference(change) for change in item.changes],
        "needs": list(item.needs),
        "key": item.key,
        "made": item.made,
    }


def _difference(change: Difference) -> dict[str, Any]:
    origin = {"path": change.origin.path, "line": change.origin.line} if change.origin else None
    return {"path": change.path, "name": change.name, "old": change.old, "new": change.new, "origin": origin}


def _head(plan: Plan, width: int) -> str:
    study = plan.spec.study
    counts = [(len(study.arms), "arm"), (len(study.frontiers), "frontier"), (len(study.seeds), "seed")]
    left = f"{study.name}  " + ", ".join(f"{count} {_plural(name, count)}" for count, name in counts if count)
    return f"{left:<{width - 13}} spec {plan.digest[:8]}"


def _rows(plan: Plan, everything: bool, now: datetime) -> list[tuple[str, str, str, str]]:
    """(name, verdict, reason, place) for each group of tasks that differ in their seed alone."""
    groups: dict[tuple[str, str, str, str], int] = {}
    for item in plan.items:
        if item.verdict == "reuse" and not everything:
            continue
        reason = f"done {ago(item.made, now)}" if item.made else item.reason
        origins = _unique(
            f"{change.origin.path}:{change.origin.line}" for change in item.changes if change.origin
        )
        row = (_SEED.sub("", item.task.id), item.verdict, _SEED.sub("", reason), " ".join(origins[:3]))
        groups[row] = groups.get(row, 0) + 1
    return [
        (f"  {_MARKS[verdict]} {name}" + (f" x{count}" if count > 1 else ""), verdict, reason, place)
        for (name, verdict, reason, place), count in groups.items()
    ]


def _unique(items: Iterable[str]) -> list[str]:
    return list(dict.fromkeys(items))


def _plural(name: str, count: int) -> str:
    return name if count == 1 else name + "s"
