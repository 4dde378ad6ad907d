"""A task: a kind of work, what its result depends on, and the tasks whose results it reads."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal

from reodsl.ir import Origin, digest
from reodsl.ir.base import anonymous
from reodsl.ir.cluster import Cluster

# Settings, by their paths in the payload, that a runner needs and no result depends on.
_INCIDENTAL: Mapping[Kind, tuple[tuple[str, ...], ...]] = {
    "data": (("data", "questions"),),
    "train": (
        ("stage", "data", "questions"),
        ("stage", "save_every"),
        ("stage", "expected_length"),
        ("stage", "microbatch"),
        ("stage", "checkpointing"),
        ("stage", "optim", "on"),
        ("stage", "method", "mismatch_limit"),
    ),
    "evaluate": (("suite", "expected_length"), ("suite", "benchmarks", "data", "questions")),
    # Names of arms, whose results are inputs.
    "frontier": (("frontier", "of"),),
    "budgets": (("split", "rollouts"),),
    "score": (("score", "relative_to"),),
    "measure": (("relative_to",),),
    "report": (("spec", "path"), ("spec", "folder"), ("spec", "sources"), ("spec", "origins")),
}

_EVALUATED = ("samples.parquet", "forced.parquet", "curves.json")
# The files that a kind of task reads of the result in a role; all files if the role is not listed.
_READS: Mapping[tuple[Kind, str], tuple[str, ...]] = {
    ("train", "start"): ("checkpoint/", "optimizer/"),
    ("train", "data"): ("questions.parquet",),
    ("train", "reference"): ("samples.parquet",),
    ("train", "teacher"): ("checkpoint/",),
    ("train", "budgets"): ("budgets.json",),
    ("sample", "start"): ("checkpoint/",),
    ("sample", "data"): ("questions.parquet",),
    ("select", "pool"): ("samples.parquet",),
    ("select", "data"): ("questions.parquet",),
    ("evaluate", "start"): ("checkpoint/",),
    ("evaluate", "data"): ("questions.parquet",),
    ("evaluate", "reference"): ("samples.parquet",),
    ("results", "data"): ("questions.parquet",),
    ("budgets", "frontier"): ("frontier.json",),
    ("budgets", "data"): ("questions.parquet",),
    ("budgets", "arm"): ("rollouts.parquet",),
    ("score", "frontier"): ("frontier.json", "winners.parquet"),
    **dict.fromkeys((("measure", "arm"), ("measure", "relative_to")), _EVALUATED),
    ("report", "select"): ("select.json",),
    ("report", "sample"): ("samples.parquet",),
}

ARMS = "arm"
"""The role of an arm among several, `arm:NAME`; results do not depend on the names of arms."""

# Durations differ at every run, and no result depends on them.
_TIMES = frozenset({"timings.parquet"})


def identity(task: Task) -> dict[str, Any]:
    """Return the part of a task's payload that its result depends on: all settings that can change the result."""
    payload = task.payload
    for path in _INCIDENTAL.get(task.kind, ()):
        payload = _without(payload, path)
    return payload


def reads(kind: Kind, role: str) -> tuple[str, ...]:
    """Return the files that a kind of task reads of its input in a role.

    Args:
        kind: The kind of the task.
        role: The role of the input, such as `data` or `arm:vanilla`.

    Returns:
        Paths in the input's result; a path that ends in `/` is a folder. Empty for all files.
    """
    return _READS.get((kind, role.split(":")[0]), ())


def part_digest(files: Mapping[str, str], parts: tuple[str, ...]) -> str:
    """Return a digest of the files of a result that a task uses as its input.

    If the result is computed again and these files have the same content, the digest is the same, and the result of
    the task that uses them stays valid. Files of durations are left out, since durations differ at every run.

    Args:
        files: The SHA-256 of each file of the result, by path.
        parts: The files and folders that the task uses, as `reads` returns them; empty for all files.
    """
    return digest({path: checksum for path, checksum in files.items() if _is_read(path, parts)})


def _is_read(path: str, parts: tuple[str, ...]) -> bool:
    """Return whether `parts` include a file; empty `parts` include all files, and durations are never included."""
    chosen = not parts or any(path == part or (part[-1] == "/" and path.startswith(part)) for part in parts)
    return chosen and path not in _TIMES


def material(task: Task, payload: Mapping[str, Any], inputs: Mapping[str, str]) -> dict[str, Any]:
    """Return everything that a result depends on, as JSON data; the key of the result is its digest.

    Args:
        task: The task.
        payload: The settings that the result depends on.
        inputs: The digest of the content that the task reads, by role.

    Returns:
        `{"kind", "version", "payload", "inputs"}`. The digests of arms are a sorted list `arms`, since results do not
        depend on the names and order of arms.
    """
    others = {role: content for role, content in inputs.items() if role.partition(":")[0] != ARMS}
    arms = sorted(content for role, content in inputs.items() if role not in others)
    return {
        "kind": task.kind,
        "version": VERSIONS[task.kind],
        "payload": dict(payload),
        "inputs": {**others, "arms": arms} if arms else others,
    }


def _without(tree: Any, path: tuple[str, ...]) -> Any:
    """Return JSON data without the value at a path of keys.

    If a value on the path is a list, the rest of the path is removed in each item. Data without such a path is
    returned unchanged.
    """
    if isinstance(tree, list):
        return [_without(item, path) for item in tree]
    head, *rest = path
    if head not in tree:
        return tree
    if not rest:
        return {key: value for key, value in tree.items() if key != head}
    return tree | {head: _without(tree[head], tuple(rest))}


@dataclass(frozen=True, slots=True, order=True)
class Role:
    """A role of the report's inputs in parts: `evaluate:vanilla@1` is evaluate, vanilla, no index, seed 1."""

    kind: str
    name: str = ""
    index: int | None = None
    seed: int | None = None


def parse_role(text: str) -> Role:
    """Parse the role of a report's input, such as `train:reo_exp:0@1`: kind, name, index and seed.

    Names have no `:` and no `@`. A missing name is empty; a missing index or seed is None.
    """
    head, _, seed = text.partition("@")
    kind, *rest = head.split(":")
    index = int(rest[1]) if len(rest) > 1 and rest[1].isdigit() else None
    return Role(kind, rest[0] if rest else "", index, int(seed) if seed.lstrip("-").isdigit() else None)


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

# The version of each kind's code, part of every key: raise it when a change of the code changes results.
VERSIONS: dict[Kind, int] = {
    "model": 1,
    "data": 6,
    "train": 18,
    "sample": 15,
    "select": 2,
    "evaluate": 15,
    "results": 1,
    "frontier": 1,
    "budgets": 2,
    "score": 8,
    "measure": 4,
    "report": 8,
}


@dataclass(frozen=True)
class Task:
    """A node of the graph, identified by its kind, payload and inputs; `given_at` are the lines that gave plain `work`."""

    id: str  # unique name in its graph, as `reo_exp.train.s1`
    kind: Kind  # the kind of work
    work: Mapping[str, Any]  # values of the spec that the runner needs, by name
    inputs: dict[str, str]  # id of the task that fills each role
    arm: str | None = None  # the arm or experiment that it was first made for
    seed: int | None = None  # the run's seed, if the result depends on it
    cluster: Cluster | None = None  # where it runs; None is this machine
    # The lines that gave plain `work`, by name.
    given_at: Mapping[str, Origin | None] = field(default_factory=dict, compare=False)

    @cached_property
    def payload(self) -> dict[str, Any]:
        """Return the task's work as JSON data, with empty texts for names: renaming then changes no result."""
        payload: dict[str, Any] = anonymous(self.work)
        return payload


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
        """Return the priority of each task among the tasks that are ready to start; the smallest number starts first.

        Tasks without inputs come first. They are short, and report faulty data before long tasks begin, such as
        questions that are both trained and evaluated on. Then come tasks by the time that is left from their start
        to the end of the graph along the longest path, the longest time first. Ties are in the graph's order.

        Args:
            seconds: How long tasks take, by id; a missing task counts as one second.

        Returns:
            Priorities by task id.
        """
        readers, remaining = self.readers(), dict[str, float]()
        for task in reversed(self.tasks):
            after = max((remaining[reader] for reader in readers[task.id]), default=0.0)
            remaining[task.id] = seconds.get(task.id, 1.0) + after
        ordered = sorted(self.tasks, key=lambda task: (bool(task.inputs), -remaining[task.id]))
        return {task.id: turn for turn, task in enumerate(ordered)}

    def readers(self) -> dict[str, tuple[str, ...]]:
        """Return, for each task id, the ids of the tasks that read its result, in the graph's order."""
        readers: dict[str, list[str]] = {task.id: [] for task in self.tasks}
        for task in self.tasks:
            for source in dict.fromkeys(task.inputs.values()):
                readers[source].append(task.id)
        return {name: tuple(ids) for name, ids in readers.items()}
