"""Acceptance in a plan: which result may stand for a task whose material changed, and what a report tells of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from reodsl.diagnostics import Problem, problem
from reodsl.graph.task import Task
from reodsl.ir import Spec
from reodsl.plan.changes import explain, list_changed_inputs, words
from reodsl.plan.keys import Keys
from reodsl.plan.places import Places
from reodsl.plan.verdict import Item, Plan
from reodsl.store.accept import adopt
from reodsl.store.manifest import Manifest
from reodsl.store.runs import previous, records
from reodsl.store.store import Store


@dataclass(frozen=True, slots=True)
class Accepted:
    """Outcome of an acceptance: the result, the task's new key, and in words what had changed."""

    task: str
    key: str
    result: str
    changes: tuple[str, ...]


def accept(plan: Plan, store: Store, keys: Keys, item: Item, because: str, result: str | None) -> Accepted:
    """Accept an existing result for a task: its last one, or the one whose key begins with `result`.

    Raises E0956 if that makes no sense: nothing would run, the key is not known yet, the result is missing or
    damaged or of another kind of task, another process is making it, or there is no reason.
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
    done = _find_done(plan, store)
    key, new = keys.key(task, {role: done[source] for role, source in task.inputs.items()})
    chosen = _choose_result(plan.spec, store, task, key, result)
    manifest, old = store.get(chosen), store.material(chosen)
    damage = store.damage(chosen)
    if manifest is None or old is None or damage:
        what = damage[0] if damage else "its files are not whole"
        raise _refuse(task, f"the result {chosen[:8]} is damaged: {what}", "run the task")
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
    return Accepted(task.id, key, chosen, changes)


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
    in_settings = tuple(words(change) for change in explain(task, old, new, Places(spec)))
    read = tuple(f"{task.inputs.get(role, role)} changed" for role in list_changed_inputs(old, new))
    return (*in_settings, *read)


def _refuse(task: Task, why: str, remedy: str) -> Problem:
    return problem("E0956", f"no result can be accepted for `{task.id}`: {why}", help=remedy)
