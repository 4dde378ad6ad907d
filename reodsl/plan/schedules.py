"""The budgets that a plan's arms are trained on, with their weights: from a study to rows, to text."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from reodsl.graph.lower import split_of
from reodsl.ir.reward import Budgets
from reodsl.ir.study import Study
from reodsl.ir.training import FromTraining, Ppo
from reodsl.numbers.budgets import Rule, coefficients

_RULES: dict[Rule, str] = {
    "trapezoid": "trapezoid; they sum to L_max - L_1/2",
    "uniform": "uniform",
    "half_first": "trapezoid with c_1 = L_1/2",
}


@dataclass(frozen=True, slots=True)
class Trained:
    """Budgets and the longest response in tokens; the weights by `rule`, or none where the reward has none."""

    arms: tuple[str, ...]
    budgets: tuple[int, ...]
    l_max: int
    rule: Rule | None
    weights: tuple[float, ...]


def schedules(study: Study) -> tuple[Trained, ...]:
    """One row for each set of budgets and weights that is known before anything runs, with the arms that use it."""
    users: dict[tuple[tuple[int, ...], int, Rule | None], list[str]] = {}
    for arm in study.arms:
        if not isinstance(arm.checkpoint, FromTraining):
            continue
        for stage in arm.checkpoint.experiment.stages[: arm.checkpoint.stage + 1]:
            split = split_of(stage)
            if isinstance(split, Budgets) and isinstance(stage.method, Ppo):
                rule = stage.method.reward.weight_rule
                arms = users.setdefault((split.budgets, split.l_max, rule), [])
                if arm.name not in arms:
                    arms.append(arm.name)
    return tuple(
        Trained(tuple(arms), budgets, l_max, rule, coefficients(rule, budgets, l_max) if rule else ())
        for (budgets, l_max, rule), arms in users.items()
    )


def schedule_json(row: Trained) -> dict[str, Any]:
    """A row as JSON data."""
    return {
        "arms": list(row.arms),
        "budgets": list(row.budgets),
        "l_max": row.l_max,
        "rule": row.rule,
        "weights": list(row.weights),
    }


def schedule_text(row: Trained, width: int | None = None) -> list[str]:
    """`Budgets 4 8 | 16 tokens` over `Weights 4 6 | 4`, the columns aligned; several pairs where `width` is small."""
    tops = [*map(tokens, row.budgets), tokens(row.l_max)]
    lows = [f"{weight:g}" for weight in row.weights] or [""] * len(tops)
    widths = [max(len(top), len(low)) for top, low in zip(tops, lows, strict=True)]

    def line(head: str, cells: list[str], tail: str) -> str:
        padded = [f"{cell:>{width}}" for cell, width in zip(cells, widths, strict=True)]
        return f"{head} {' '.join(padded[:-1])} | {padded[-1]}  {tail}".rstrip()

    if width is not None and len("Budgets ") + sum(widths) + len(widths) + 1 > width:
        return _in_parts(row, tops, lows, widths, width)
    lines = [line("Budgets", tops, f"tokens ({', '.join(row.arms)})")]
    if row.rule:
        lines.append(line("Weights", lows, f"({_RULES[row.rule]})"))
    return lines


def _in_parts(row: Trained, tops: list[str], lows: list[str], widths: list[int], width: int) -> list[str]:
    """Budgets over their weights, as many on a line as fit."""
    parts: list[list[int]] = [[]]
    used = len("Budgets")
    for index, each in enumerate(widths):
        if parts[-1] and used + 1 + each > width:
            parts.append([])
            used = len("Budgets")
        parts[-1].append(index)
        used += 1 + each
    lines = [f"Budgets of {', '.join(row.arms)} in tokens, the last the longest response"]
    if row.rule:
        lines.append(f"Weights: {_RULES[row.rule]}")
    for part in parts:
        lines.append(" ".join(["Budgets", *(f"{tops[i]:>{widths[i]}}" for i in part)]))
        if row.rule:
            lines.append(" ".join(["Weights", *(f"{lows[i]:>{widths[i]}}" for i in part)]))
    return lines


def tokens(count: int) -> str:
    """Tokens as the language writes them: `16K` where 1024 divides them."""
    return f"{count // 1024}K" if count and count % 1024 == 0 else str(count)
