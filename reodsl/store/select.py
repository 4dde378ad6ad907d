"""Selection: from a name to a run, and from a selector such as `oracle+` to results of a run."""

from __future__ import annotations

from fnmatch import fnmatchcase

from reodsl.diagnostics import problem
from reodsl.graph.lower import lower
from reodsl.store.runs import Record, spec_of
from reodsl.store.store import Store


def pick(found: tuple[Record, ...], name: str) -> Record:
    """The latest run of a study, or the run whose name or spec digest starts so. Raises E0954."""
    for record in reversed(found):
        if record.study == name or record.name.startswith(name) or record.spec.startswith(name):
            return record
    studies = ", ".join(dict.fromkeys(record.study for record in reversed(found))) or "none yet"
    raise problem("E0954", f"no run is called `{name}`", help=f"studies that ran: {studies}")


def select(store: Store, record: Record, selector: str | None) -> dict[str, str]:
    """The results of a run, as id to key, that a selector names.

    A pattern of ids (`reo_exp.*`); `+` before it adds all that those were made from, `+` after it all that was made
    from them, as the run's spec has it. Raises E0954 when no id fits.
    """
    tasks = record.tasks
    if not selector:
        return tasks
    pattern = selector.strip("+")
    chosen = {name for name in tasks if fnmatchcase(name, pattern)}
    if not chosen:
        raise problem("E0954", f"no result is called `{pattern}`", help=f"there is {', '.join(tasks)}")
    reads = _reads(store, record)
    up, down = set(chosen), set(chosen)
    if selector.startswith("+"):
        for name in reversed(reads):
            if name in up:
                up |= reads[name]
    if selector.endswith("+"):
        for name, sources in reads.items():
            if sources & down:
                down.add(name)
    return {name: key for name, key in tasks.items() if name in up | down}


def _reads(store: Store, record: Record) -> dict[str, set[str]]:
    """For every task of a run, each after what it reads, the tasks that it reads.

    Its results alone do not say: one that was made from another result with the same content names that one's key.
    """
    spec = spec_of(store, record)
    return {task.id: set(task.inputs.values()) for task in lower(spec).tasks} if spec is not None else {}
