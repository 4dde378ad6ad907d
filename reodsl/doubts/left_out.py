"""Report how much of their data trainings and data sets leave out, and the setting that decides it."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars as pl

from reodsl.diagnostics import Diagnostic, note, warning
from reodsl.graph.task import Graph, Task

Findings = dict[str, list[Diagnostic]]
"""Diagnostics by the id of the task that they are about."""


def findings_of(
    graph: Graph, folders: Mapping[str, Path], kinds: str, read: Callable[[Task, Path], list[Diagnostic]]
) -> Findings:
    """Return what `read` finds in the folder of each task of some kinds, named with blanks between them.

    `folders` holds the results by task id.
    """
    findings = {}
    for task in graph.tasks:
        if task.kind in kinds.split() and task.id in folders:
            try:
                findings[task.id] = read(task, folders[task.id])
            except (OSError, ValueError, pl.exceptions.PolarsError):
                continue
    return findings


MOST = 0.1
"""The share of the data past which leaving it out is a warning, as most people would not expect it."""
FACTS = {"train": "train.json", "data": "left_out.json"}
"""The file of a result that counts what was left out, by kind of task; data sets that leave nothing out have none."""
_PREFIX = "left_out_"
DROPS = "duplicates = drop"
_HELP = {
    "question_min(…)": "take more rollouts, or a checkpoint that solves more of them",
    DROPS: "keep such rows out of the data; `duplicates = error` lists them",
}


@dataclass(frozen=True, slots=True)
class LeftOut:
    """A number of rows that are left out of all: `unit` is `questions`, `traces` or `pairs`, and for a data set `rows`."""

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
    """Return what a stage or a data set leaves out, by its method and by `facts`.

    These are the facts of `train.json`, of a data set's `left_out.json`, or of a task's progress.
    """
    unit = next((name for name in ("questions", "traces", "pairs", "rows") if name in facts), None)
    counts = {name: int(facts.get(_PREFIX + name, 0)) for name in ("too_long", "without_budget", "repeated")}
    if unit is None or not any(counts.values()):
        return []
    name, what = ("max_prompt", "prompt is") if "max_prompt" in method else ("max_tokens", "tokens are")
    reasons = {
        "too_long": (f"whose {what} longer than `{name}`", f"{name} = {method.get(name)} tokens"),
        "without_budget": ("for which no checkpoint gives a budget", "question_min(…)"),
        "repeated": ("that ask an earlier question again", DROPS),
    }
    total = int(facts[unit]) + sum(counts.values())
    return [LeftOut(count, total, unit, *reasons[why]) for why, count in counts.items() if count]


def report_left_out(task: Task, facts: Mapping[str, Any]) -> list[Diagnostic]:
    """Return a warning (W0807) for each count past a tenth of a task's data, and a note (N0807) for a smaller one.

    Repeated rows are reported of their data set, and not again of a training on it.
    """
    trained = task.kind == "train"
    method, what = (task.payload["stage"]["method"], "not trained on") if trained else ({}, "dropped")
    diagnostics = []
    for each in left_out_counts(method, facts):
        if trained and each.setting == DROPS:
            continue
        make, code = (warning, "W0807") if each.share > MOST else (note, "N0807")
        diagnostics.append(
            make(
                code,
                f"{each.count:,} of {each.total:,} {each.unit} are {what}: those {each.reason}",
                where=task.id,
                notes=[f"`{each.setting}` decides it"],
                help=_HELP.get(each.setting, "raise it, or keep such rows out of the data"),
            )
        )
    return diagnostics


def list_left_out(graph: Graph, folders: Mapping[str, Path]) -> Findings:
    """Return the findings of every training and data set that is done, by its task."""

    def read(task: Task, folder: Path) -> list[Diagnostic]:
        return report_left_out(task, json.loads((folder / FACTS[task.kind]).read_bytes()))

    return findings_of(graph, folders, "train data", read)
