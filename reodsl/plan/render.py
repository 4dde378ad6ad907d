"""A plan as text and as JSON data: the same facts, short by default with the hidden count."""

from __future__ import annotations

import re
import textwrap
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import Any

from reodsl.diagnostics.excerpt import visible
from reodsl.diagnostics.markdown import code, document, table
from reodsl.graph.task import Graph
from reodsl.ir import Origin
from reodsl.plan.changes import Difference, words
from reodsl.plan.schedules import schedule_json, schedule_text, schedules
from reodsl.plan.verdict import Item, Plan
from reodsl.price import Prices
from reodsl.price import show as price_words
from reodsl.price.prices import Elapsed, elapsed
from reodsl.price.value import to_json as price_json
from reodsl.price.value import totals_json

_MARKS = {"reuse": "=", "run": "+", "rerun": "~", "later": "?"}
_CHANGES = 3
_ROOM, _ROWS = 60, 100
_ABSENT = 6
_SEED = re.compile(r"\.s\d+(~\d+)?\b")


def to_json(plan: Plan, prices: Prices | None = None) -> dict[str, Any]:
    """The plan as JSON data; documented in docs/JSON.md. With `prices` every task has its `price`."""
    study = plan.spec.study
    return {
        "study": study.name,
        "spec": plan.digest,
        "arms": [arm.name for arm in study.arms],
        "frontiers": [frontier.name for frontier in study.frontiers],
        "seeds": list(study.seeds),
        "changes": [change.model_dump() for change in plan.spec.changes],
        "schedules": [schedule_json(row) for row in schedules(study)],
        "tasks": [
            item_json(item) | ({"price": price_json(prices.tasks[item.task.id])} if prices else {})
            for item in plan.items
        ],
        "totals": plan.totals,
    } | ({"price": _totals(plan, prices)} if prices else {})


def to_text(
    plan: Plan,
    everything: bool = False,
    now: datetime | None = None,
    prices: Prices | None = None,
    columns: int | None = None,
) -> str:
    """The plan for people: what is to do, why, and for how much; finished tasks and all that is priced with `everything`.

    In a terminal of so many `columns`, tasks whose line is longer stand on several, and words are never cut.
    """
    rows, unseen = _rows(plan, everything, now, prices)
    width = max([30, *(len(row.name) for row in rows)]) + 2
    room = min(_ROOM, max([30, *(len(row.reason) for row in rows if row.price)])) + 2
    whole = width + 8 + room + 16 if any(row.price for row in rows) else width + 40
    narrow = columns is not None and columns < whole
    lines = [_head(plan, 0 if narrow else whole)]
    for row in rows:
        if narrow:
            lines += _stacked(row, columns or whole)
            continue
        reason = f"{row.reason:<{room}}{row.price:>16}{row.devices}" if row.price else row.reason
        if row.price and len(row.reason) >= room:
            reason = f"{row.reason}  {row.price}{row.devices}"
        lines.append(f"{row.name:<{width}}{row.verdict:<8}{reason}".rstrip())
        lines += [" " * (width + 8) + line for line in row.below]
    lines += _beneath(plan, everything, prices, unseen, columns)
    return "\n".join(lines if columns is None else [part for line in lines for part in _fold(line, columns)])


def to_markdown(
    plan: Plan,
    path: str,
    everything: bool = False,
    now: datetime | None = None,
    prices: Prices | None = None,
) -> str:
    """The plan of the spec at `path` as Markdown for a page of others: nothing that the spec calls things is markup."""
    rows, unseen = _rows(plan, everything, now, prices)
    name, counts = _counts(plan)
    tasks = [
        (row.name.strip(), row.verdict, "\n".join((row.reason, *row.below)), row.price + row.devices)
        for row in rows
    ]
    *notes, total = _beneath(plan, everything, prices, unseen)
    return document(
        [
            [f"### {code(path)}"],
            [f"{code(name)}: {counts}, spec `{plan.digest[:8]}`. **{total}**"],
            table(("task", "verdict", "why", "price"), tasks) if tasks else (),
            [f"- {code(' '.join(line.split()))}" for line in notes],
        ]
    )


def _beneath(
    plan: Plan, everything: bool, prices: Prices | None, unseen: int, columns: int | None = None
) -> list[str]:
    """Return the lines after the tasks: how many are not shown, changes, budgets, prices, and the total as the last."""
    lines = [f"    {unseen} more tasks to do (--all shows them)"] if unseen else []
    hidden = 0 if everything else plan.totals["reuse"]
    if hidden:
        lines.append(
            f"    {hidden} {_plural('task', hidden)} unchanged (--all shows {'it' if hidden == 1 else 'them'})"
        )
    for change in plan.spec.changes:
        lines.append(f"    {change.option} {change.target}={change.value} is not saved in a spec")
    for schedule in schedules(plan.spec.study):
        lines += schedule_text(schedule, columns)
    if prices is not None and plan.work:
        lines += price_words.summary(prices, (*plan.now, *plan.later), everything)
        lines += price_words.until_the_end(prices, _elapsed(plan, prices))
    if plan.absent:
        shown = ", ".join(map(visible, plan.absent[:_ABSENT]))
        rest = f" and {len(plan.absent) - _ABSENT} more" if len(plan.absent) > _ABSENT else ""
        lines.append(f"Not on this machine: {shown}{rest}. A run here stops before it starts.")
    counts = ", ".join(f"{count} {name}" for name, count in plan.totals.items() if count)
    if not plan.work:
        lines.append("Nothing to do: every result is there.")
    elif prices is None:
        lines.append(f"Plan: {counts}.")
    else:
        lines.append(f"Plan: {counts}. {price_words.total(prices, plan.now, plan.later)}.")
    return lines


def _stacked(row: _Row, columns: int) -> list[str]:
    """A task on one line where that is long enough, else on several: its name, verdict and price, then why."""
    head = "  ".join(part for part in (row.name, row.verdict, row.price + row.devices) if part.strip())
    if len(head) + 2 + len(row.reason) <= columns:
        head, reason = f"{head}  {row.reason}", ""
    else:
        reason = row.reason
    return [head, *(f"      {line}" for line in (reason, *row.below) if line)]


def _fold(line: str, columns: int) -> list[str]:
    """A line on as many as it takes; what follows the first is indented as it is, and a little more."""
    if len(line) <= columns:
        return [line]
    indent = len(line) - len(line.lstrip())
    below = indent if indent >= 6 else indent + 4
    return textwrap.wrap(
        line, columns, subsequent_indent=" " * below, break_long_words=False, break_on_hyphens=False
    ) or [line]


def _totals(plan: Plan, prices: Prices) -> dict[str, Any]:
    """The whole plan's price as JSON data, with the time that it takes."""
    took = _elapsed(plan, prices)
    return {
        **totals_json(prices, plan.now, plan.later),
        "elapsed": None if took is None else asdict(took),
    }


def _elapsed(plan: Plan, prices: Prices) -> Elapsed | None:
    return elapsed(Graph(tuple(item.task for item in plan.items)), prices, (*plan.now, *plan.later))


def ago(moment: str, now: datetime) -> str:
    """How long ago an ISO time was, in its largest unit: `2 days ago`.

    `humanize` writes up to three units (`1 year, 2 months ago`), for which columns have no room.
    """
    seconds = max(0.0, (now - datetime.fromisoformat(moment)).total_seconds())
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
        "absent": list(item.absent),
        "key": item.key,
        "made": item.created,
    }


def _difference(change: Difference) -> dict[str, Any]:
    origin = {"path": change.origin.path, "line": change.origin.line} if change.origin else None
    return {"path": change.path, "name": change.name, "old": change.old, "new": change.new, "origin": origin}


def _counts(plan: Plan) -> tuple[str, str]:
    """The study's name, and how many arms, frontiers and seeds it has."""
    study = plan.spec.study
    counts = [(len(study.arms), "arm"), (len(study.frontiers), "frontier"), (len(study.seeds), "seed")]
    return study.name, ", ".join(f"{count} {_plural(name, count)}" for count, name in counts if count)


def _head(plan: Plan, width: int) -> str:
    left = "  ".join(_counts(plan))
    room = max(len(left) + 1, width - 13)
    return f"{left:<{room}} spec {plan.digest[:8]}"


@dataclass(frozen=True, slots=True)
class _Row:
    """A line of the plan, for tasks that differ in their seed alone, and the lines below it.

    `devices` is what they run on, where that is not the same for all.
    """

    name: str
    verdict: str
    reason: str
    price: str
    devices: str
    below: tuple[str, ...]
    tasks: int


def _rows(
    plan: Plan, everything: bool, now: datetime | None, prices: Prices | None
) -> tuple[list[_Row], int]:
    """The lines that are shown, and how many tasks are to be done that are not."""
    now = now or datetime.now(UTC)
    groups: dict[tuple[str, str, str, tuple[str, ...]], list[str]] = {}
    for item in plan.items:
        if item.verdict == "reuse" and not everything:
            continue
        reason = (
            f"{item.reason} {ago(item.created, now)}"
            if item.reason == "done" and item.created
            else visible(_SEED.sub("", item.reason))
        )
        row = (_SEED.sub("", item.task.id), item.verdict, reason, _below(item))
        groups.setdefault(row, []).append(item.task.id)
    rows = []
    mixed = prices is not None and prices.mixed
    for (name, verdict, reason, below), ids in groups.items():
        shown = f"  {_MARKS[verdict]} {name}" + (f" x{len(ids)}" if len(ids) > 1 else "")
        price = price_words.short(prices, ids) if prices is not None and verdict != "reuse" else ""
        if prices is not None and everything:
            below = (*below, *price_words.details(prices.tasks[ids[0]]))
        devices = f"  {prices.tasks[ids[0]].devices}" if price and prices is not None and mixed else ""
        rows.append(_Row(shown, verdict, reason, price, devices, below, len(ids)))
    seen = rows if everything else rows[:_ROWS]
    return seen, sum(row.tasks for row in rows[len(seen) :])


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
