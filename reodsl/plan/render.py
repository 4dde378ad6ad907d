"""A plan as text and as JSON data, with the budgets that its arms are trained on."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import Any

from reodsl.diagnostics import fold, group, listed, plural
from reodsl.diagnostics.render import visible
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
    """The token budgets of a reward, the weights of the budgets, and the arms that are trained with the reward."""

    arms: tuple[str, ...]
    """The names of the arms."""
    budgets: tuple[int, ...]
    """The budgets, in tokens, without the last."""
    l_max: int
    """The last budget, which is the longest response, in tokens."""
    rule: Rule | None
    """The rule for the weights; None if the reward has no weights."""
    weights: tuple[float, ...]
    """The weight of each budget and of `l_max`."""


def schedules(study: Study) -> tuple[TrainedSchedule, ...]:
    """Return the distinct budget schedules of a study's rewards, each with the arms that are trained with it.

    Only budgets that the spec fixes are returned. Budgets that a run finds on a frontier or from rollouts are not
    known yet.
    """
    pairs = (
        ((split.budgets, split.l_max, stage.method.reward.weight_rule), arm.name)
        for arm in study.arms
        for stage in arm.stages
        if isinstance(split := split_of(stage), Budgets) and isinstance(stage.method, Ppo)
    )
    return tuple(
        TrainedSchedule(tuple(arms), budgets, l_max, rule, coefficients(rule, budgets, l_max) if rule else ())
        for (budgets, l_max, rule), arms in group(dict.fromkeys(pairs)).items()
    )


def find_trained(study: Study, holds: Callable[[Ppo], bool]) -> tuple[str, ...]:
    """Return the names of the arms with a stage of PPO that satisfies a condition.

    Args:
        study: The study.
        holds: The condition on the settings of PPO.
    """
    return tuple(
        arm.name
        for arm in study.arms
        if any(isinstance(stage.method, Ppo) and holds(stage.method) for stage in arm.stages)
    )


def describe_corrections(study: Study) -> list[str]:
    """Return lines of a plan that say which arms have importance weights, and which need them but have none.

    SGLang servers compute probabilities with other kernels than the trainers, and importance weights correct for the
    difference. There are no lines for another engine, and for a study without a cluster.
    """
    if study.cluster is None or study.engine != "sglang":
        return []
    weighted = find_trained(study, lambda method: method.importance_cap is not None)
    unweighted = find_trained(
        study, lambda method: not (method.weighs or method.lag or method.old_logprobs == "engine")
    )
    corrections = {
        "have importance weights, trainer over engine (importance_cap)": weighted,
        "have no importance weights (importance_cap = none)": unweighted,
    }
    return [f"    tokens of {listed(arms, 4)} {text}" for text, arms in corrections.items() if arms]


def schedule_text(row: TrainedSchedule) -> list[str]:
    """Return a schedule as aligned lines: `Budgets 4 8 | 16  tokens (ARMS)` and below, if any, its `Weights`."""
    budgets = [*map(tokens, row.budgets), tokens(row.l_max)]
    weights = [f"{weight:g}" for weight in row.weights] or [""] * len(budgets)
    widths = [max(len(budget), len(weight)) for budget, weight in zip(budgets, weights, strict=True)]

    def align(head: str, cells: list[str], tail: str) -> str:
        """Return a line with cells of equal widths, and a bar before the last cell."""
        padded = [f"{cell:>{width}}" for cell, width in zip(cells, widths, strict=True)]
        return f"{head} {' '.join(padded[:-1])} | {padded[-1]}  {tail}".rstrip()

    lines = [align("Budgets", budgets, f"tokens ({listed(row.arms, 4)})")]
    if row.rule:
        lines.append(align("Weights", weights, f"({_RULES[row.rule]})"))
    return lines


def tokens(count: int) -> str:
    """Return a number of tokens as a spec writes it, without its unit: `16K` for a multiple of 1024."""
    return f"{count // 1024}K" if count and count % 1024 == 0 else str(count)


_MARKS = {"reuse": "=", "run": "+", "rerun": "~", "later": "?"}
_CHANGES, _ABSENT = 3, 6
"""The most changes that are shown of a task, and the most absent inputs that are named."""
_REASON_WIDTH, _ROWS = 60, 100
"""The most characters before the column of prices, and the most rows."""
_SEED = re.compile(r"\.s\d+(~\d+)?\b")
"""The seed in the id of a task, as `.s1` or `.s1~2`."""


def to_json(plan: Plan, prices: Prices | None = None) -> dict[str, Any]:
    """Return the plan as JSON data, as the page JSON documents it; with `prices`, each task has its `price`."""
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
    """Return the plan as text: the tasks to do with their reasons and prices, and the total.

    Args:
        plan: The plan.
        everything: Whether finished tasks, all rows and the details of prices are shown too.
        now: The time that ages of results are counted from; None for the present.
        prices: The prices of the tasks, if they are shown.
        columns: The width of the terminal; longer lines are broken between words. None breaks no lines.
    """
    rows, hidden = _make_rows(plan, everything, now, prices)
    width = max([30, *(len(row.name) for row in rows)]) + 2
    reason_width = min(_REASON_WIDTH, max([30, *(len(row.reason) for row in rows if row.price)])) + 2
    full_width = width + 8 + reason_width + 16 if any(row.price for row in rows) else width + 40
    is_narrow = columns is not None and columns < full_width
    lines = [_write_head(plan, 0 if is_narrow else full_width)]
    for row in rows:
        if is_narrow:
            lines += _stack_task(row, columns or full_width)
            continue
        reason = f"{row.reason:<{reason_width}}{row.price:>16}{row.devices}" if row.price else row.reason
        if row.price and len(row.reason) >= reason_width:
            reason = f"{row.reason}  {row.price}{row.devices}"
        lines.append(f"{row.name:<{width}}{row.verdict:<8}{reason}".rstrip())
        lines += [" " * (width + 8) + line for line in row.below]
    lines += _write_summary(plan, everything, prices, hidden, columns)
    return "\n".join(
        lines if columns is None else [folded for line in lines for folded in fold(line, columns)]
    )


def _write_summary(
    plan: Plan, everything: bool, prices: Prices | None, hidden: int, columns: int | None = None
) -> list[str]:
    """Return the lines below the tasks of a plan; the last line is the total.

    The lines are about hidden and unchanged tasks, changes by the command line, budgets, rewards that remember
    earlier responses, importance weights, prices, and missing inputs.

    Args:
        plan: The plan.
        everything: Whether finished tasks and the details of prices are shown.
        prices: The prices of the tasks, if they are shown.
        hidden: The number of tasks to do that are not shown.
        columns: The width of the terminal.
    """
    lines = [f"    {hidden} more tasks to do (--all shows them)"] if hidden else []
    unchanged = 0 if everything else plan.totals["reuse"]
    if unchanged:
        lines.append(
            f"    {plural(unchanged, 'task')} unchanged (--all shows {'it' if unchanged == 1 else 'them'})"
        )
    lines += (
        f"    {change.option} {change.target}={change.value} is not saved in a spec"
        for change in plan.spec.changes
    )
    lines += (line for schedule in schedules(plan.spec.study) for line in schedule_text(schedule))
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
        lines.append("Nothing to do: every result exists.")
    elif prices is None:
        lines.append(f"Plan: {counts}.")
    else:
        lines.append(f"Plan: {counts}. {price_words.total(prices, plan.now, plan.later)}.")
    return lines


def _stack_task(row: _Row, columns: int) -> list[str]:
    """Return a row for a narrow terminal: name, verdict, price and reason in one line, or the reason below."""
    head = "  ".join(cell for cell in (row.name, row.verdict, row.price + row.devices) if cell.strip())
    if len(head) + 2 + len(row.reason) <= columns:
        head, reason = f"{head}  {row.reason}", ""
    else:
        reason = row.reason
    return [head, *(f"      {line}" for line in (reason, *row.below) if line)]


def _totals(plan: Plan, prices: Prices) -> dict[str, Any]:
    """Return the price of all tasks to do as JSON data, with the bounds of the elapsed time."""
    time = _estimate_elapsed(plan, prices)
    return {**totals_json(prices, plan.now, plan.later), "elapsed": None if time is None else asdict(time)}


def _estimate_elapsed(plan: Plan, prices: Prices) -> ElapsedTime | None:
    """Return bounds of the time from the start to the end of a run of the plan; None if it cannot be estimated."""
    return bound_elapsed(Graph(tuple(item.task for item in plan.items)), prices, (*plan.now, *plan.later))


def ago(moment: str, now: datetime) -> str:
    """Return how long ago a time was, in its largest unit: `2 days ago`.

    Args:
        moment: The time, in ISO format.
        now: The present time.
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


def _count_parts(plan: Plan) -> tuple[str, str]:
    """Return the study's name, and the numbers of its arms, frontiers and seeds as `2 arms, 1 frontier, 1 seed`."""
    study = plan.spec.study
    counts = [(len(study.arms), "arm"), (len(study.frontiers), "frontier"), (len(study.seeds), "seed")]
    return study.name, ", ".join(plural(count, name) for count, name in counts if count)


def _write_head(plan: Plan, width: int) -> str:
    """Return the first line of a plan, with the digest of the spec at the right of `width` characters."""
    counts = "  ".join(_count_parts(plan))
    left_width = max(len(counts) + 1, width - 13)
    return f"{counts:<{left_width}} spec {plan.digest[:8]}"


@dataclass(frozen=True, slots=True)
class _Row:
    """A row of the plan, for tasks that differ only in their seeds."""

    name: str
    """Name of the tasks, without seeds."""
    verdict: str
    """Verdict on the tasks."""
    reason: str
    """Reason of the verdict."""
    price: str
    """Sum of the prices of the tasks."""
    devices: str
    """Devices of the tasks; empty if all tasks of the plan run on equal devices."""
    below: tuple[str, ...]
    """Lines below the row."""
    tasks: int
    """Number of tasks."""


def _make_rows(
    plan: Plan, everything: bool, now: datetime | None, prices: Prices | None
) -> tuple[list[_Row], int]:
    """Return the rows of a plan that are shown, and the number of tasks in the rows that are not shown.

    Tasks share a row if they differ only in their seeds. Finished tasks have rows only if `everything` is True.

    Args:
        plan: The plan.
        everything: Whether finished tasks, all rows and the details of prices are shown.
        now: The time that ages of results are counted from; None for the present.
        prices: The prices of the tasks, if they are shown.
    """
    now = now or datetime.now(UTC)
    shown_items = (item for item in plan.items if everything or item.verdict != "reuse")
    ids_by_row = group((_lay_item(item, now), item.task.id) for item in shown_items)
    rows, is_mixed = [], prices is not None and prices.mixed
    for (name, verdict, reason, below), ids in ids_by_row.items():
        label = f"  {_MARKS[verdict]} {name}" + (f" x{len(ids)}" if len(ids) > 1 else "")
        price = price_words.short(prices, ids) if prices is not None and verdict != "reuse" else ""
        if prices is not None and everything:
            below = (*below, *price_words.details(prices.tasks[ids[0]]))
        devices = f"  {prices.tasks[ids[0]].devices}" if price and prices is not None and is_mixed else ""
        rows.append(_Row(label, verdict, reason, price, devices, below, len(ids)))
    shown = rows if everything else rows[:_ROWS]
    return shown, sum(row.tasks for row in rows[len(shown) :])


def _lay_item(item: Item, now: datetime) -> tuple[str, str, str, tuple[str, ...]]:
    """Return a task's name without its seed, its verdict, the reason, and the lines below it; seeds may share them."""
    reason = visible(_SEED.sub("", item.reason))
    if item.reason == "done" and item.created:
        reason = f"done {ago(item.created, now)}"
    return _SEED.sub("", item.task.id), item.verdict, reason, _list_changes(item)


def _list_changes(item: Item) -> tuple[str, ...]:
    """Return the lines below a task that changed.

    The first line is the line of the spec with the first change, which the reason of the verdict already describes.
    Then come a few further changes, each with its line of the spec, and the number of all others. The result is
    empty for a report.
    """
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
    """Return a line of a spec as `specs/quickstart.reo:16`, or the option of the command line that sets a value."""
    return origin.path if origin.path.startswith("--") else f"{origin.path}:{origin.line}"
