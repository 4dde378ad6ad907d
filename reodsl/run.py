"""Run a compiled spec: price it, check the machine, execute its tasks, and write the report and its tables.

The command line and the Python interface (`reodsl/door.py`) call `run`, each with a `Listener` of its own that shows the run
to the user.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol

from reodsl.diagnostics import Diagnostic, Problem
from reodsl.graph.job import Event
from reodsl.plan.registry import Execution, Machine, RunResults, load_registry
from reodsl.plan.verdict import Plan, Ready
from reodsl.price import Prices, price, read_history, sizes_at_hand
from reodsl.price.history import questions_in
from reodsl.price.machine import measure
from reodsl.price.prices import bound_elapsed
from reodsl.price.show import refusals
from reodsl.store import runs
from reodsl.store.consent import (
    Destination,
    FunctionCode,
    allow,
    destinations,
    is_allowed,
    is_changed,
    keyless,
    note_shown,
    read_all,
    report_unapproved,
)
from reodsl.store.layout import lay_out, require_place


class Listener(Protocol):
    """The interface of what shows a run to the user."""

    def check(self, findings: tuple[Diagnostic, ...]) -> None:
        """Show findings before anything starts; after an error the run does not start."""

    def allow(self, codes: Sequence[FunctionCode], is_allowed: bool) -> bool:
        """Show the user's Python code that a run needs, and ask for permission if there is none yet.

        Args:
            codes: The functions.
            is_allowed: True if the code was allowed on the command line; false to ask the user.

        Returns:
            Whether the code may run.
        """

    def begin(self) -> None:
        """Prepare for the run: all checks have passed, and nothing is written yet."""

    def hear(self, event: Event) -> None:
        """Show an event of a task."""

    def done(self, task_id: str, key: str) -> None:
        """Show that a task has a result.

        Args:
            task_id: The task.
            key: The key of its result in the store.
        """

    def close(self) -> None:
        """End the display after the tasks, whether they succeeded or not."""


@dataclass(frozen=True, slots=True)
class RunOutcome:
    """The outcome of a run: its results, its report's page or None, and the checksums of the user's code by name."""

    results: RunResults
    page: Path | None
    python: Mapping[str, str]


def prices_of(ready: Ready) -> Prices:
    """Return the expected costs of a spec's tasks, from past runs in the store and from the sizes of local files."""
    history = read_history(ready.store, runs.records(ready.store), {task.id for task in ready.graph.tasks})
    history = replace(history, questions={**history.questions, **_count_local_questions(ready)})
    sizes = sizes_at_hand(ready.spec, ready.keys.folder)
    return price(ready.graph, ready.spec, history, sizes, measure(ready.store.root).cores)


def _count_local_questions(ready: Ready) -> Mapping[str, int]:
    """Return the number of questions by the id of the task, for `data` tasks that read local files.

    Tasks whose settings give the number are left out. The result is empty if no runners are installed.
    """
    uncounted = [
        task
        for task in ready.graph.tasks
        if task.kind == "data" and questions_in(task.payload["data"]) is None
    ]
    try:
        count = load_registry().count_questions if uncounted else None
    except Problem:
        return {}
    return {} if count is None else count(uncounted, ready.keys.folder)


def expect_seconds(ready: Ready, plan: Plan, prices: Prices) -> float | None:
    """Return the seconds that the tasks of a plan take at least; None if a price is unknown."""
    elapsed = bound_elapsed(ready.graph, prices, (*plan.now, *plan.later))
    return elapsed.seconds if elapsed is not None else None


def run(ready: Ready, plan: Plan, machine: Machine, out: Path, listener: Listener) -> RunOutcome:
    """Run the tasks of a plan that have no result, and write the report under `out`.

    The run is recorded in the store as finished, failed or interrupted. Before it starts, the price, the
    machine, API keys and permissions are checked. The user's code runs if `machine.allow_python` is set and
    the code is still as it was shown, if it was allowed before, or if the user allows it now.

    Args:
        ready: The spec with its graph, store and keys.
        plan: The verdict on each task.
        machine: What the run may use of this machine, and what the user allows.
        out: The folder for report and tables.
        listener: Shows the run to the user and asks for permission.

    Returns:
        The results, the page of the report, and the checksums of the user's code. Failed tasks are in the
        results, and raise nothing.

    Raises:
        Problem: The price is over the limit, the machine lacks something, code was not allowed, or nothing
            can run.
    """
    registry = load_registry()
    prices = prices_of(ready)
    tasks = tuple(item.task for item in plan.items if item.verdict != "reuse")
    user_code: tuple[FunctionCode, ...] = ()
    destinations_: tuple[Destination, ...] = ()
    findings = refusals(prices, (*plan.now, *plan.later), ready.spec)
    if not findings and tasks:
        codes, unreadable = read_all((task.payload for task in tasks), ready.keys.folder)
        user_code = tuple(code for _, code in codes)
        destinations_ = destinations(task.payload for task in tasks)
        machine = replace(machine, python=frozenset(code.checksum for code in user_code))
        # On a cluster the API keys must be on its nodes, where the tasks check them.
        missing_keys = () if machine.address else keyless(destinations_)
        unapproved_servers = report_unapproved((), () if machine.allow_served else destinations_)
        findings = (*unreadable, *unapproved_servers, *missing_keys)
        findings += registry.check(tasks, ready.spec, ready.keys.folder, machine)
        # Permission is for the code that was shown: changed code needs to be allowed again.
        has_leave = machine.allow_python
        unapproved = tuple(
            code for code in user_code if (is_changed(code) if has_leave else not is_allowed(code))
        )
        is_refused = has_leave or any(finding.severity == "error" for finding in findings)
        if unapproved and (is_refused or not listener.allow(unapproved, False)):
            findings = (*report_unapproved(unapproved), *findings)
        for code in unapproved:
            note_shown(code)
    listener.check(findings)
    if any(finding.severity == "error" for finding in findings):
        raise Problem(*findings)
    require_place(out, ready.store)
    if user_code and machine.allow_python:
        listener.allow(user_code, True)
    for code in user_code:
        allow(code)
        note_shown(code)
    for destination in destinations_:
        allow(destination)
    listener.begin()
    store = ready.store.open()
    python = {code.name: code.checksum for code in user_code}
    record = runs.begin(store, ready.spec, plan.digest, python)
    writer = runs.Writer(store, record)
    writer.begin(len(ready.graph.tasks), expect_seconds(ready, plan, prices))
    status: runs.Status = "interrupted"

    def done(task_id: str, key: str) -> None:
        """Record a result and show it."""
        writer.add(task_id, key)
        listener.done(task_id, key)

    def hear(event: Event) -> None:
        """Record an event of a task and show it."""
        writer.note(event)
        listener.hear(event)

    try:
        try:
            results = registry.execute(
                Execution(
                    graph=ready.graph,
                    store=store,
                    keys=ready.keys,
                    runners=registry.runners,
                    machine=machine,
                    emit=hear,
                    done=done,
                    seconds=prices.expected,
                )
            )
        finally:
            listener.close()
        page = lay_out(ready.graph, results.keys, store, out)
        record.report = str(page.resolve()) if page else None
        status = "failed" if results.failed else "finished"
    except Problem:
        status = "failed"
        raise
    finally:
        runs.end(store, record, status)
    return RunOutcome(results, page, python)
