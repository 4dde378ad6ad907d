"""Write files beside the page: frames as tables, charts as pictures, the resolved spec."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import polars as pl

from reodsl.ir.base import dumped
from reodsl.numbers.verdict import StudyVerdict
from reodsl.report import gap, schedules, tables, theme, verdict_words
from reodsl.report.drawing import pictures
from reodsl.report.figures import Gallery
from reodsl.report.material import TIMING_COLUMNS, Material
from reodsl.report.study_tables import balanced_table, compare_numbers
from reodsl.report.vega import map_parts, shorten_names


def report_tables(material: Material) -> dict[str, pl.DataFrame]:
    """Return the tables of a report by file name, without empty ones."""
    frames = {
        "main": tables.main(material),
        "per_seed": tables.per_seed(material),
        "curves": material.curves.rename({"name": "arm"}),
        "frontier": tables.frontier(material),
        "frontier_shares": tables.winning_shares(material),
        "gap": gap.gap_rows(material),
        "training": material.metrics.select(pl.exclude(f"^{TIMING_COLUMNS}$")),
        "selections": material.selections,
        "budgets": schedules.table(material),
        **_make_study_tables(material),
    }
    return {name: frame for name, frame in frames.items() if frame.height}


def _make_study_tables(material: Material) -> dict[str, pl.DataFrame]:
    """Return the frames of declared tables: `balanced` subsets, and comparisons with `published` numbers.

    Returns:
        A frame for each of the two names that any table of the study uses, with the table's name as a column.
    """
    main = tables.main(material)
    subsets: list[pl.DataFrame] = []
    comparisons: list[pl.DataFrame] = []
    for layout in material.study.tables:
        table = main
        if layout.subset == "balanced":
            table = balanced_table(material, layout.rows).table
            subsets.append(table.select(pl.lit(layout.name).alias("table"), pl.all().exclude("benchmark")))
        comparisons.append(compare_numbers(layout, table))
    return {
        name: pl.concat(frames, how="vertical_relaxed")
        for name, frames in (("balanced", subsets), ("published", comparisons))
        if frames
    }


def write_tables(folder: Path, frames: dict[str, pl.DataFrame]) -> None:
    """Write `<name>.csv` and `<name>.parquet` for each frame."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, frame in frames.items():
        frame.write_parquet(folder / f"{name}.parquet")
        _make_csv_safe(frame).write_csv(folder / f"{name}.csv")


COLUMN = 320
"""Width of a chart for a paper in pixels: a column of 3.33 inches with 96 pixels per inch."""
_LEGEND: dict[str, Any] = {"orient": "bottom", "columns": 2, "labelLimit": 125}
_ROW, _EDGE = 16, 24
"""Heights in pixels: of a legend's row, and of the margin around a legend."""


def write_charts(folder: Path, gallery: Gallery, arms: Sequence[str]) -> None:
    """Write `<name>.svg` and `<name>.pdf` for each chart, as wide as a paper's column, on white, with a legend.

    Args:
        folder: folder that the files are written into.
        gallery: the charts.
        arms: names of the arms, whose number sets the height of the legends.
    """
    folder.mkdir(parents=True, exist_ok=True)
    config = {**theme.config(), "background": "white", "padding": 2}
    config["axis"] = {**config["axis"], "titleLimit": COLUMN - 70}
    config["legend"] = {**config["legend"], **_LEGEND}
    legend_height = _EDGE + _ROW * math.ceil(len(arms) / _LEGEND["columns"])
    charts = []
    for spec in gallery.specs.values():
        height = {"height": spec["height"] + legend_height} if isinstance(spec.get("height"), int) else {}
        sizing = {"width": COLUMN, "autosize": {"type": "fit", "contains": "padding"}, "config": config}
        charts.append(map_parts(shorten_names(spec, arms), _lay_legend) | height | sizing)
    for name, picture in zip(gallery.specs, pictures(charts, "pdf"), strict=True):
        (folder / f"{name}.svg").write_bytes(picture.svg)
        (folder / f"{name}.pdf").write_bytes(picture.image)


def _lay_legend(node: Any) -> Any:
    """Return a node of a chart, with a legend of several columns (as of arms) moved below the chart in two columns."""
    legend = node.get("legend") if isinstance(node, dict) else None
    return node | {"legend": legend | _LEGEND} if isinstance(legend, dict) and "columns" in legend else node


def write_verdict(
    path: Path, verdict: StudyVerdict | None, mark: str = "", settling: Sequence[str] = ()
) -> None:
    """Write the verdict and its sentences as JSON, in place of an earlier file; `null` without a verdict.

    Args:
        path: the file.
        verdict: the study's verdict.
        mark: text before the first sentence, which `ls` and `view` show, such as the mark of an approximate REG.
        settling: lines of `verdict_words.settle`.
    """
    record = verdict_words.outcome(verdict, settling)
    if record is not None and record["sentences"]:
        record["sentences"][0] = mark + record["sentences"][0]
    path.write_text(json.dumps(record, indent=1, allow_nan=False) + "\n", encoding="utf-8")


def write_spec(path: Path, material: Material) -> None:
    """Write the resolved spec as JSON, with the fields that affect only presentation."""
    path.write_text(json.dumps(dumped(material.spec), indent=1) + "\n", encoding="utf-8")


def _make_csv_safe(frame: pl.DataFrame) -> pl.DataFrame:
    """Return a frame that is safe as CSV in a spreadsheet.

    Nested columns are dropped, and a text that a spreadsheet would read as a formula gets an apostrophe in front.
    """
    flat = frame.select(pl.exclude(pl.List, pl.Struct))
    texts = [name for name, kind in flat.schema.items() if kind == pl.String]
    # Spreadsheets ignore leading spaces, and some read the full-width forms of `= + - @` too.
    formula = r"^\s*[=+\-@\uff1d\uff0b\uff0d\uff20]|^[\t\r\n]"
    return flat.with_columns(
        pl.when(pl.col(name).str.contains(formula))
        .then("'" + pl.col(name))
        .otherwise(pl.col(name))
        .alias(name)
        for name in texts
    )
