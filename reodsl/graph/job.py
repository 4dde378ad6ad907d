"""The contract between graph and runners: the job of a task, and the events of a run."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from reodsl.diagnostics import Diagnostic
from reodsl.graph.task import Task

EventKind = Literal["reused", "started", "progress", "waiting", "finished", "failed", "blocked", "rebuilding"]


@dataclass(frozen=True, slots=True)
class Event:
    """An event of task `task` while a graph is executed.

    `waiting`: another run computes the same result. `blocked`: a task whose result this task reads failed.
    `rebuilding`: the stored result is damaged, and is computed again. `seconds` is how long a finished task took,
    `diagnostics` say why a task failed, and `key` is the key of the result that a started task computes.
    """

    kind: EventKind
    task: str
    progress: Progress | None = None
    seconds: float | None = None
    diagnostics: tuple[Diagnostic, ...] = ()
    key: str | None = None


Determinism = Literal["exact", "seeded"]


@dataclass(frozen=True, slots=True)
class Progress:
    """Progress of a task: `done` of `total` units, and the numbers worth showing (reward, accuracy, length, tokens/s)."""

    done: int
    total: int
    numbers: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Resources:
    """A task's share of the machines: devices, threads, the rollout engine, and the processes that work on it."""

    device: str = "cpu"  # torch device of its processes
    threads: int = 1  # threads of each process
    engine: str = "embedded"  # rollout engine
    determinism: Determinism = "exact"  # the cluster's setting
    trainers: int = 1  # processes that train together, each on its device
    parts: int | None = None  # neighbours that share a copy of the model; None: all
    engines: int = 1  # processes that generate
    tensor_parallel: int = 1  # devices of each engine
    disaggregated: bool = False  # whether engines have devices of their own
    devices: tuple[str, ...] = ()  # CUDA_VISIBLE_DEVICES of each engine that shares devices
    confined: bool = True  # whether scorers of code must be confined
    python: frozenset[str] = frozenset()  # checksums of the user's code that may run
    notes: Path | None = None  # a rehearsal's folder of notes: GPUs are reserved, not used

    @property
    def reserves_gpus(self) -> bool:
        """Return whether processes reserve GPUs of their cluster; in a rehearsal they do so without using them."""
        return self.device != "cpu" or self.notes is not None


@dataclass(frozen=True, slots=True)
class Job:
    """A task about to run.

    A runner reads of an input what `reodsl.graph.task.reads` lists for its kind and role, because only that is part of
    the result's identity. It writes plain files and folders into `out`, which becomes visible as a whole once the runner
    returns. What is needed to go on exactly after an interruption is kept in `work`, written atomically.
    """

    task: Task  # the task
    inputs: Mapping[str, Path]  # folder of a finished, read-only artifact, by role
    out: Path  # the empty folder of its result
    work: Path  # a folder that outlives an interruption; not there at first
    folder: Path  # where the spec's relative paths start
    progress: Callable[[Progress], None]  # called with each report of progress
    resources: Resources = Resources()  # its share of the machines


Runner = Callable[[Job], None]
