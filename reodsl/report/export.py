"""Write files beside the page: frames as tables, charts as pictures, the resolved spec."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import polars as pl

from reodsl.ir.base import dumped
from reodsl.numbers.verdict import StudyVerdict
from reodsl.report import gap, schedules, tables, theme, verdict_words
from reodsl.report.drawing import pictures
from reodsl.report.figures import Gallery
from reodsl.report.material import TIMED, Material
from reodsl.report.study_tables import balanced_table, compare_numbers
from reodsl.report.vega import map_parts


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
        "budgets": schedules.table(material),
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
        charts.append(map_parts(spec, _lay_legend) | height | fit)
    for name, picture in zip(gallery.specs, pictures(charts, "pdf"), strict=True):
        (folder / f"{name}.svg").write_bytes(picture.svg)
        (folder / f"{name}.pdf").write_bytes(picture.image)


def _lay_legend(part: Any) -> Any:
    """Return a part of a chart whose legend, if it is of arms, is below the chart in two columns."""
    legend = part.get("legend") if isinstance(part, dict) else None
    return part | {"legend": legend | _LEGEND} if isinstance(legend, dict) and "columns" in legend else part


def write_verdict(path: Path, verdict: StudyVerdict | None, mark: str = "") -> None:
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
