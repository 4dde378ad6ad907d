"""The contract with the runners: kinds, what this machine lacks, and the execution of a graph."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import metadata
from pathlib import Path
from typing import Literal

from reodsl.diagnostics import Diagnostic, problem
from reodsl.graph.job import Event
from reodsl.graph.task import Graph, Kind, Task
from reodsl.ir import Spec
from reodsl.ir.reward import ResponseGroup, Reward, TriedResponse
from reodsl.ir.training import Advantage
from reodsl.numbers.responses import ImportCounts, ResultFiles
from reodsl.plan.verdict import Keys
from reodsl.rehearse import StandIns
from reodsl.store.store import Store

GROUP = "reodsl.runners"
PACKAGE = "reodsl"
CHOICE = "REODSL_RUNNERS"
"""The environment variable that names another package whose runners are used."""


@dataclass(frozen=True, slots=True)
class Machine:
    """The machine for tasks: this process, a Ray instance of this machine, or a cluster."""

    local: bool = False
    """True for this process, without Ray."""
    address: str | None = None
    """Address of a Ray cluster."""
    without_sandbox: bool = False
    """True if scorers that evaluate answers may run unconfined."""
    allow_python: bool = False
    """True if Python of the spec that is new to this machine may run, and is remembered."""
    python: frozenset[str] = frozenset()
    """Checksums of Python that may run."""
    allow_served: bool = False
    """True if served models that are new to this machine may be asked, and are remembered."""
    notes: Path | None = None
    """Folder of a rehearsal's notes: GPUs of a cluster may then be only declared, and processors compute."""

    @property
    def declares(self) -> bool:
        """Return whether a rehearsal only declares the GPUs of clusters to a Ray instance on this machine."""
        return self.notes is not None and self.address is None and not self.local


@dataclass(frozen=True, slots=True)
class Execution:
    """A graph to execute: finished results are taken from `store`, new ones are added to it."""

    graph: Graph
    """Tasks with their inputs."""
    store: Store
    """Store of the results."""
    keys: Keys
    """Keys of the tasks."""
    runners: Mapping[Kind, str]
    """Function of each kind of task, as `module:function`."""
    machine: Machine
    """Machine that executes."""
    emit: Callable[[Event], None]
    """Function that gets every event, in this process and thread."""
    done: Callable[[str, str], None]
    """Function that gets every result, as task id and key."""
    seconds: Mapping[str, float] = field(default_factory=dict)
    """Expected seconds of tasks, by which `Graph.turns` says what starts first."""


@dataclass(slots=True)
class RunResults:
    """The keys of finished tasks, failures, blocked tasks, and damaged results that were rebuilt."""

    keys: dict[str, str] = field(default_factory=dict)
    failed: dict[str, tuple[Diagnostic, ...]] = field(default_factory=dict)
    blocked: list[str] = field(default_factory=list)
    rebuilt: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class MachinePart:
    """A part of this machine that runs need or can use.

    `says` is its version and what is worth knowing of it; `help`, if it is not `ok`, how to get it. Without one
    that is `needed` no spec runs.
    """

    name: str
    state: Literal["ok", "missing", "broken"]
    says: str
    help: str | None = None
    needed: bool = True


@dataclass(frozen=True, slots=True)
class Registry:
    """The runners of the entry-point group `reodsl.runners`; a package may omit the last five."""

    runners: Mapping[Kind, str]
    """Function of each kind of task as `module:function`, imported by the process of the task."""
    check: Callable[[tuple[Task, ...], Spec, Path, Machine], tuple[Diagnostic, ...]]
    """Function that reports what tasks lack before anything starts: errors with a remedy, and warnings if something
    differs from the spec."""
    execute: Callable[[Execution], RunResults]
    """Function that runs a graph; it raises a `Problem` only if nothing can run at all."""
    survey: Callable[[], tuple[MachinePart, ...]] = tuple
    """Function that returns which parts this machine has, imports included."""
    probe: Callable[[Path, str | None], Mapping[str, Sequence[MachinePart]]] | None = None
    """Function that returns the parts of every node of the Ray cluster at an address, or of this machine, given the
    folder of a store."""
    try_reward: (
        Callable[[Reward, Advantage, ResponseGroup, Sequence[Sequence[int]]], tuple[TriedResponse, ...]]
        | None
    ) = None
    """Function that returns what each response of a group earns, given the splits of each in tokens."""
    stand_ins: Callable[[Spec, Path, Path], StandIns] | None = None
    """Function that returns the models and data of a rehearsal, given the spec, its folder and a folder to write to."""
    count_questions: Callable[[Sequence[Task], Path], Mapping[str, int]] | None = None
    """Function that returns the number of questions of `data` tasks, by id, as far as files on this machine tell."""
    import_results: Callable[[ResultFiles], tuple[ImportCounts, ...]] | None = None
    """Function that writes result files of other tools as a table."""


def load_registry() -> Registry:
    """Return the runners of the package `reodsl`, or of the package that the variable REODSL_RUNNERS names.

    Any installed package may provide runners by an entry point, but only the chosen package is imported.

    Raises:
        Problem: E0121 if the package has no runners, or they cannot be imported.
    """
    package = os.environ.get(CHOICE) or PACKAGE
    entry_points = {
        entry_point.dist.name.lower().replace("_", "-"): entry_point
        for entry_point in reversed(tuple(metadata.entry_points(group=GROUP)))
        if entry_point.dist is not None
    }
    entry = entry_points.get(package.lower().replace("_", "-"))
    if entry is None:
        packages = sorted(entry_points.keys() - {PACKAGE})
        raise problem(
            "E0121",
            "no runners are installed"
            if package == PACKAGE
            else f"the package `{package}` provides no runners",
            notes=[f"other packages with runners: {', '.join(packages)}"] if packages else (),
            help="install them with: pip install 'reodsl[run]'"
            if not packages
            else f"run pip install 'reodsl[run]', or choose a package that you trust: {CHOICE}=NAME",
        )
    try:
        registry = entry.load()
    except ImportError as error:
        raise problem(
            "E0121",
            f"the runners cannot be imported: {error}",
            where=entry.value,
            help="install what they need with: pip install 'reodsl[run]'",
        ) from error
    assert isinstance(registry, Registry)
    return registry
