"""Report how much of its data a training leaves out, and the setting that decides it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from reodsl.diagnostics import Diagnostic, note, warning
from reodsl.graph.task import Graph, Task

MOST = 0.1
"""The share of the data past which leaving it out is a warning, as most people would not expect it."""
_PREFIX = "left_out_"


@dataclass(frozen=True, slots=True)
class LeftOut:
    """A number of rows that a training leaves out of all it was given: `unit` is `questions`, `traces` or `pairs`."""

    count: int
    total: int
    unit: str
    reason: str
    setting: str

    @property
    def share(self) -> float:
        """Return the share that is left out, from 0 to 1."""
        return self.count / self.total


def left_out_counts(method: Mapping[str, Any], facts: Mapping[str, Any]) -> list[LeftOut]:
    """Return what a stage leaves out, by its method and by `facts`: those of `train.json` or of a step's progress."""
    unit = next((name for name in ("questions", "traces", "pairs") if name in facts), None)
    counts = {name: int(facts.get(_PREFIX + name, 0)) for name in ("too_long", "without_budget")}
    if unit is None or not any(counts.values()):
        return []
    name, what = ("max_prompt", "prompt is") if "max_prompt" in method else ("max_tokens", "tokens are")
    reasons = {
        "too_long": (f"whose {what} longer than `{name}`", f"{name} = {method.get(name)} tokens"),
        "without_budget": ("for which no checkpoint gives a budget", "question_min(…)"),
    }
    total = int(facts[unit]) + sum(counts.values())
    return [LeftOut(count, total, unit, *reasons[why]) for why, count in counts.items() if count]


def report_left_out(task: Task, facts: Mapping[str, Any]) -> list[Diagnostic]:
    """Return a warning (W0807) for each count past a tenth of a training's data, and a note (N0807) for a smaller one."""
    diagnostics = []
    for each in left_out_counts(task.payload["stage"]["method"], facts):
        make, code = (warning, "W0807") if each.share > MOST else (note, "N0807")
        diagnostics.append(
            make(
                code,
                f"{each.count:,} of {each.total:,} {each.unit} are not trained on: those {each.reason}",
                where=task.id,
                notes=[f"`{each.setting}` decides it"],
                help="raise it, or keep such rows out of the data"
                if each.setting.startswith("max_")
                else "take more rollouts, or a checkpoint that solves more of them",
            )
        )
    return diagnostics


def left_out(graph: Graph, folders: Mapping[str, Path]) -> dict[str, list[Diagnostic]]:
    """Return the findings of every training that is done, by its task; an unreadable one has none.

    `folders` holds the results by task id.
    """
    findings = {}
    for task in graph.tasks:
        if task.kind == "train" and task.id in folders:
            try:
                facts = json.loads((folders[task.id] / "train.json").read_bytes())
            except (OSError, ValueError):
                continue
            findings[task.id] = report_left_out(task, facts)
    return findings
