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

    `waiting`: another run is computing the same result. `blocked`: a task that it reads
    failed. `rebuilding`: its stored result is damaged. `seconds` is how long a finished task took; `diagnostics` say why one
    failed; `key` is that of the result which a started task is to make.
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
    """A task's share of the machines: torch device, threads, the rollout engine, and how many of each work on it.

    `trainers` processes train together, each on one device, and as many neighbours as there are `parts` hold a copy of
    the model (None: all hold one); `engines` generate, each on `tensor_parallel` devices:
    those of the trainers in turn or, with `apart`, their own. `devices` names those of each engine that shares them
    (as CUDA_VISIBLE_DEVICES does on its node), once the trainers have them. With `confined`, a scorer that evaluates
    answers as code runs only where its process can be confined. `python` are the checksums of the user's code that may
    run (`reodsl.store.consent`). `determinism` is the cluster's. `notes` is the folder of a rehearsal's notes: its GPUs are
    reserved, and may be declared alone; processors compute.
    """

    device: str = "cpu"
    threads: int = 1
    engine: str = "embedded"
    determinism: Determinism = "exact"
    trainers: int = 1
    parts: int | None = None
    engines: int = 1
    tensor_parallel: int = 1
    apart: bool = False
    devices: tuple[str, ...] = ()
    confined: bool = True
    python: frozenset[str] = frozenset()
    notes: Path | None = None

    @property
    def reserves_gpus(self) -> bool:
        """Return whether processes take GPUs of their cluster, whatever they compute on."""
        return self.device != "cpu" or self.notes is not None


@dataclass(frozen=True, slots=True)
class Job:
    """One task about to run.

    `inputs` maps each role to the folder of a finished, read-only artifact; a runner reads of it what
    `reodsl.graph.task.reads` lists for its kind and role, because only that is part of the result's identity.
    The runner writes its result into `out`, which exists and is empty, and which becomes visible as a whole once
    the runner returns; plain files and folders only. `work` is a folder that outlives an interrupted attempt and is
    not there until a runner makes it: what is needed to go on exactly is kept there, written atomically. `folder` is
    where the spec's relative paths start.
    """

    task: Task
    inputs: Mapping[str, Path]
    out: Path
    work: Path
    folder: Path
    progress: Callable[[Progress], None]
    resources: Resources = Resources()


Runner = Callable[[Job], None]
