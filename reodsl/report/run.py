"""The runner of task kind `report`: a spec and finished artifacts in; page, tables, charts and resolved spec out."""

from __future__ import annotations

from reodsl.graph.job import Job, Progress
from reodsl.ir import Spec
from reodsl.report import export, provenance
from reodsl.report.figures import Gallery
from reodsl.report.material import read
from reodsl.report.page import page


def report(job: Job) -> None:
    """Writes `report.html`, `tables/`, `charts/` and `spec.reo.json` into `job.out` (see docs/ARTIFACTS.md)."""
    payload = job.task.payload
    material = read(Spec.model_validate(payload["spec"]), job.inputs, payload.get("accepted", ()))
    gallery = Gallery()
    html = page(material, gallery, provenance.versions())
    job.progress(Progress(1, 3))
    export.write_tables(job.out / "tables", export.report_tables(material))
    export.write_spec(job.out / "spec.reo.json", material)
    job.progress(Progress(2, 3))
    export.write_charts(job.out / "charts", gallery)
    (job.out / "report.html").write_text(html, encoding="utf-8")
    job.progress(Progress(3, 3))
