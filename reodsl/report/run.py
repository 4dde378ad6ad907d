"""The runner of `report` tasks: page, tables and resolved spec."""

from __future__ import annotations

from pathlib import Path

from reodsl.graph.job import Job, Progress
from reodsl.ir import Spec
from reodsl.numbers.verdict import VERDICT
from reodsl.report import drawing, export, notes, provenance
from reodsl.report.figures import Gallery
from reodsl.report.material import Material, read
from reodsl.report.page import page


def report(job: Job) -> None:
    """Write the page, its tables, resolved spec and verdict into `job.out` (see docs/STORE.md)."""
    # V8 takes as much memory as a material of hundreds of arms, so it works before there is one.
    drawing.vega_script()
    payload = job.task.payload
    material = read(Spec.model_validate(payload["spec"]), job.inputs, payload.get("accepted", ()))
    write_report(material, job.out)
    job.progress(Progress(1, 1))


def write_report(material: Material, out: Path, pictures: bool = False) -> None:
    """Write the files of a report into a folder that exists; with `pictures`, each chart as PNG and SVG too."""
    gallery = Gallery()
    export.write_spec(out / "spec.reo.json", material)
    export.write_verdict(out / VERDICT, material.verdict, notes.nearly(material.study))
    (out / "report.html").write_text(page(material, gallery, provenance.versions()), encoding="utf-8")
    export.write_tables(out / "tables", export.report_tables(material))
    if pictures:
        export.write_charts(out / "charts", gallery)
