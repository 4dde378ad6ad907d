"""The runner of `report` tasks: page, tables, charts and resolved spec."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from reodsl.graph.job import Job, Progress
from reodsl.ir import Spec
from reodsl.numbers.verdict_file import VERDICT
from reodsl.report import drawing, export, notes, provenance
from reodsl.report.figures import Gallery
from reodsl.report.material import Material, read
from reodsl.report.page import page


def report(job: Job) -> None:
    """Writes the page, its tables, charts, resolved spec and verdict into `job.out` (see docs/ARTIFACTS.md)."""
    # V8 takes as much memory as a material of hundreds of arms, so it works before there is one and after it is gone.
    drawing.vega_script()
    gallery = _without_charts(_material(job), job.out, job.progress)
    export.write_charts(job.out / "charts", gallery)
    job.progress(Progress(3, 3))


def write_report(material: Material, out: Path) -> None:
    """The files of a report, in a folder that is there."""
    export.write_charts(out / "charts", _without_charts(material, out, lambda progress: None))


def _material(job: Job) -> Material:
    payload = job.task.payload
    return read(Spec.model_validate(payload["spec"]), job.inputs, payload.get("accepted", ()))


def _without_charts(material: Material, out: Path, progress: Callable[[Progress], None]) -> Gallery:
    """The files of a report but its charts as files, which are given."""
    gallery = Gallery()
    export.write_spec(out / "spec.reo.json", material)
    export.write_verdict(out / VERDICT, material.verdict, notes.nearly(material.study))
    (out / "report.html").write_text(page(material, gallery, provenance.versions()), encoding="utf-8")
    progress(Progress(1, 3))
    export.write_tables(out / "tables", export.report_tables(material))
    progress(Progress(2, 3))
    return gallery
