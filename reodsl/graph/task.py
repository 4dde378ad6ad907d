"""A task: a kind of work, what its result depends on, and the tasks whose results it reads."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal

from reodsl.ir import Origin, digest
from reodsl.ir.base import anonymous
from reodsl.ir.cluster import Cluster

# Settings that a runner needs and no result depends on.
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
    # Names of arms: whose content they are is an input.
    "frontier": (("frontier", "of"),),
    "budgets": (("split", "rollouts"),),
    "score": (("score", "relative_to"),),
    "measure": (("relative_to",),),
    "report": (("spec", "path"), ("spec", "folder"), ("spec", "sources"), ("spec", "origins")),
}

_EVALUATED = ("samples.parquet", "forced.parquet", "curves.json")
# What a kind reads of the artifact in a role; everything, where a role is not listed.
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
"""The roles of several arms, `arm:NAME`: what is made of them does not depend on what they are called."""

# How long something took says nothing of what came of it, and differs each time.
_TIMES = frozenset({"timings.parquet"})


def identity(task: Task) -> dict[str, Any]:
    """Return the payload without settings that cannot change the result."""
    payload = task.payload
    for path in _INCIDENTAL.get(task.kind, ()):
        payload = _without(payload, path)
    return payload


def reads(kind: Kind, role: str) -> tuple[str, ...]:
    """Return the files (or folders, ending in `/`) that `kind` reads of the artifact in `role`; empty means all."""
    return _READS.get((kind, role.split(":")[0]), ())


def part_digest(files: Mapping[str, str], parts: tuple[str, ...]) -> str:
    """Return the digest of an artifact's content, `{path: sha256}`, as far as `parts` select it.

    A result that was made anew with the same bytes in the parts that a reader uses changes nothing for that reader.
    """
    return digest({path: checksum for path, checksum in files.items() if _counts(path, parts)})


def _counts(path: str, parts: tuple[str, ...]) -> bool:
    chosen = not parts or any(path == file or (file[-1] == "/" and path.startswith(file)) for file in parts)
    return chosen and path not in _TIMES


def material(task: Task, payload: Mapping[str, Any], inputs: Mapping[str, str]) -> dict[str, Any]:
    """Return everything that a result's key is the digest of. `inputs` maps roles to content digests.

    Those of arms are together in `arms`, in an order that no name makes.
    """
    named = {role: content for role, content in inputs.items() if role.partition(":")[0] != ARMS}
    arms = sorted(content for role, content in inputs.items() if role not in named)
    return {
        "kind": task.kind,
        "version": VERSIONS[task.kind],
        "payload": dict(payload),
        "inputs": {**named, "arms": arms} if arms else named,
    }


def _without(tree: Any, path: tuple[str, ...]) -> Any:
    """Return JSON data without the value at a path, in each item of lists on the way."""
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
    """Parse `train:reo_exp:0@1` as a `Role`; a name may hold anything but `:` and `@`."""
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

# Part of every result's identity: raise a kind's number when its code changes what it computes.
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
    "measure": 3,
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
        """Return its work as JSON data, without the names that people gave; `identity` is what its result depends on."""
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
        """Return the rank of every task among tasks that could start, from 0, by task id.

        Tasks without inputs come first: they take moments, and missing questions, or questions that are both trained
        and evaluated on, are reported before anything long begins. Then comes the task with the longest way from
        its start to the end; of equal tasks the first in the graph.

        Args:
            seconds: how long tasks take, by id; a missing task takes a second.
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
