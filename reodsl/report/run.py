"""The runner of `report` tasks: page, tables, charts and resolved spec."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from reodsl.graph.job import Job, Progress
from reodsl.ir import Spec
from reodsl.report import export, provenance
from reodsl.report.figures import Gallery
from reodsl.report.material import Material, read
from reodsl.report.page import page


def report(job: Job) -> None:
    """Writes `report.html`, `tables/`, `charts/` and `spec.reo.json` into `job.out` (see docs/ARTIFACTS.md)."""
    payload = job.task.payload
    material = read(Spec.model_validate(payload["spec"]), job.inputs, payload.get("accepted", ()))
    write_report(material, job.out, job.progress)


def write_report(
    material: Material, out: Path, progress: Callable[[Progress], None] = lambda progress: None
) -> None:
    """The files of a report, in a folder that is there."""
    gallery = Gallery()
    html = page(material, gallery, provenance.versions())
    progress(Progress(1, 3))
    export.write_tables(out / "tables", export.report_tables(material))
    export.write_spec(out / "spec.reo.json", material)
    progress(Progress(2, 3))
    export.write_charts(out / "charts", gallery)
    (out / "report.html").write_text(html, encoding="utf-8")
    progress(Progress(3, 3))
