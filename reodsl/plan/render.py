"""A plan as text and as JSON data, with the budgets that its arms are trained on."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import Any

from reodsl.diagnostics import fold, listed, plural
from reodsl.diagnostics.render import code, document, table, visible
from reodsl.graph.lower import split_of
from reodsl.graph.task import Graph
from reodsl.ir import Origin
from reodsl.ir.expression import MEMORY
from reodsl.ir.reward import Budgets
from reodsl.ir.study import Study
from reodsl.ir.training import Ppo
from reodsl.numbers.budgets import Rule, coefficients
from reodsl.plan.places import words
from reodsl.plan.verdict import Item, Plan
from reodsl.price import Prices
from reodsl.price import show as price_words
from reodsl.price.prices import ElapsedTime, bound_elapsed
from reodsl.price.value import to_json as price_json
from reodsl.price.value import totals_json

_RULES: dict[Rule, str] = {
    "trapezoid": "trapezoid; they sum to L_max - L_1/2",
    "uniform": "uniform",
    "half_first": "trapezoid with c_1 = L_1/2",
}


@dataclass(frozen=True, slots=True)
class TrainedSchedule:
    """Budgets and the longest response in tokens; the weights by `rule`, or none where the reward has none."""

    arms: tuple[str, ...]
    budgets: tuple[int, ...]
    l_max: int
    rule: Rule | None
    weights: tuple[float, ...]


def schedules(study: Study) -> tuple[TrainedSchedule, ...]:
    """Return a row for each set of budgets and weights known before a run, with the arms that use it."""
    users: dict[tuple[tuple[int, ...], int, Rule | None], list[str]] = {}
    for arm in study.arms:
        for stage in arm.stages:
            split = split_of(stage)
            if isinstance(split, Budgets) and isinstance(stage.method, Ppo):
                rule = stage.method.reward.weight_rule
                arms = users.setdefault((split.budgets, split.l_max, rule), [])
                if arm.name not in arms:
                    arms.append(arm.name)
    return tuple(
        TrainedSchedule(tuple(arms), budgets, l_max, rule, coefficients(rule, budgets, l_max) if rule else ())
        for (budgets, l_max, rule), arms in users.items()
    )


def find_trained(study: Study, holds: Callable[[Ppo], bool]) -> tuple[str, ...]:
    """Return the arms with a stage of PPO for which something holds."""
    return tuple(
        arm.name
        for arm in study.arms
        if any(isinstance(stage.method, Ppo) and holds(stage.method) for stage in arm.stages)
    )


def describe_corrections(study: Study) -> list[str]:
    """Return lines on what corrects for servers on GPUs, whose kernels differ from those of training."""
    if study.cluster is None or study.engine != "sglang":
        return []
    weighed = find_trained(study, lambda method: method.importance_cap is not None)
    plain = find_trained(
        study, lambda method: not (method.weighs or method.lag or method.old_logprobs == "engine")
    )
    words = {
        "are weighed by trainer over engine (importance_cap)": weighed,
        "are not weighed by trainer over engine (importance_cap = none)": plain,
    }
    return [f"    tokens of {listed(arms, 4)} {correction}" for correction, arms in words.items() if arms]


def schedule_text(row: TrainedSchedule) -> list[str]:
    """Format `Budgets 4 8 | 16 tokens` over `Weights 4 6 | 4`, aligned."""
    tops = [*map(tokens, row.budgets), tokens(row.l_max)]
    lows = [f"{weight:g}" for weight in row.weights] or [""] * len(tops)
    widths = [max(len(top), len(low)) for top, low in zip(tops, lows, strict=True)]

    def line(head: str, cells: list[str], tail: str) -> str:
        padded = [f"{cell:>{width}}" for cell, width in zip(cells, widths, strict=True)]
        return f"{head} {' '.join(padded[:-1])} | {padded[-1]}  {tail}".rstrip()

    lines = [line("Budgets", tops, f"tokens ({listed(row.arms, 4)})")]
    if row.rule:
        lines.append(line("Weights", lows, f"({_RULES[row.rule]})"))
    return lines


def tokens(count: int) -> str:
    """Format tokens as the language does: `16K` for multiples of 1024."""
    return f"{count // 1024}K" if count and count % 1024 == 0 else str(count)


_MARKS = {"reuse": "=", "run": "+", "rerun": "~", "later": "?"}
_CHANGES = 3
_ROOM, _ROWS = 60, 100
_ABSENT = 6
_SEED = re.compile(r"\.s\d+(~\d+)?\b")


def to_json(plan: Plan, prices: Prices | None = None) -> dict[str, Any]:
    """Return the plan as JSON data; documented in the page JSON. With `prices` every task has its `price`."""
    study = plan.spec.study
    return {
        "study": study.name,
        "spec": plan.digest,
        "arms": [arm.name for arm in study.arms],
        "frontiers": [frontier.name for frontier in study.frontiers],
        "seeds": list(study.seeds),
        "changes": [change.model_dump() for change in plan.spec.changes],
        "schedules": [asdict(row) for row in schedules(study)],
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
    """Return the plan for people: tasks to do, reasons and prices; `everything` adds finished tasks and all prices.

    In a terminal of so many `columns`, longer lines are put on several, and words are never cut.
    """
    rows, unseen = _rows(plan, everything, now, prices)
    width = max([30, *(len(row.name) for row in rows)]) + 2
    room = min(_ROOM, max([30, *(len(row.reason) for row in rows if row.price)])) + 2
    full_width = width + 8 + room + 16 if any(row.price for row in rows) else width + 40
    narrow = columns is not None and columns < full_width
    lines = [_head(plan, 0 if narrow else full_width)]
    for row in rows:
        if narrow:
            lines += _stack_task(row, columns or full_width)
            continue
        reason = f"{row.reason:<{room}}{row.price:>16}{row.devices}" if row.price else row.reason
        if row.price and len(row.reason) >= room:
            reason = f"{row.reason}  {row.price}{row.devices}"
        lines.append(f"{row.name:<{width}}{row.verdict:<8}{reason}".rstrip())
        lines += [" " * (width + 8) + line for line in row.below]
    lines += _beneath(plan, everything, prices, unseen, columns)
    return "\n".join(
        lines if columns is None else [folded for line in lines for folded in fold(line, columns)]
    )


def to_markdown(
    plan: Plan, path: str, everything: bool = False, now: datetime | None = None, prices: Prices | None = None
) -> str:
    """Return the plan of the spec at `path` as Markdown in which no name of the spec is markup."""
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
            f"    {plural(hidden, 'task')} unchanged (--all shows {'it' if hidden == 1 else 'them'})"
        )
    for change in plan.spec.changes:
        lines.append(f"    {change.option} {change.target}={change.value} is not saved in a spec")
    for schedule in schedules(plan.spec.study):
        lines += schedule_text(schedule)
    if arms := find_trained(plan.spec.study, lambda method: method.reward.remembers):
        lines.append(
            f"    rewards of {listed(arms, 4)} remember at most {MEMORY:,} earlier responses of each question"
        )
    lines += describe_corrections(plan.spec.study)
    if prices is not None and plan.work:
        lines += price_words.summary(prices, (*plan.now, *plan.later), everything)
        lines += price_words.until_the_end(prices, _estimate_elapsed(plan, prices))
    if plan.absent:
        names = listed([visible(name) for name in plan.absent], _ABSENT)
        lines.append(f"Not on this machine: {names}. A run here stops before it starts.")
    counts = ", ".join(f"{count} {name}" for name, count in plan.totals.items() if count)
    if not plan.work:
        lines.append("Nothing to do: every result is there.")
    elif prices is None:
        lines.append(f"Plan: {counts}.")
    else:
        lines.append(f"Plan: {counts}. {price_words.total(prices, plan.now, plan.later)}.")
    return lines


def _stack_task(row: _Row, columns: int) -> list[str]:
    """Return a task on a line, or on several if it is too long: its name, verdict and price, then why."""
    head = "  ".join(cell for cell in (row.name, row.verdict, row.price + row.devices) if cell.strip())
    if len(head) + 2 + len(row.reason) <= columns:
        head, reason = f"{head}  {row.reason}", ""
    else:
        reason = row.reason
    return [head, *(f"      {line}" for line in (reason, *row.below) if line)]


def _totals(plan: Plan, prices: Prices) -> dict[str, Any]:
    """Return the price of all tasks as JSON data, with the time they take."""
    took = _estimate_elapsed(plan, prices)
    return {**totals_json(prices, plan.now, plan.later), "elapsed": None if took is None else asdict(took)}


def _estimate_elapsed(plan: Plan, prices: Prices) -> ElapsedTime | None:
    return bound_elapsed(Graph(tuple(item.task for item in plan.items)), prices, (*plan.now, *plan.later))


def ago(moment: str, now: datetime) -> str:
    """Format how long ago an ISO time was, in its largest unit: `2 days ago`.

    `humanize` writes up to three units (`1 year, 2 months ago`), for which columns have no room.
    """
    seconds = max(0.0, (now - datetime.fromisoformat(moment)).total_seconds())
    for name, size in (("day", 86400), ("hour", 3600), ("minute", 60)):
        if seconds >= size:
            count = int(seconds // size)
            return f"{plural(count, name)} ago"
    return "just now"


def item_json(item: Item) -> dict[str, Any]:
    """Return a task of a plan as JSON data."""
    return {
        "id": item.task.id,
        "kind": item.task.kind,
        "arm": item.task.arm,
        "seed": item.task.seed,
        "verdict": item.verdict,
        "reason": item.reason,
        "changes": [
            {
                "path": change.path,
                "name": change.name,
                "old": change.old,
                "new": change.new,
                "origin": {"path": change.origin.path, "line": change.origin.line} if change.origin else None,
            }
            for change in item.changes
        ],
        "needs": list(item.needs),
        "absent": list(item.absent),
        "key": item.key,
        "made": item.created,
    }


def _counts(plan: Plan) -> tuple[str, str]:
    """Return the study's name, and how many arms, frontiers and seeds it has."""
    study = plan.spec.study
    counts = [(len(study.arms), "arm"), (len(study.frontiers), "frontier"), (len(study.seeds), "seed")]
    return study.name, ", ".join(plural(count, name) for count, name in counts if count)


def _head(plan: Plan, width: int) -> str:
    counts = "  ".join(_counts(plan))
    room = max(len(counts) + 1, width - 13)
    return f"{counts:<{room}} spec {plan.digest[:8]}"


@dataclass(frozen=True, slots=True)
class _Row:
    """A line of the plan, for tasks that differ in their seed alone."""

    name: str
    """Name of the tasks, without seeds."""
    verdict: str
    """Verdict on the tasks."""
    reason: str
    """Reason of the verdict."""
    price: str
    """Price of the tasks together."""
    devices: str
    """Devices of the tasks; empty if all tasks of the plan run on equal ones."""
    below: tuple[str, ...]
    """Lines below the row."""
    tasks: int
    """Number of tasks."""


def _rows(
    plan: Plan, everything: bool, now: datetime | None, prices: Prices | None
) -> tuple[list[_Row], int]:
    """Return the lines to show, and how many tasks to be done are not among them."""
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
        label = f"  {_MARKS[verdict]} {name}" + (f" x{len(ids)}" if len(ids) > 1 else "")
        price = price_words.short(prices, ids) if prices is not None and verdict != "reuse" else ""
        if prices is not None and everything:
            below = (*below, *price_words.details(prices.tasks[ids[0]]))
        devices = f"  {prices.tasks[ids[0]].devices}" if price and prices is not None and mixed else ""
        rows.append(_Row(label, verdict, reason, price, devices, below, len(ids)))
    seen = rows if everything else rows[:_ROWS]
    return seen, sum(row.tasks for row in rows[len(seen) :])


def _below(item: Item) -> tuple[str, ...]:
    """Return where the first change was made, then the next few changes with their places."""
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
    """Format a place: `specs/quickstart.reo:16`, or the option of the command line."""
    return origin.path if origin.path.startswith("--") else f"{origin.path}:{origin.line}"
