"""The plan: keys of tasks, a verdict for each with its reason, and results accepted for tasks that changed."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from reodsl.diagnostics import Problem, problem
from reodsl.graph.task import VERSIONS, Graph, Task, identity, material, part_digest, reads
from reodsl.ir import Spec, digest
from reodsl.plan.places import CHOSEN, Difference, compare_roles, explain, list_changed_inputs, words
from reodsl.price import lower_placed
from reodsl.store.external import MOST_READ, Fingerprints, absent, resolve_sources
from reodsl.store.live import can_go_on
from reodsl.store.manifest import Manifest
from reodsl.store.runs import RunRecord, previous, records
from reodsl.store.store import Store, acceptances, add_acceptances, adopt, find_store


class Keys:
    """The keys of a spec's tasks; relative paths start at `folder`."""

    def __init__(self, store: Store, folder: Path, most: int | None = MOST_READ) -> None:
        """Read the checksums of files that the store keeps; of unknown files read at most `most` bytes (None: all)."""
        self.store, self.folder = store, folder
        self.prints = Fingerprints(store.root / "fingerprints.json", most)

    def for_run(self) -> Keys:
        """Return the same keys without a limit on reading sources: a run was requested."""
        return Keys(self.store, self.folder, None)

    def payload(self, task: Task) -> dict[str, Any]:
        """Return the part of the task's payload that its result depends on, with present content in place of paths."""
        return resolve_sources(task, identity(task), self.folder, self.prints)

    def unread(self, task: Task) -> bool:
        """Return whether the task has sources too large to be read before a run, so that its key is unknown."""
        before = self.prints.skipped
        if task.kind in ("data", "model") or "base" in task.payload:
            self.payload(task)
        return self.prints.skipped > before

    def key(self, task: Task, inputs: Mapping[str, Manifest]) -> tuple[str, dict[str, Any]]:
        """Return the key of the task's result and the material it is the digest of. `inputs` is by role."""
        key_material = material(task, self.payload(task), contents(task, inputs))
        return digest(key_material), key_material


def contents(task: Task, inputs: Mapping[str, Manifest]) -> dict[str, str]:
    """Map each role to the digest of the files read."""
    return {
        role: part_digest(manifest.checksums, reads(task.kind, role)) for role, manifest in inputs.items()
    }


_GROUPS = {"arms": "the set of arms"}
Verdict = Literal["reuse", "run", "rerun", "later"]


@dataclass(frozen=True, slots=True)
class Item:
    """A task of a plan with its verdict."""

    task: Task
    """The task."""
    verdict: Verdict
    """`reuse`: its result exists. `run`: it never had a result. `rerun`: its result is stale because of `changes` or an
    input. `later`: known once a task in `needs` has ended."""
    reason: str
    """Reason in words."""
    changes: tuple[Difference, ...] = ()
    """Settings that differ from the last result."""
    needs: tuple[str, ...] = ()
    """Inputs that have to run first."""
    key: str | None = None
    """Key of the result; None until the inputs exist."""
    created: str | None = None
    """Time at which a reused result was made."""
    absent: tuple[str, ...] = ()
    """Inputs that are not on this machine: files, models and data sets."""


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
        """Return the ids of tasks that a run may have to do, depending on other tasks."""
        return tuple(item.task.id for item in self.items if item.verdict == "later")

    @property
    def absent(self) -> tuple[str, ...]:
        """Return the names of inputs of the tasks to be done that are not on this machine, each once."""
        return tuple(dict.fromkeys(name for item in self.items for name in item.absent))

    @property
    def work(self) -> bool:
        """Return whether any task has to run."""
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
    def __init__(self, spec: Spec, store: Store, keys: Keys, past: tuple[RunRecord, ...]) -> None:
        self.spec, self.store, self.keys, self.records = spec, store, keys, past
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
        """Return the verdict on a task, from the results so far."""
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
            accepted = acceptances(manifest)
            reason = f"accepted: {accepted[-1].because}" if accepted else "done"
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
        new_contents = contents(task, inputs)
        changes = explain(task, old, new)
        if task.kind in CHOSEN:
            last = self.store.get(previous(self.spec.study.name, task.id, self.records) or "")
            old_contents = last.provenance.get("contents", {}) if last is not None else {}
            changes += compare_roles(task, old_contents, new_contents)
        if changes:
            return Item(task, "rerun", _reason(task, changes), changes, key=key)
        roles = list_changed_inputs(old, new, new_contents)
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
        changes = explain(task, old, now)
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
    """Return the task called `name`, or the only task that begins with it.

    Raises:
        Problem: E0954 with the nearest names, or with all names if none is given.
    """
    ids = [item.task.id for item in plan.items]
    if name is None:
        raise problem("E0954", "no task is named", help=f"name one of: {_list_tasks(ids)}")
    chosen = [item for item in plan.items if item.task.id == name]
    chosen = chosen or [item for item in plan.items if item.task.id.startswith(f"{name}.")]
    if len(chosen) != 1:
        candidates = (
            [item.task.id for item in chosen] or difflib.get_close_matches(name, ids, n=5, cutoff=0.4) or ids
        )
        complaint = "several tasks start with" if chosen else "no task is called"
        raise problem("E0954", f"{complaint} `{name}`", help=f"name one of: {_list_tasks(candidates)}")
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
        """Return the same study with keys that read sources completely, however large."""
        return replace(self, keys=self.keys.for_run())

    def plan(self) -> Plan:
        """Plan a run. Raises E0952 for a folder that is not a store."""
        return make_plan(self.spec, self.graph, self.store, self.keys)


def prepare_study(spec: Spec, path: Path, store: Path | None) -> Ready:
    """Prepare the spec compiled from the file at `path`; results are in `store`, or where `find_store` says."""
    spec_folder = path.resolve().parent
    opened = Store(store or find_store(spec_folder))
    folder = Path(spec.folder) if spec.folder else spec_folder
    return Ready(spec, lower_placed(spec), opened, Keys(opened, folder))


@dataclass(frozen=True, slots=True)
class AcceptedResult:
    """The outcome of an acceptance: the result, the task's new key, and in words what had changed."""

    task: str
    key: str
    result: str
    changes: tuple[str, ...]


def accept(
    plan: Plan, store: Store, keys: Keys, item: Item, because: str, result: str | None
) -> AcceptedResult:
    """Accept an existing result for a task: its last result, or the result whose key begins with `result`.

    Raises:
        Problem: E0956 if nothing would run, the key is not known yet, the result is missing, damaged or of another
            kind of task, another process computes it, or no reason is given.
    """
    task = item.task
    if not because.strip():
        raise _refuse(task, "no reason is given", 'say why the result still holds: --because "…"')
    if task.kind == "report":
        raise _refuse(task, "a report is drawn from what there is now", "accept a result that it shows")
    if item.verdict == "reuse":
        raise _refuse(task, "its result is there, and nothing would run", "`reodsl plan` lists what would")
    if item.key is None:
        needs = ", ".join(item.needs)
        raise _refuse(task, f"what it reads is not there yet: {needs}", "run or accept that first")
    manifests = _find_done(plan, store)
    key, new = keys.key(task, {role: manifests[source] for role, source in task.inputs.items()})
    chosen = _choose_result(plan.spec, store, task, key, result)
    manifest, old = store.get(chosen), store.material(chosen)
    damage = store.damage(chosen)
    if manifest is None or old is None or damage:
        fault = damage[0] if damage else "its files are not whole"
        raise _refuse(task, f"the result {chosen[:8]} is damaged: {fault}", "run the task")
    if old["kind"] != task.kind:
        raise _refuse(
            task,
            f"the result {chosen[:8]} is of kind `{old['kind']}`, and the task is of kind `{task.kind}`",
            "name a result of the task's kind; `reodsl ls STUDY` lists them",
        )
    changes = _changes(task, old, new, plan.spec)
    with store.lock(key) as locked:
        if not locked:
            raise _refuse(task, "another process is making its result", "wait for it, or stop it")
        adopt(store, manifest, key, task.id, new, because.strip(), changes)
    return AcceptedResult(task.id, key, chosen, changes)


def _find_done(plan: Plan, store: Store) -> dict[str, Manifest]:
    manifests = {}
    for item in plan.items:
        manifest = store.get(item.key) if item.verdict == "reuse" and item.key else None
        if manifest is not None:
            manifests[item.task.id] = manifest
    return manifests


def _choose_result(spec: Spec, store: Store, task: Task, key: str, result: str | None) -> str:
    """Return the key of the result to accept."""
    if result is None:
        last = previous(spec.study.name, task.id, records(store))
        if last is None or last == key or not store.path(last).exists():
            why = "it has none from before" if last is None else "the one that it had was removed"
            why = "nothing that it is made of changed" if last == key else why
            raise _refuse(
                task, why, "run the task, or name a result: --result KEY (`reodsl ls STUDY` lists them)"
            )
        return last
    matching = [name for name in store if name.startswith(result)] if result else []
    if len(matching) != 1:
        why = "several results begin" if matching else "no result begins"
        raise _refuse(task, f"{why} with `{result}`", "`reodsl ls STUDY --json` has whole keys")
    return matching[0]


def _changes(task: Task, old: Mapping[str, Any], new: Mapping[str, Any], spec: Spec) -> tuple[str, ...]:
    in_settings = tuple(words(change) for change in explain(task, old, new))
    read = tuple(f"{task.inputs.get(role, role)} changed" for role in list_changed_inputs(old, new))
    return (*in_settings, *read)


def _refuse(task: Task, why: str, remedy: str) -> Problem:
    return problem("E0956", f"no result can be accepted for `{task.id}`: {why}", help=remedy)
