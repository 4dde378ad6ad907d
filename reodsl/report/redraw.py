"""Drawing a report again: a run's record and its store in; the report's files in a folder out, with nothing run."""

from __future__ import annotations

import tempfile
from pathlib import Path

from reodsl.diagnostics import problem
from reodsl.graph.job import Job
from reodsl.graph.lower import lower
from reodsl.report.run import report
from reodsl.store.accept import telling
from reodsl.store.layout import put_report
from reodsl.store.runs import Record, kept_spec
from reodsl.store.store import Store


def redraw(store: Store, record: Record, out: Path) -> Path:
    """Draws the report of a run into `out`, each file replaced whole; the page.

    Raises E0957 where results that it shows are not there, and E0968 where the run's spec was not kept.
    """
    graph = lower(kept_spec(store, record))
    task = graph["report"]
    wanted = dict.fromkeys(task.inputs.values())
    lost = [name for name in wanted if name not in record.tasks or store.get(record.tasks[name]) is None]
    if lost:
        named = ", ".join(lost[:5]) + (f" and {len(lost) - 5} more" if len(lost) > 5 else "")
        raise problem(
            "E0957",
            f"{len(lost)} of the {len(wanted)} results that the report shows are not there",
            where=record.name,
            notes=(f"missing or damaged: {named}",),
            help=f"finish the run, which does only what is missing: reodsl run {record.path}",
        )
    done = {name: found for name, key in record.tasks.items() if (found := store.get(key)) is not None}
    inputs = {role: store.path(record.tasks[source]) for role, source in task.inputs.items()}
    with tempfile.TemporaryDirectory() as made:
        drawn = Path(made)
        report(Job(telling(task, done), inputs, drawn, drawn, drawn, lambda progress: None))
        put_report(store, drawn, out)
    return out / "report.html"
