"""Write a report: the runner of its tasks, and a report drawn again from results."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import polars as pl

from reodsl.diagnostics import Diagnostic, Problem, first_line, group, listed, problem, warning
from reodsl.graph.job import Job, Progress
from reodsl.graph.lower import lower
from reodsl.ir import Spec
from reodsl.numbers.verdict import VERDICT
from reodsl.report import card, export, notes, provenance
from reodsl.report.figures import Gallery
from reodsl.report.material import Material, read
from reodsl.report.notes import misfits
from reodsl.report.page import page
from reodsl.report.verdict_words import settle
from reodsl.store.layout import put_report
from reodsl.store.live import STEPS, read_steps
from reodsl.store.runs import RunRecord, alive, begun, events, require_spec
from reodsl.store.store import WEIGHTS, Store, add_acceptances


def report(job: Job) -> None:
    """Run a `report` task: write the page, its tables, the resolved spec, the verdict and model cards into `job.out`."""
    payload = job.task.payload
    material = read(Spec.model_validate(payload["spec"]), job.inputs, payload.get("accepted", ()))
    write_report(material, job.out)
    job.progress(Progress(1, 1))


def write_report(material: Material, out: Path, pictures: bool = False) -> None:
    """Write the files of a report into an existing folder.

    Args:
        material: results of the run.
        out: the folder.
        pictures: whether each chart is written as PDF and SVG too.
    """
    gallery = Gallery(pictured=True)
    export.write_spec(out / "spec.reo.json", material)
    settling = settle(material.spec, material.verdict)
    export.write_verdict(out / VERDICT, material.verdict, notes.nearly(material.study), settling)
    (out / "report.html").write_text(
        page(material, gallery, provenance.versions(), settling=settling), encoding="utf-8"
    )
    export.write_tables(out / "tables", export.report_tables(material))
    card.write_cards(out / "cards", material)
    if pictures:
        export.write_charts(out / "charts", gallery, material.arms)


_MOST_NAMED = 5
_UNREADABLE = (Problem, pl.exceptions.PolarsError, KeyError, ValueError, TypeError, OSError)
"""Errors that reading a damaged artifact, or an artifact of another version, may raise."""


@dataclass(frozen=True, slots=True)
class RedrawnReport:
    """The page of a report, and warnings about the results that the page leaves out."""

    page: Path
    findings: tuple[Diagnostic, ...]


@dataclass(frozen=True, slots=True)
class _RunResults:
    """The results of a run so far."""

    inputs: dict[str, Path]
    """Folders of results by their role in the report, such as `train:ARM`."""
    missing: tuple[str, ...]
    """Tasks without a result."""
    under_way: dict[str, int]
    """Steps of trainings under way, by task."""
    failed: dict[str, list[str]]
    """Tasks of the run that failed, by reason."""

    def say_failed(self) -> list[str]:
        """Return a line for each reason of failure, with the names of the tasks that failed for it."""
        return [f"failed: {listed(names, _MOST_NAMED)}: {why}" for why, names in self.failed.items()]


def redraw(store: Store, record: RunRecord, out: Path, pictures: bool = False) -> RedrawnReport:
    """Draw the report of a run from the results so far, and replace the files of an earlier report.

    Missing or unreadable results are left out with a warning (W0805), and trainings under way are drawn up to their
    last step.

    Args:
        store: store of the results.
        record: the run.
        out: folder of the report.
        pictures: whether each chart is written as PDF and SVG too.

    Raises:
        Problem: E0957 without any result, E0967 if the run's spec was not kept.
    """
    material, findings = material_of(store, record)
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        write_report(material, folder, pictures)
        put_report(store, folder, out)
    return RedrawnReport(out / "report.html", findings)


def material_of(store: Store, record: RunRecord) -> tuple[Material, tuple[Diagnostic, ...]]:
    """Read the results of a run that exist so far, and warn of results that are missing or unreadable.

    The page lists these warnings as sentences (`unfinished`). A further warning (W0616) says if REG is approximate.

    Returns:
        The material, and a warning for each kind of omission.

    Raises:
        Problem: E0957 without any result, E0967 if the run's spec was not kept.
    """
    graph = lower(require_spec(store, record))
    task = graph["report"]
    gathered = _gather(store, record, task.inputs)
    if not gathered.inputs:
        raise problem(
            "E0957",
            f"none of the {len(dict.fromkeys(task.inputs.values()))} results that the report needs exists yet",
            where=record.name,
            notes=gathered.say_failed(),
            help="look again once something is trained or evaluated: reodsl watch; or finish the run: "
            f"reodsl run {record.path}",
        )
    manifests = {
        name: manifest for name, key in record.tasks.items() if (manifest := store.get(key)) is not None
    }
    payload = add_acceptances(task, manifests).payload
    spec = Spec.model_validate(payload["spec"])
    material, unread = _read(spec, gathered.inputs, payload.get("accepted", ()))
    total = len(dict.fromkeys(task.inputs.values()))
    unread_tasks = {task.inputs[role]: why for role, why in unread.items()}
    going = alive(store, record)
    findings = _findings(record, gathered, unread_tasks, total, going)
    # A record that says "running" without a process is of a run that was interrupted.
    status = "interrupted" if record.status == "running" and not going else record.status
    lines = [f"state of the run: {status}"] if findings else []
    lines += (line for finding in findings for line in (finding.message, *finding.notes))
    sentences = tuple(f"{line[0].upper()}{line[1:]}." for line in lines)
    if reasons := misfits(spec.study):
        words = "REG is approximate: the frontier is not of these arms"
        help = "read the differences between its arms, which no frontier changes"
        findings += (warning("W0616", words, where=record.name, notes=list(reasons), help=help),)
    return replace(material, unfinished=sentences), findings


def _gather(store: Store, record: RunRecord, roles: Mapping[str, str]) -> _RunResults:
    """Find the results of a run so far, with trainings under way in their working folders.

    A result counts as missing if a file other than its weights is damaged.

    Args:
        store: store of the results.
        record: the run.
        roles: name of the task for each role of the report.
    """
    started = begun(store, record)
    failed = group(
        (str(event.get("said", "")), event["task"])
        for event in events(store, record)
        if event["kind"] == "failed" and event["task"] not in record.tasks
    )
    inputs: dict[str, Path] = {}
    missing: dict[str, None] = {}
    under_way: dict[str, int] = {}
    for role, name in roles.items():
        key = record.tasks.get(name)
        # A report reads no weights, so weights may be damaged.
        if key is not None and not store.damage(key, WEIGHTS):
            inputs[role] = store.path(key)
            continue
        missing[name] = None
        work = store.root / "work" / started.get(name, "none")
        if role.startswith("train:") and (work / STEPS).is_file():
            steps = read_steps(work)
            if steps:
                inputs[role] = work
                under_way[name] = int(steps[-1]["step"])
    return _RunResults(inputs, tuple(missing), under_way, failed)


def _read(
    spec: Spec, inputs: Mapping[str, Path], accepted: Sequence[Mapping[str, Any]]
) -> tuple[Material, dict[str, str]]:
    """Return the material of readable results, and by role the reason why a result cannot be read.

    If reading all results at once fails, each result is read alone to find the unreadable ones.

    Args:
        spec: the spec that ran.
        inputs: folders of results, by role.
        accepted: results that a person accepted after a change.
    """
    try:
        return read(spec, inputs, accepted), {}
    except _UNREADABLE:
        unread: dict[str, str] = {}
        for role, folder in inputs.items():
            try:
                read(spec, {role: folder})
            except _UNREADABLE as caught:
                unread[role] = (
                    caught.diagnostics[0].message if isinstance(caught, Problem) else first_line(caught)
                )
        if not unread:
            raise
        return read(spec, {role: f for role, f in inputs.items() if role not in unread}, accepted), unread


def _findings(
    record: RunRecord, gathered: _RunResults, unread: Mapping[str, str], total: int, going: bool
) -> tuple[Diagnostic, ...]:
    """Return the warnings (W0805) on missing and unreadable results: one on all missing, one on each unreadable.

    Args:
        record: the run.
        gathered: results of the run so far.
        unread: reason for each task whose result cannot be read.
        total: number of results that the whole report has.
        going: whether the run is still under way.
    """
    steps = [f"{name} (step {step})" for name, step in gathered.under_way.items()]
    notes = [
        f"left out: {listed(gathered.missing, _MOST_NAMED)}",
        *(f"failed: {listed(names, _MOST_NAMED)}: {why}" for why, names in gathered.failed.items()),
        *([f"drawn up to the last step so far: {listed(steps, _MOST_NAMED)}"] if steps else []),
    ]
    left_out = warning(
        "W0805",
        f"the report leaves out {len(gathered.missing)} of {total} results, "
        + ("not finished yet" if going else "missing or damaged"),
        where=record.name,
        notes=notes,
        help="the run continues and draws the whole report at its end"
        if going
        else f"finish the run, which does only what is missing: reodsl run {record.path}",
    )
    unreadable = (
        warning(
            "W0805",
            f"the report leaves out a result that cannot be read: {why}",
            where=name,
            help=f"compute it again: reodsl run {record.path}",
        )
        for name, why in unread.items()
    )
    return (*([left_out] if gathered.missing else []), *unreadable)
