"""A task: a kind of work, the part of the spec it depends on, and the tasks whose results it reads."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

Kind = Literal["model", "data", "train", "sample", "evaluate", "frontier", "budgets", "score", "report"]

# Part of every result's identity: raise a kind's number when its code changes what it computes.
VERSIONS: dict[Kind, int] = {
    "model": 1,
    "data": 1,
    "train": 1,
    "sample": 1,
    "evaluate": 1,
    "frontier": 1,
    "budgets": 1,
    "score": 1,
    "report": 1,
}


@dataclass(frozen=True, slots=True)
class Task:
    """One node. `id` is for people and unique in its graph (`reo_exp.train.s1`); identity is the rest.

    `payload` is canonical JSON data: everything of the spec that affects the result, and nothing else.
    `inputs` maps a role that the kind defines (`start`, `data`, `arm:vanilla`, ...) to the id of the task that fills it.
    """

    id: str
    kind: Kind
    payload: dict[str, Any]
    inputs: dict[str, str]
    arm: str | None = None
    seed: int | None = None


@dataclass(frozen=True, slots=True)
class Graph:
    """Tasks in an order in which every input comes before its reader."""

    tasks: tuple[Task, ...]

    def __getitem__(self, task_id: str) -> Task:
        return next(task for task in self.tasks if task.id == task_id)
