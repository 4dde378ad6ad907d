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
from reodsl.ir.reward import ResponseGroup, Reward, Tried
from reodsl.ir.training import Advantage
from reodsl.numbers.responses import Found, ResultFiles
from reodsl.plan.verdict import Keys
from reodsl.rehearse import StandIns
from reodsl.store.store import Store

GROUP = "reodsl.runners"
PACKAGE = "reodsl"
CHOICE = "REODSL_RUNNERS"
"""The variable that names another package whose runners are taken."""


@dataclass(frozen=True, slots=True)
class Machine:
    """A place for tasks: this process (`local`), a Ray instance of this machine, or the cluster at `address`.

    With `without_sandbox`, scorers that evaluate answers run also where nothing confines them. With
    `allow_python`, Python that a spec names and that is new to this machine runs too, and is remembered; `python` are the
    checksums of what may run. With `allow_served`, served models that are new to this machine are asked
    and remembered. `notes` is the folder of a rehearsal's notes: GPUs of a cluster may be declared alone, and processors
    compute; without an address as many GPUs are declared here as the tasks' clusters have.
    """

    local: bool = False
    address: str | None = None
    without_sandbox: bool = False
    allow_python: bool = False
    python: frozenset[str] = frozenset()
    allow_served: bool = False
    notes: Path | None = None

    @property
    def declares(self) -> bool:
        """Return whether the GPUs of clusters are declared on this machine."""
        return self.notes is not None and self.address is None and not self.local


@dataclass(frozen=True, slots=True)
class Execution:
    """A graph to execute: finished results are taken from `store`, new ones are added to it.

    `emit` hears of every event, in this process and thread; `done` of every result as (task id, key). `seconds` are those
    that tasks are expected to take, by which `Graph.turns` says what starts first.
    """

    graph: Graph
    store: Store
    keys: Keys
    runners: Mapping[Kind, str]
    machine: Machine
    emit: Callable[[Event], None]
    done: Callable[[str, str], None]
    seconds: Mapping[str, float] = field(default_factory=dict)


@dataclass(slots=True)
class RunResults:
    """Results of an execution: keys of finished tasks, failures, blocked tasks, and rebuilt ones that were damaged."""

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
    """The runners of the entry-point group `reodsl.runners`.

    `runners` names one function a kind as `module:function`, a `reodsl.graph.job.Runner`, imported where the task
    runs. `check` is asked before anything starts: an error for everything that the tasks to run need and that is
    missing, and how to get it; a warning for what is there and not as the spec says. `execute` runs a graph; it raises
    a `Problem` only when nothing can run at all.
    `survey` looks at what this machine has of what runs need, imports included; `probe`, by the folder of a store, at every
    node of the Ray cluster at an address, or at this machine as its only one: parts by node. `try_reward` says what each
    response of a group earns, given the splits of each in tokens; `stand_ins` what a rehearsal takes in the place of models
    and data of a spec, by its folder and one to write to; `count_questions` how many questions `data` tasks will read, by
    their ids, as far as files on this machine tell; `import_results` writes result files of others as one table. Packages
    may do without these five.
    """

    runners: Mapping[Kind, str]
    check: Callable[[tuple[Task, ...], Spec, Path, Machine], tuple[Diagnostic, ...]]
    execute: Callable[[Execution], RunResults]
    survey: Callable[[], tuple[MachinePart, ...]] = tuple
    probe: Callable[[Path, str | None], Mapping[str, Sequence[MachinePart]]] | None = None
    try_reward: (
        Callable[[Reward, Advantage, ResponseGroup, Sequence[Sequence[int]]], tuple[Tried, ...]] | None
    ) = None
    stand_ins: Callable[[Spec, Path, Path], StandIns] | None = None
    count_questions: Callable[[Sequence[Task], Path], Mapping[str, int]] | None = None
    import_results: Callable[[ResultFiles], tuple[Found, ...]] | None = None


def load_registry() -> Registry:
    """Load the registry of the package `reodsl`, or of the package that REODSL_RUNNERS names.

    Any package can provide one, and none is imported only because it is installed. Raises E0121 when it is missing
    or cannot be imported.
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
            notes=[f"of other packages there are those of {', '.join(packages)}"] if packages else (),
            help="install them with: pip install 'reodsl[run]'"
            if not packages
            else f"install ours with: pip install 'reodsl[run]', or choose a package that you trust: {CHOICE}=NAME",
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
