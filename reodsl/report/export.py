"""Write files beside the page: frames as tables, charts as pictures, the resolved spec, metrics as TensorBoard logs."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import polars as pl

from reodsl.diagnostics import problem
from reodsl.ir.base import dumped
from reodsl.numbers.verdict import Verdict
from reodsl.report import gap, schedules, tables, theme, verdict_words
from reodsl.report.drawing import pictures
from reodsl.report.figures import Gallery
from reodsl.report.material import TIMED, Material
from reodsl.report.study_tables import balanced_table, compare_numbers


def report_tables(material: Material) -> dict[str, pl.DataFrame]:
    """Every table of a report by file name; those with nothing in them are left out."""
    frames = {
        "main": tables.main(material),
        "per_seed": tables.per_seed(material),
        "curves": material.curves.rename({"name": "arm"}),
        "frontier": tables.frontier(material),
        "frontier_shares": tables.winning_shares(material),
        "gap": gap.gap_rows(material),
        "training": material.metrics.select(pl.exclude(f"^{TIMED}$")),
        "selections": material.selections,
        "budgets": schedules.table(schedules.list_schedules(material)),
        **_make_study_tables(material),
    }
    return {name: frame for name, frame in frames.items() if frame.height}


def _make_study_tables(material: Material) -> dict[str, pl.DataFrame]:
    """`balanced`: the study's tables on their balanced subsets; `published`: all that stands beside printed numbers."""
    main = tables.main(material)
    subsets: list[pl.DataFrame] = []
    beside: list[pl.DataFrame] = []
    for wanted in material.study.tables:
        table = main
        if wanted.subset == "balanced":
            table = balanced_table(material, wanted.rows).table
            subsets.append(table.select(pl.lit(wanted.name).alias("table"), pl.all().exclude("benchmark")))
        beside.append(compare_numbers(wanted, table))
    return {
        name: pl.concat(frames, how="vertical_relaxed")
        for name, frames in (("balanced", subsets), ("published", beside))
        if frames
    }


def write_tables(folder: Path, frames: dict[str, pl.DataFrame]) -> None:
    """`<name>.csv` and `<name>.parquet` for each frame."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, frame in frames.items():
        frame.write_parquet(folder / f"{name}.parquet")
        _plain(frame).write_csv(folder / f"{name}.csv")


COLUMN = 320
"""The width of a chart for a paper: 3.33 inches, a column's, in units of which an inch has 96."""
_LEGEND: dict[str, Any] = {"orient": "bottom", "columns": 2, "labelLimit": 110}
_ROW, _EDGE = 16, 24
"""The height of a legend's row, and of what is around a legend."""


def write_charts(folder: Path, gallery: Gallery, arms: int) -> None:
    """Write `<name>.svg` and `<name>.pdf` for each chart, as wide as a paper's column, light, with its own legend.

    Charts grow by the legend of so many `arms`.
    """
    folder.mkdir(parents=True, exist_ok=True)
    config = {**theme.config(), "background": "white", "padding": 2}
    config["axis"] = {**config["axis"], "titleLimit": COLUMN - 70}
    config["legend"] = {**config["legend"], **_LEGEND}
    below = _EDGE + _ROW * math.ceil(arms / _LEGEND["columns"])
    charts = []
    for spec in gallery.specs.values():
        height = {"height": spec["height"] + below} if isinstance(spec.get("height"), int) else {}
        fit = {"width": COLUMN, "autosize": {"type": "fit", "contains": "padding"}, "config": config}
        charts.append(_lay_legends(spec) | height | fit)
    for name, picture in zip(gallery.specs, pictures(charts, "pdf"), strict=True):
        (folder / f"{name}.svg").write_bytes(picture.svg)
        (folder / f"{name}.pdf").write_bytes(picture.image)


def _lay_legends(value: Any) -> Any:
    """Return a chart whose legends of arms are below it, in two columns."""
    if isinstance(value, list):
        return [_lay_legends(item) for item in value]
    if not isinstance(value, dict):
        return value
    return {
        key: {**item, **_LEGEND}
        if key == "legend" and isinstance(item, dict) and "columns" in item
        else item
        if key == "datasets"
        else _lay_legends(item)
        for key, item in value.items()
    }


def write_verdict(path: Path, verdict: Verdict | None, mark: str = "") -> None:
    """Write the verdict and its sentences as JSON, `null` if there is none, over an earlier report's.

    `mark` goes before the first sentence, which `ls` and `view` show: that of an approximate REG.
    """
    said = verdict_words.outcome(verdict)
    if said is not None and said["sentences"]:
        said["sentences"][0] = mark + said["sentences"][0]
    path.write_text(json.dumps(said, indent=1, allow_nan=False) + "\n", encoding="utf-8")


def write_spec(path: Path, material: Material) -> None:
    """Write the resolved spec as JSON, presentation fields included."""
    with path.open("w", encoding="utf-8") as file:
        json.dump(dumped(material.spec), file, indent=1)
        file.write("\n")


def _plain(frame: pl.DataFrame) -> pl.DataFrame:
    """Return a frame that is safe as CSV in a spreadsheet: no nested columns, no text that starts a formula."""
    flat = frame.select(pl.exclude(pl.List, pl.Struct))
    texts = [name for name, kind in flat.schema.items() if kind == pl.String]
    # Spreadsheets pass over spaces, and some take the wide forms of the signs for the signs.
    formula = r"^\s*[=+\-@\uff1d\uff0b\uff0d\uff20]|^[\t\r\n]"
    return flat.with_columns(
        pl.when(pl.col(name).str.contains(formula))
        .then("'" + pl.col(name))
        .otherwise(pl.col(name))
        .alias(name)
        for name in texts
    )


_OURS = ".reodsl"
"""The end of the names of our own logs."""


def write_tensorboard(run: Path) -> Path:
    """Write the metrics of every trained stage in a run's folder to `tensorboard/<arm>/<stage>` there.

    Needs the package `tensorboard`, and no torch. Raises E0982 where it is not installed, and E0118 where a link would lead
    out of the folder. Logs that an earlier call wrote are replaced, so that no step is there twice.
    """
    place = run / "tensorboard"
    for metrics in sorted(run.glob("arms/*/stages/*/metrics.parquet")):
        log = place / metrics.parents[2].name / metrics.parent.name
        if any(each.is_symlink() for each in (place, log.parent, log)):
            raise problem(
                "E0118",
                f"nothing can be written here: `{log.relative_to(run)}` leads through a link",
                where=str(run),
                help="remove the link, or name another place with --out",
            )
        if log.is_dir():
            for old in log.glob(f"events.out.tfevents.*{_OURS}"):
                old.unlink()
        write_scalars(pl.read_parquet(metrics, glob=False), log)
    return place


def write_scalars(table: pl.DataFrame, folder: Path) -> None:
    """Write a scalar for every number of a table of steps, under its column's name."""
    try:
        from tensorboard.compat.proto.event_pb2 import Event
        from tensorboard.compat.proto.summary_pb2 import Summary
        from tensorboard.summary.writer.event_file_writer import EventFileWriter
    except ImportError as missing:
        raise problem(
            "E0982",
            "the package `tensorboard` is not installed",
            help="pip install tensorboard, or leave out --tensorboard",
        ) from missing
    writer = EventFileWriter(str(folder), filename_suffix=_OURS)
    try:
        for row in table.iter_rows(named=True):
            values = [
                Summary.Value(tag=name, simple_value=float(value))
                for name, value in row.items()
                if name != "step" and isinstance(value, (int, float))
            ]
            writer.add_event(Event(step=int(row["step"]), summary=Summary(value=values)))
    finally:
        writer.close()
