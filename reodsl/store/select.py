"""Selection: from a name to a run, and from a selector such as `oracle+` to results of a run."""

from __future__ import annotations

import os
from fnmatch import fnmatchcase
from pathlib import Path

from reodsl.diagnostics import Problem, listed, problem
from reodsl.graph.identity import parse_role
from reodsl.graph.lower import lower
from reodsl.graph.task import Graph
from reodsl.store.runs import Record, spec_of
from reodsl.store.store import Store

_SHOWN = 5


def pick(runs: tuple[Record, ...], name: str) -> Record:
    """Return the run of a name: a study, a spec's digest or a run's name by their beginnings, or a report's folder.

    Of several runs of a study, or with one folder, it is the latest. Raises E0954 if there is none, or if several
    runs' names or several specs' digests start so.
    """
    newest = tuple(reversed(runs))
    if not name:
        raise _explain_none("an empty name is not a run", newest)
    laid_out = [record for record in newest if _is_folder_of(record, name)]
    studies = [record for record in newest if record.study == name]
    named = [record for record in newest if record.name.startswith(name)]
    of_spec = [record for record in newest if record.spec.startswith(name)]
    if studies or laid_out:
        return (studies or laid_out)[0]
    exact = next((record for record in named if record.name == name), None)
    if exact is not None:
        return exact
    if len(named) + len({record.spec for record in of_spec}) > 1:
        several = list(dict.fromkeys(each.name for each in (*named, *of_spec)))
        raise problem(
            "E0954",
            f"{len(several)} runs are called `{name}…`",
            notes=(f"they are {listed(several, _SHOWN)}",),
            help=f"write one's whole name, such as the newest's: `{several[0]}`",
        )
    if named or of_spec:
        return (named or of_spec)[0]
    raise _explain_none(f"no run is called `{name}`", newest)


def _is_folder_of(record: Record, name: str) -> bool:
    """Return whether a name is the path of a run's report, or of its folder."""
    return record.report is not None and Path(os.path.abspath(name)) in (
        Path(record.report),
        Path(record.report).parent,
    )


def _explain_none(message: str, newest: tuple[Record, ...]) -> Problem:
    """Return the diagnostic of a name that is not a run's."""
    ran = ", ".join(dict.fromkeys(record.study for record in newest)) or "none yet"
    return problem("E0954", message, help=f"studies that ran: {ran}")


def select(store: Store, record: Record, selector: str | None) -> dict[str, str]:
    """Return the results of a run, as id to key, that a selector names.

    It is a pattern of ids, or of how their names begin (`reo_exp`, `reo_*.train`), or an arm; `+` before it adds
    all that those were made from, `+` after it all that was made from them, in the run's spec. Raises E0954 if none
    fits.
    """
    tasks = record.tasks
    if not selector:
        return tasks
    pattern = selector.strip("+")
    graph = _graph(store, record)
    chosen = {name for name in tasks if any(fnmatchcase(name, form) for form in (pattern, f"{pattern}.*"))}
    # What an arm shares with another one has that one's name.
    chosen = chosen or _select_arm_tasks(graph, pattern).intersection(tasks)
    if not chosen:
        raise problem("E0954", f"no result is called `{pattern}`", help=f"there is {', '.join(tasks)}")
    reads = {task.id: set(task.inputs.values()) for task in graph.tasks}
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


def _graph(store: Store, record: Record) -> Graph:
    """Return the tasks of a run's spec, each after its inputs; none if the spec is gone.

    Results alone are not enough: one that was made from another result with the same content names that one's key.
    """
    spec = spec_of(store, record)
    return lower(spec) if spec is not None else Graph(())


def _select_arm_tasks(graph: Graph, arm: str) -> set[str]:
    """Return the tasks that train and evaluate an arm, by the report's roles, which name arms (`evaluate:vanilla@1`)."""
    if "report" not in graph:
        return set()
    return {source for role, source in graph["report"].inputs.items() if parse_role(role).name == arm}
