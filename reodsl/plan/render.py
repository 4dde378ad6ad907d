"""A plan as text and as JSON data: the same facts, short by default with the hidden count."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import Any

from reodsl.ir import Origin
from reodsl.plan.changes import Difference, words
from reodsl.plan.schedules import schedule_json, schedule_text, schedules
from reodsl.plan.verdict import Item, Plan

_MARKS = {"reuse": "=", "run": "+", "rerun": "~", "later": "?"}
_CHANGES = 3
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
        "schedules": [schedule_json(row) for row in schedules(study)],
        "tasks": [item_json(item) for item in plan.items],
        "totals": plan.totals,
    }


def to_text(plan: Plan, everything: bool = False, now: datetime | None = None) -> str:
    """The plan for people: what is to do and why; finished tasks too with `everything`."""
    rows = _rows(plan, everything, now or datetime.now(UTC))
    width = max([30, *(len(row[0]) for row in rows)]) + 2
    lines = [_head(plan, width + 40)]
    for name, verdict, reason, more in rows:
        lines.append(f"{name:<{width}}{verdict:<8}{reason}".rstrip())
        lines += [" " * (width + 8) + line for line in more]
    hidden = 0 if everything else plan.totals["reuse"]
    if hidden:
        lines.append(
            f"    {hidden} {_plural('task', hidden)} unchanged (--all shows {'it' if hidden == 1 else 'them'})"
        )
    for change in plan.spec.changes:
        lines.append(f"    {change.option} {change.target}={change.value} is not saved in a spec")
    for row in schedules(plan.spec.study):
        lines += schedule_text(row)
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


def _rows(plan: Plan, everything: bool, now: datetime) -> list[tuple[str, str, str, tuple[str, ...]]]:
    """(name, verdict, reason, lines below it) for each group of tasks that differ in their seed alone."""
    groups: dict[tuple[str, str, str, tuple[str, ...]], int] = {}
    for item in plan.items:
        if item.verdict == "reuse" and not everything:
            continue
        reason = f"done {ago(item.made, now)}" if item.made else _SEED.sub("", item.reason)
        row = (_SEED.sub("", item.task.id), item.verdict, reason, _below(item))
        groups[row] = groups.get(row, 0) + 1
    return [
        (f"  {_MARKS[verdict]} {name}" + (f" x{count}" if count > 1 else ""), verdict, reason, below)
        for (name, verdict, reason, below), count in groups.items()
    ]


def _below(item: Item) -> tuple[str, ...]:
    """Where the first change was made, then the next few changes with their places."""
    if item.task.kind == "report":
        return ()
    lines = []
    for index, change in enumerate(item.changes[:_CHANGES]):
        if index:
            lines.append(words(change))
        if change.origin:
            lines.append(place(change.origin))
    more = len(item.changes) - _CHANGES
    return (*lines, f"and {more} more") if more > 0 else tuple(lines)


def place(origin: Origin) -> str:
    """`specs/quickstart.reo:16`, or the option of the command line."""
    return origin.path if origin.path.startswith("--") else f"{origin.path}:{origin.line}"


def _plural(name: str, count: int) -> str:
    return name if count == 1 else name + "s"
