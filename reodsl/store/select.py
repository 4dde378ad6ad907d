"""Selection: from a name to a run, and from a selector such as `oracle+` to results of a run."""

from __future__ import annotations

from collections.abc import Iterable
from fnmatch import fnmatchcase

from reodsl.diagnostics import problem
from reodsl.store.runs import Record
from reodsl.store.store import Store


def pick(found: tuple[Record, ...], name: str) -> Record:
    """The latest run of a study, or the run whose name or spec digest starts so. Raises E0954."""
    for record in reversed(found):
        if record.study == name or record.name.startswith(name) or record.spec.startswith(name):
            return record
    studies = ", ".join(dict.fromkeys(record.study for record in reversed(found))) or "none yet"
    raise problem("E0954", f"no run is called `{name}`", help=f"studies that ran: {studies}")


def select(store: Store, tasks: dict[str, str], selector: str | None) -> dict[str, str]:
    """The tasks, as id to key, that a selector names.

    A pattern of ids (`reo_exp.*`); `+` before it adds all that those were made from, `+` after it all that was made
    from them. Raises E0954 when no id fits.
    """
    if not selector:
        return tasks
    pattern = selector.strip("+")
    chosen = {name for name in tasks if fnmatchcase(name, pattern)}
    if not chosen:
        raise problem("E0954", f"no result is called `{pattern}`", help=f"there is {', '.join(tasks)}")
    reads = {name: _inputs(store, key) for name, key in tasks.items()}
    names = {key: name for name, key in tasks.items()}
    up, down = set(chosen), set(chosen)
    if selector.startswith("+"):
        for name in reversed(list(_ordered(tasks, reads, names))):
            if name in up:
                up.update(names[key] for key in reads[name] if key in names)
    if selector.endswith("+"):
        for name in _ordered(tasks, reads, names):
            if any(names.get(key) in down for key in reads[name]):
                down.add(name)
    return {name: key for name, key in tasks.items() if name in up | down}


def _ordered(tasks: dict[str, str], reads: dict[str, set[str]], names: dict[str, str]) -> Iterable[str]:
    """Task ids, each after what it reads."""
    seen: dict[str, None] = {}
    stack = [(name, False) for name in reversed(tasks)]
    while stack:
        name, ready = stack.pop()
        if name in seen:
            continue
        if ready:
            seen[name] = None
            continue
        stack.append((name, True))
        stack.extend(
            (names[key], False) for key in reads[name] if names.get(key) not in seen and key in names
        )
    return seen


def _inputs(store: Store, key: str) -> set[str]:
    manifest = store.get(key)
    return set(manifest.made.get("inputs", {}).values()) if manifest else set()
