"""The plan: from a graph and a store to a verdict for every task and its reason, and a task of it by name."""

from __future__ import annotations

import difflib
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from reodsl.diagnostics import problem
from reodsl.graph.lower import lower
from reodsl.graph.task import VERSIONS, Graph, Task
from reodsl.ir import Spec, digest
from reodsl.plan.changes import CHOSEN, Difference, compare_roles, explain, list_changed_inputs, words
from reodsl.plan.keys import Keys, contents
from reodsl.plan.places import Places
from reodsl.store.accept import acceptances, add_acceptances
from reodsl.store.external import absent
from reodsl.store.live import can_go_on
from reodsl.store.manifest import Manifest
from reodsl.store.runs import Record, previous, records
from reodsl.store.store import Store

_GROUPS = {"arms": "the set of arms"}
Verdict = Literal["reuse", "run", "rerun", "later"]


@dataclass(frozen=True, slots=True)
class Item:
    """One task of a plan.

    `reuse`: its result is there. `run`: it never had one. `rerun`: it had one, and `changes` or something it reads
    made that stale. `later`: what it does is only known once a task in `needs` is done. `needs` names the tasks it
    reads that have to run first. `key` is known once they are done. `created` is when a reused result was made. `absent`
    are files, models and data sets that it reads and that are not on this machine.
    """

    task: Task
    verdict: Verdict
    reason: str
    changes: tuple[Difference, ...] = ()
    needs: tuple[str, ...] = ()
    key: str | None = None
    created: str | None = None
    absent: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Plan:
    """Verdicts about all tasks of `spec`, whose compiled form has the digest `digest`."""

    spec: Spec
    digest: str
    items: tuple[Item, ...]

    @property
    def totals(self) -> dict[Verdict, int]:
        """Return how many tasks have each verdict."""
        verdicts: tuple[Verdict, ...] = ("reuse", "run", "rerun", "later")
        return {name: sum(item.verdict == name for item in self.items) for name in verdicts}

    @property
    def now(self) -> tuple[str, ...]:
        """Return the ids of tasks that a run certainly does."""
        return tuple(item.task.id for item in self.items if item.verdict in ("run", "rerun"))

    @property
    def later(self) -> tuple[str, ...]:
        """Return the ids of tasks that a run may have to do, depending on others."""
        return tuple(item.task.id for item in self.items if item.verdict == "later")

    @property
    def absent(self) -> tuple[str, ...]:
        """Return the names of inputs of the tasks to be done that are not on this machine, each once."""
        return tuple(dict.fromkeys(name for item in self.items for name in item.absent))

    @property
    def work(self) -> bool:
        """Return whether there is anything to do."""
        return any(item.verdict != "reuse" for item in self.items)


def make_plan(spec: Spec, graph: Graph, store: Store, keys: Keys) -> Plan:
    """Ask the store about every task, in order; only its checksums of files that it has read may change.

    Raises E0952 for a folder that is not a store.
    """
    store.recognise()
    planner = _Planner(spec, store, keys, records(store))
    items = tuple(planner.item(task) for task in graph.tasks)
    if store.exists:
        keys.prints.save()
    return Plan(spec, digest(spec), items)


class _Planner:
    def __init__(self, spec: Spec, store: Store, keys: Keys, past: tuple[Record, ...]) -> None:
        self.spec, self.store, self.keys, self.records = spec, store, keys, past
        self.places = Places(spec)
        self.done: dict[str, Manifest] = {}
        self.unknown: set[str] = set()

    def item(self, task: Task) -> Item:
        item = self._item(task)
        lacks = () if item.verdict == "reuse" else absent(task, self.keys.folder)
        verb = "is" if len(lacks) == 1 else "are"
        return (
            replace(item, reason=f"{_some(lacks)} {verb} not on this machine", absent=lacks)
            if lacks
            else item
        )

    def _item(self, task: Task) -> Item:
        needs = tuple(dict.fromkeys(source for source in task.inputs.values() if source not in self.done))
        if needs:
            return self._pending(task, needs)
        if self.keys.unread(task):
            return Item(task, "run", "it has more to read than a plan does: a run reads it once")
        inputs = {role: self.done[source] for role, source in task.inputs.items()}
        key, new = self.keys.key(add_acceptances(task, self.done), inputs)
        manifest = self.store.get(key)
        if manifest is not None:
            self.done[task.id] = manifest
            kept = acceptances(manifest)
            reason = f"accepted: {kept[-1].because}" if kept else "done"
            return Item(task, "reuse", reason, key=key, created=manifest.created)
        if can_go_on(self.store.root / "work" / key):
            return Item(task, "run", "goes on where it stopped", key=key)
        if self.store.path(key).exists():
            return Item(task, "run", "its result is damaged", key=key)
        if key == previous(self.spec.study.name, task.id, self.records):
            return Item(task, "run", "its result was removed", key=key)
        old = self._previous(task)
        if old is None:
            return Item(task, "run", "not done yet", key=key)
        now = contents(task, inputs)
        changes = explain(task, old, new, self.places)
        if task.kind in CHOSEN:
            last = self.store.get(previous(self.spec.study.name, task.id, self.records) or "")
            then = last.provenance.get("contents", {}) if last is not None else {}
            changes += compare_roles(task, then, now, self.places)
        if changes:
            return Item(task, "rerun", _reason(task, changes), changes, key=key)
        roles = list_changed_inputs(old, new, now)
        sources = dict.fromkeys(task.inputs.get(role, _GROUPS.get(role, role)) for role in roles)
        return Item(task, "rerun", f"{_some(tuple(sources))} changed", key=key)

    def _pending(self, task: Task, needs: tuple[str, ...]) -> Item:
        """Return the item of a task with missing inputs, so that its key is unknown."""
        if task.kind == "budgets" or self.unknown.intersection(needs):
            self.unknown.add(task.id)
            return Item(task, "later", f"needs {_some(needs)}", needs=needs)
        old = self._previous(task)
        if old is None:
            return Item(task, "run", f"after {_some(needs)}", needs=needs)
        now = {"version": VERSIONS[task.kind], "payload": self.keys.payload(task)}
        changes = explain(task, old, now, self.places)
        if changes and task.kind != "report":
            return Item(task, "rerun", _reason(task, changes), changes, needs)
        run = "runs" if len(needs) == 1 else "run"
        return Item(task, "rerun", f"{_some(needs)} {run} first", changes, needs)

    def _previous(self, task: Task) -> dict[str, Any] | None:
        """Return the material of the result that this task had when the study ran last."""
        key = previous(self.spec.study.name, task.id, self.records)
        return self.store.material(key) if key else None


def _reason(task: Task, changes: tuple[Difference, ...]) -> str:
    return "what it shows changed" if task.kind == "report" else words(changes[0])


def _some(names: tuple[str, ...]) -> str:
    if len(names) <= 2:
        return " and ".join(names)
    return f"{names[0]} and {len(names) - 1} others"


_SHOWN = 12


def find(plan: Plan, name: str | None) -> Item:
    """Return the task of that id, or the only one that starts so. Raises E0955 with near names, or all for no name."""
    ids = [item.task.id for item in plan.items]
    if name is None:
        raise problem("E0955", "no task is named", help=f"name one of: {_list_tasks(ids)}")
    chosen = [item for item in plan.items if item.task.id == name]
    chosen = chosen or [item for item in plan.items if item.task.id.startswith(f"{name}.")]
    if len(chosen) != 1:
        near = (
            [item.task.id for item in chosen] or difflib.get_close_matches(name, ids, n=5, cutoff=0.4) or ids
        )
        what = "several tasks start with" if chosen else "no task is called"
        raise problem("E0955", f"{what} `{name}`", help=f"name one of: {_list_tasks(near)}")
    return chosen[0]


def _list_tasks(names: list[str]) -> str:
    more = f" and {len(names) - _SHOWN} more (`reodsl graph SPEC`)" if len(names) > _SHOWN else ""
    return ", ".join(names[:_SHOWN]) + more


@dataclass(frozen=True, slots=True)
class Ready:
    """A compiled spec with its graph, its store (which may not exist yet), and the keys of its tasks."""

    spec: Spec
    graph: Graph
    store: Store
    keys: Keys

    def for_run(self) -> Ready:
        """Return the same study with keys that read sources whole, however large."""
        return replace(self, keys=self.keys.for_run())

    def plan(self) -> Plan:
        """Plan a run. Raises E0952 for a folder that is not a store."""
        return make_plan(self.spec, self.graph, self.store, self.keys)


def prepare_study(spec: Spec, path: Path, store: Path | None) -> Ready:
    """Prepare the spec compiled from the file at `path`; results are in `store`, or in `.reodsl` beside it."""
    beside = path.resolve().parent
    place = Store(store or beside / ".reodsl")
    folder = Path(spec.folder) if spec.folder else beside
    return Ready(spec, lower(spec), place, Keys(place, folder))
