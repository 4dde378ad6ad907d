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
    """A way to compute the keys of tasks, which depend on the content of files that the spec names."""

    def __init__(self, store: Store, folder: Path, most: int | None = MOST_READ) -> None:
        """Read the checksums of files that the store knows.

        Args:
            store: The store of the results.
            folder: The folder where the spec's relative paths start.
            most: The most bytes to read of files with unknown checksums; None reads all.
        """
        self.store, self.folder = store, folder
        self.prints = Fingerprints(store.root / "fingerprints.json", most)

    def for_run(self) -> Keys:
        """Return keys for a run, which reads files completely, however large."""
        return Keys(self.store, self.folder, None)

    def payload(self, task: Task) -> dict[str, Any]:
        """Return the settings that a task's result depends on, with the checksums of files in place of paths."""
        return resolve_sources(task, identity(task), self.folder, self.prints)

    def unread(self, task: Task) -> bool:
        """Return whether a task's files are too large to be read for a plan; its key is then unknown until a run.

        The files are those of a data set, a model, or imported results. They are read up to the limit `most` of the
        constructor; files whose checksums the store knows need no reading.
        """
        before = self.prints.skipped
        if task.kind in ("data", "model") or "base" in task.payload:
            self.payload(task)
        return self.prints.skipped > before

    def key(self, task: Task, inputs: Mapping[str, Manifest]) -> tuple[str, dict[str, Any]]:
        """Return the key of a task's result and its material.

        The material is everything that the result depends on, as JSON data. The key is the digest of the material.

        Args:
            task: The task.
            inputs: The stored results that the task reads, by role (the name of an input, such as `data`).
        """
        key_material = material(task, self.payload(task), contents(task, inputs))
        return digest(key_material), key_material


def contents(task: Task, inputs: Mapping[str, Manifest]) -> dict[str, str]:
    """Return, for each input of a task, a digest of the files that the task reads of it.

    Args:
        task: The task.
        inputs: The stored results that the task reads, by role (the name of an input, such as `data`).
    """
    return {
        role: part_digest(manifest.checksums, reads(task.kind, role)) for role, manifest in inputs.items()
    }


_GROUPS = {"arms": "the set of arms"}
"""Words for roles that no single task fills."""
Verdict = Literal["reuse", "run", "rerun", "later"]


@dataclass(frozen=True, slots=True)
class Item:
    """A task of a plan with its verdict."""

    task: Task
    """The task."""
    verdict: Verdict
    """`reuse`: the result exists. `run`: there is no earlier result. `rerun`: the earlier result is stale because of
    `changes` or an input. `later`: known after a task in `needs`."""
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
        """Return the number of tasks with each verdict."""
        verdicts: tuple[Verdict, ...] = ("reuse", "run", "rerun", "later")
        return {name: sum(item.verdict == name for item in self.items) for name in verdicts}

    @property
    def now(self) -> tuple[str, ...]:
        """Return the ids of the tasks that a run certainly executes."""
        return tuple(item.task.id for item in self.items if item.verdict in ("run", "rerun"))

    @property
    def later(self) -> tuple[str, ...]:
        """Return the ids of the tasks that a run may have to execute, depending on other tasks' results."""
        return tuple(item.task.id for item in self.items if item.verdict == "later")

    @property
    def absent(self) -> tuple[str, ...]:
        """Return the distinct names of files, models and data sets that tasks to do need and this machine lacks."""
        return tuple(dict.fromkeys(name for item in self.items for name in item.absent))

    @property
    def work(self) -> bool:
        """Return whether any task has to run."""
        return any(item.verdict != "reuse" for item in self.items)


def make_plan(spec: Spec, graph: Graph, store: Store, keys: Keys) -> Plan:
    """Return a plan: for each task, whether its result is in the store, and otherwise why it must run.

    The store does not change, except that it keeps the checksums of files that were read.

    Args:
        spec: The compiled spec.
        graph: The graph of its tasks.
        store: The store of the results.
        keys: The keys of the tasks.

    Raises:
        Problem: E0952 for a folder that is not a store.
    """
    store.recognise()
    planner = _Planner(spec, store, keys, records(store))
    items = tuple(planner.item(task) for task in graph.tasks)
    if store.exists:
        keys.prints.save()
    return Plan(spec, digest(spec), items)


class _Planner:
    def __init__(self, spec: Spec, store: Store, keys: Keys, past: tuple[RunRecord, ...]) -> None:
        """Start with no verdicts.

        `done` has the stored results of reused tasks by id, and `unknown` the ids of tasks with verdict `later`.

        Args:
            spec: The compiled spec.
            store: The store of the results.
            keys: The keys of the tasks.
            past: The records of earlier runs.
        """
        self.spec, self.store, self.keys, self.records = spec, store, keys, past
        self.done: dict[str, Manifest] = {}
        self.unknown: set[str] = set()

    def item(self, task: Task) -> Item:
        """Return the verdict on a task.

        If the task must run, and files, models or data sets that it needs are not on this machine, then the reason
        of the verdict names them.
        """
        item = self._judge(task)
        lacks = () if item.verdict == "reuse" else absent(task, self.keys.folder)
        verb = "is" if len(lacks) == 1 else "are"
        return (
            replace(item, reason=f"{_list_few(lacks)} {verb} not on this machine", absent=lacks)
            if lacks
            else item
        )

    def _judge(self, task: Task) -> Item:
        """Return the verdict on a task after the verdicts on its inputs: reuse its result, or why it must run.

        The tests are in this order: an input must run first; files are too large to read; the store has a result
        with the task's key; the task was interrupted; its result is damaged; its result was removed; the task has
        never run; and at last its settings or inputs changed since its last result.
        """
        needs = tuple(dict.fromkeys(source for source in task.inputs.values() if source not in self.done))
        if needs:
            return self._pending(task, needs)
        if self.keys.unread(task):
            return Item(task, "run", "its files are too large for a plan to read: a run reads them")
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
        old = self._find_previous(task)
        if old is None:
            return Item(task, "run", "not done yet", key=key)
        new_contents = contents(task, inputs)
        changes = explain(task, old, new)
        if task.kind in CHOSEN:
            last = self.store.get(previous(self.spec.study.name, task.id, self.records) or "")
            old_contents = last.provenance.get("contents", {}) if last is not None else {}
            changes += compare_roles(task, old_contents, new_contents)
        if changes:
            return Item(task, "rerun", _write_reason(task, changes), changes, key=key)
        roles = list_changed_inputs(old, new, new_contents)
        sources = dict.fromkeys(task.inputs.get(role, _GROUPS.get(role, role)) for role in roles)
        return Item(task, "rerun", f"{_list_few(tuple(sources))} changed", key=key)

    def _pending(self, task: Task, needs: tuple[str, ...]) -> Item:
        """Return the verdict on a task whose key is unknown, since inputs must run first.

        The verdict is `later` if it is uncertain whether the task must run: for found budgets, which may come out
        equal to the last budgets, and for all tasks that depend on them. Otherwise it is `run` for a task without
        an earlier result, else `rerun`.

        Args:
            task: The task.
            needs: The ids of the inputs that must run.
        """
        if task.kind == "budgets" or self.unknown.intersection(needs):
            self.unknown.add(task.id)
            return Item(task, "later", f"needs {_list_few(needs)}", needs=needs)
        old = self._find_previous(task)
        if old is None:
            return Item(task, "run", f"after {_list_few(needs)}", needs=needs)
        now = {"version": VERSIONS[task.kind], "payload": self.keys.payload(task)}
        changes = explain(task, old, now)
        if changes and task.kind != "report":
            return Item(task, "rerun", _write_reason(task, changes), changes, needs)
        verb = "runs" if len(needs) == 1 else "run"
        return Item(task, "rerun", f"{_list_few(needs)} {verb} first", changes, needs)

    def _find_previous(self, task: Task) -> dict[str, Any] | None:
        """Return the material of the result that a task had in the last run of the study, or None."""
        key = previous(self.spec.study.name, task.id, self.records)
        return self.store.material(key) if key else None


def _write_reason(task: Task, changes: tuple[Difference, ...]) -> str:
    """Return why a task with changed settings must run again: its first change."""
    return "what it shows changed" if task.kind == "report" else words(changes[0])


def _list_few(names: tuple[str, ...]) -> str:
    """Return one or two names joined by `and`; for more names the first and the number of others."""
    return " and ".join(names) if len(names) <= 2 else f"{names[0]} and {len(names) - 1} others"


_SHOWN = 12
"""The most tasks that a message names."""


def find(plan: Plan, name: str | None) -> Item:
    """Return the task of a plan, with its verdict, that a user names.

    Args:
        plan: The plan.
        name: The id of the task, or the beginning of the id before a dot, such as `vanilla` for `vanilla.train`.

    Raises:
        Problem: E0954 if `name` is None, if no task has this name, or if several ids begin with it. The help names
            tasks to choose from.
    """
    ids = [item.task.id for item in plan.items]
    if name is None:
        raise problem("E0954", "no task is named", help=f"name one of: {_list_tasks(ids)}")
    matches = [item for item in plan.items if item.task.id == name]
    matches = matches or [item for item in plan.items if item.task.id.startswith(f"{name}.")]
    if len(matches) != 1:
        candidates = (
            [item.task.id for item in matches] or difflib.get_close_matches(name, ids, n=5, cutoff=0.4) or ids
        )
        complaint = "several tasks start with" if matches else "no task is called"
        raise problem("E0954", f"{complaint} `{name}`", help=f"name one of: {_list_tasks(candidates)}")
    return matches[0]


def _list_tasks(names: list[str]) -> str:
    """Return the first `_SHOWN` ids of tasks as text, and how many more there are."""
    more = f" and {len(names) - _SHOWN} more (`reodsl graph SPEC`)" if len(names) > _SHOWN else ""
    return ", ".join(names[:_SHOWN]) + more


@dataclass(frozen=True, slots=True)
class Ready:
    """A compiled spec that is ready to be planned: with its graph, store (which may not exist yet), and keys."""

    spec: Spec
    graph: Graph
    store: Store
    keys: Keys

    def for_run(self) -> Ready:
        """Return the same study for a run, which reads files completely, however large."""
        return replace(self, keys=self.keys.for_run())

    def plan(self) -> Plan:
        """Return the plan of a run.

        Raises:
            Problem: E0952 for a folder that is not a store.
        """
        return make_plan(self.spec, self.graph, self.store, self.keys)


def prepare_study(spec: Spec, path: Path, store: Path | None) -> Ready:
    """Lower a compiled spec to its graph, and open its store.

    Args:
        spec: The compiled spec.
        path: The file of the spec.
        store: The folder of the results; None for the folder that `find_store` finds.
    """
    spec_folder = path.resolve().parent
    opened = Store(store or find_store(spec_folder))
    folder = Path(spec.folder) if spec.folder else spec_folder
    return Ready(spec, lower_placed(spec), opened, Keys(opened, folder))


@dataclass(frozen=True, slots=True)
class AcceptedResult:
    """The outcome of accepting an existing result for a changed task."""

    task: str
    """The id of the task."""
    key: str
    """The key that the result now has too."""
    result: str
    """The key that the result was stored under."""
    changes: tuple[str, ...]
    """The changes of the task since the result, as text."""


def accept(
    plan: Plan, store: Store, keys: Keys, item: Item, because: str, result: str | None
) -> AcceptedResult:
    """Accept an existing result for a task that would run, as if the task had computed it.

    Args:
        plan: The plan of the study.
        store: The store of the results.
        keys: The keys of the tasks.
        item: The task with its verdict.
        because: Why the result is still valid; it is stored.
        result: The beginning of the result's key; None for the last result of the task.

    Raises:
        Problem: E0956 in these cases: no reason is given; the task is a report; it would not run; inputs have no
            results yet, so its key is not known; the result is missing, damaged, or of another kind of task; or
            another process computes the task's result.
    """
    task = item.task
    if not because.strip():
        raise _refuse(task, "no reason is given", 'say why the result is still valid: --because "…"')
    if task.kind == "report":
        raise _refuse(task, "a report shows the present results", "accept a result that the report shows")
    if item.verdict == "reuse":
        raise _refuse(task, "it has a result and would not run", "`reodsl plan` lists tasks that would run")
    if item.key is None:
        needs = ", ".join(item.needs)
        raise _refuse(task, f"its inputs have no results yet: {needs}", "first run or accept these tasks")
    manifests = _find_done(plan, store)
    key, new = keys.key(task, {role: manifests[source] for role, source in task.inputs.items()})
    old_key = _choose_result(plan.spec, store, task, key, result)
    manifest, old = store.get(old_key), store.material(old_key)
    damage = store.damage(old_key)
    if manifest is None or old is None or damage:
        fault = damage[0] if damage else "its files are incomplete"
        raise _refuse(task, f"the result {old_key[:8]} is damaged: {fault}", "run the task")
    if old["kind"] != task.kind:
        raise _refuse(
            task,
            f"the result {old_key[:8]} is of kind `{old['kind']}`, and the task is of kind `{task.kind}`",
            "name a result of the task's kind; `reodsl ls STUDY` lists them",
        )
    changes = _describe_changes(task, old, new)
    with store.lock(key) as is_locked:
        if not is_locked:
            raise _refuse(task, "another process computes its result", "wait for the process, or stop it")
        adopt(store, manifest, key, task.id, new, because.strip(), changes)
    return AcceptedResult(task.id, key, old_key, changes)


def _find_done(plan: Plan, store: Store) -> dict[str, Manifest]:
    """Return the stored results of the tasks that a plan reuses, by task id."""
    keys = {item.task.id: item.key for item in plan.items if item.verdict == "reuse" and item.key}
    return {task: manifest for task, key in keys.items() if (manifest := store.get(key)) is not None}


def _choose_result(spec: Spec, store: Store, task: Task, key: str, result: str | None) -> str:
    """Return the key of the existing result to accept for a task.

    Args:
        spec: The compiled spec.
        store: The store of the results.
        task: The task.
        key: The key that the task has now.
        result: The beginning of the result's key; None for the result in the last run of the study.

    Raises:
        Problem: E0956 if there is no such result, or if several keys begin so.
    """
    if result is None:
        last = previous(spec.study.name, task.id, records(store))
        if last is None or last == key or not store.path(last).exists():
            reason = "it has no earlier result" if last is None else "its earlier result was removed"
            reason = "nothing that it depends on changed" if last == key else reason
            raise _refuse(
                task, reason, "run the task, or name a result: --result KEY (`reodsl ls STUDY` lists them)"
            )
        return last
    matching = [name for name in store if name.startswith(result)] if result else []
    if len(matching) != 1:
        reason = "several results begin" if matching else "no result begins"
        raise _refuse(task, f"{reason} with `{result}`", "`reodsl ls STUDY --json` lists complete keys")
    return matching[0]


def _describe_changes(task: Task, old: Mapping[str, Any], new: Mapping[str, Any]) -> tuple[str, ...]:
    """Return as text what changed between two materials of a task: its settings, then its inputs.

    Args:
        task: The task as it is now.
        old: The material of the existing result.
        new: The material that the task has now.
    """
    settings = tuple(words(change) for change in explain(task, old, new))
    inputs = tuple(f"{task.inputs.get(role, role)} changed" for role in list_changed_inputs(old, new))
    return (*settings, *inputs)


def _refuse(task: Task, reason: str, remedy: str) -> Problem:
    """Return error E0956: why no result can be accepted for a task, and what to do instead."""
    return problem("E0956", f"no result can be accepted for `{task.id}`: {reason}", help=remedy)
