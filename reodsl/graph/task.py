"""A task: a kind of work, the part of the spec it depends on, and the tasks whose results it reads."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from reodsl.ir.cluster import Cluster

Kind = Literal[
    "model",
    "data",
    "train",
    "sample",
    "select",
    "evaluate",
    "results",
    "frontier",
    "budgets",
    "score",
    "measure",
    "report",
]

# Part of every result's identity: raise a kind's number when its code changes what it computes.
VERSIONS: dict[Kind, int] = {
    "model": 1,
    "data": 6,
    "train": 16,
    "sample": 14,
    "select": 1,
    "evaluate": 14,
    "results": 1,
    "frontier": 1,
    "budgets": 2,
    "score": 6,
    "measure": 1,
    "report": 6,
}


@dataclass(frozen=True, slots=True)
class Task:
    """One node. `id` is for people and unique in its graph (`reo_exp.train.s1`); identity is the rest.

    `payload` is canonical JSON data: what the runner needs of the spec (`reodsl.graph.identity` says which of it
    is part of the result's identity). `inputs` maps a role that the kind defines (`start`, `data`, `arm:vanilla`, ...)
    to the id of the task that fills it. `arm` is the arm or experiment the task was first made for; `seed` is the
    run's seed where the result depends on it. `cluster` is what it runs on, of which its identity knows nothing: None is
    this machine.
    """

    id: str
    kind: Kind
    payload: dict[str, Any]
    inputs: dict[str, str]
    arm: str | None = None
    seed: int | None = None
    cluster: Cluster | None = None


@dataclass(frozen=True, slots=True)
class Graph:
    """Tasks in an order in which every input comes before its reader."""

    tasks: tuple[Task, ...]
    _index: Mapping[str, Task] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        """Index the tasks by id."""
        object.__setattr__(self, "_index", {task.id: task for task in self.tasks})

    def __getitem__(self, task_id: str) -> Task:
        return self._index[task_id]

    def __contains__(self, task_id: object) -> bool:
        return task_id in self._index

    def turns(self, seconds: Mapping[str, float]) -> dict[str, int]:
        """Return for every task id its place among tasks that could start, from 0; `seconds` are those that tasks take.

        Tasks without inputs come first: they take moments, and missing questions, or those that are both trained
        and evaluated on, are reported before anything long begins. Then comes the task with the longest way from
        its start to the end, with one second if `seconds` lacks it; of equals the first in the graph.
        """
        readers, heights = self.readers(), dict[str, float]()
        for task in reversed(self.tasks):
            after = max((heights[reader] for reader in readers[task.id]), default=0.0)
            heights[task.id] = seconds.get(task.id, 1.0) + after
        ordered = sorted(self.tasks, key=lambda task: (bool(task.inputs), -heights[task.id]))
        return {task.id: turn for turn, task in enumerate(ordered)}

    def readers(self) -> dict[str, tuple[str, ...]]:
        """Return for every task id the ids of the tasks that read its result, in the graph's order."""
        readers: dict[str, list[str]] = {task.id: [] for task in self.tasks}
        for task in self.tasks:
            for source in dict.fromkeys(task.inputs.values()):
                readers[source].append(task.id)
        return {name: tuple(ids) for name, ids in readers.items()}
