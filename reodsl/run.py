"""Run a spec that is ready: price it, check the machine, execute its tasks, lay out what came of them.

The command line and the Python door both call `run`. They differ in how they show what goes on, and that is a `Listener`.
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
    """Whoever watches a run."""

    def check(self, findings: tuple[Diagnostic, ...]) -> None:
        """Show findings before anything starts; an error among them ends the run."""

    def allow(self, codes: Sequence[FunctionCode], is_allowed: bool) -> bool:
        """Name the code that a run may run if it `is_allowed`, else ask for leave, and return whether it may run."""

    def begin(self) -> None:
        """Everything is in order; nothing is written yet."""

    def hear(self, event: Event) -> None:
        """Hear of an event of a task."""

    def done(self, task_id: str, key: str) -> None:
        """Hear of a result, by its task and its key in the store."""

    def close(self) -> None:
        """End the display, however the tasks ended."""


@dataclass(frozen=True, slots=True)
class RunOutcome:
    """The outcome of a run: its results, its report's page or None, and checksums of Python that it was let run, by name."""

    results: RunResults
    page: Path | None
    python: Mapping[str, str]


def prices_of(ready: Ready) -> Prices:
    """Return the expected costs of a spec's tasks, from the store's past runs and the weights and files at hand."""
    history = read_history(ready.store, runs.records(ready.store), {task.id for task in ready.graph.tasks})
    history = replace(history, questions={**history.questions, **_questions_at_hand(ready)})
    sizes = sizes_at_hand(ready.spec, ready.keys.folder)
    return price(ready.graph, ready.spec, history, sizes, measure(ready.store.root).cores)


def _questions_at_hand(ready: Ready) -> Mapping[str, int]:
    """Return the number of questions in the spec's files here, by `data` task, if the runners can count them."""
    untold = [
        task
        for task in ready.graph.tasks
        if task.kind == "data" and questions_in(task.payload["data"]) is None
    ]
    try:
        count = load_registry().count_questions if untold else None
    except Problem:
        return {}
    return {} if count is None else count(untold, ready.keys.folder)


def run(ready: Ready, plan: Plan, machine: Machine, out: Path, listener: Listener) -> RunOutcome:
    """Do what `plan` says is not done, and lay out the results under `out`.

    The run is recorded in the store as finished, failed or interrupted. Raises `Problem` where the price passes the
    limit, the machine lacks something, or nothing can run at all; a task that fails is in the results.
    """
    registry = load_registry()
    prices = prices_of(ready)
    todo = tuple(item.task for item in plan.items if item.verdict != "reuse")
    mine: tuple[FunctionCode, ...] = ()
    destinations_: tuple[Destination, ...] = ()
    findings = refusals(prices, (*plan.now, *plan.later), ready.spec)
    if not findings and todo:
        codes, wrong = read_all((task.payload for task in todo), ready.keys.folder)
        mine = tuple(code for _, code in codes)
        destinations_ = destinations(task.payload for task in todo)
        machine = replace(machine, python=frozenset(code.checksum for code in mine))
        # Elsewhere the key has to be where the tasks are, which say it themselves.
        lacking = () if machine.address else keyless(destinations_)
        served = report_unapproved((), () if machine.allow_served else destinations_)
        findings = (*wrong, *served, *lacking)
        findings += registry.check(todo, ready.spec, ready.keys.folder, machine)
        # Leave is for what was shown: a file that was changed since then is asked about again.
        has_leave = machine.allow_python
        doubted = tuple(code for code in mine if (is_changed(code) if has_leave else not is_allowed(code)))
        lost = has_leave or any(finding.severity == "error" for finding in findings)
        if doubted and (lost or not listener.allow(doubted, False)):
            findings = (*report_unapproved(doubted), *findings)
        for code in doubted:
            note_shown(code)
    listener.check(findings)
    if any(finding.severity == "error" for finding in findings):
        raise Problem(*findings)
    require_place(out, ready.store)
    if mine and machine.allow_python:
        listener.allow(mine, True)
    for code in mine:
        allow(code)
        note_shown(code)
    for destination in destinations_:
        allow(destination)
    listener.begin()
    store = ready.store.open()
    python = {code.name: code.checksum for code in mine}
    record = runs.begin(store, ready.spec, plan.digest, python)
    writer = runs.Writer(store, record)
    writer.begin(len(ready.graph.tasks))
    status: runs.Status = "interrupted"

    def done(task_id: str, key: str) -> None:
        writer.add(task_id, key)
        listener.done(task_id, key)

    def hear(event: Event) -> None:
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
