"""Show the main table on a terminal: the page's numbers in its order."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from reodsl.ir import Spec
from reodsl.ir.study import Study
from reodsl.report import formats

if TYPE_CHECKING:
    import polars as pl
    from rich.table import Table


MEASURES = ("reg", "reg_plain", "accuracy", "length")
HEADS = {"reg": "REG", "reg_plain": "plain", "accuracy": "acc %", "length": "length"}
COLOURS = {"good": "green", "bad": "red", "": ""}


def report_summary(folder: Path, *, average_only: bool = False, width: int | None = None) -> Table:
    """Return the table of a report's folder (`tables/main.parquet`, `spec.reo.json`, the verdict), for rich to print.

    With a `width` in characters, intervals and then the last measures are left to the report until the rest fits.
    """
    import polars as pl
    from rich.console import Console

    from reodsl.report.verdict_words import said

    study = Spec.model_validate_json((folder / "spec.reo.json").read_text("utf-8")).study
    table = pl.read_parquet(folder / "tables" / "main.parquet", glob=False)
    most = len(study.measures)
    forms = [(True, most), *((False, number) for number in range(most, -1, -1))]
    for intervals, number in forms if width is not None else forms[:1]:
        out = summary_table(
            study,
            table,
            average_only=average_only,
            intervals=intervals,
            measures=number,
            verdict=said(folder),
        )
        if width is None or Console(width=10_000).measure(out).maximum <= width:
            break
    return out


def summary_table(
    study: Study,
    table: pl.DataFrame,
    *,
    average_only: bool = False,
    intervals: bool = True,
    measures: int | None = None,
    verdict: Sequence[str] = (),
) -> Table:
    """Return the `verdict`, then REG's difference from the baseline, REG against both frontiers, accuracy and length.

    `table` is `tables.main`. The arms that the frontier judges are bold. With one group of columns, each number has its
    interval beside it, or its spread over seeds where nothing is scored, unless `intervals` is false. Of the study's own
    measures the first `measures` are columns.
    """
    from rich.markup import escape
    from rich.table import Table
    from rich.text import Text

    from reodsl.report import notes
    from reodsl.report.material import framed, title
    from reodsl.report.results import Cell, cell, known_columns, places

    baseline = study.score.relative_to if study.score is not None else None
    shown = known_columns(table, (*MEASURES, *(each.name for each in study.measures[:measures])))
    compared = "reg" in shown and baseline is not None and "difference" in table.columns
    columns = ("difference", *shown) if compared else shown
    groups = places(table)[-1:] if average_only else places(table)
    around = intervals and len(groups) == 1
    seeds = int(table["seeds"].max() or 1) if table.height else 1  # type: ignore[arg-type]
    star = notes.star(study.score) if compared and study.score is not None else ""
    said = [notes.intervals(study, seeds) if around else star]
    if "reg_plain" in shown and notes.frontiers(study):
        said.append("REG is against the cross-fitted frontier; plain: against the paper's, which errs high.")
    said.append(notes.approximate(study))
    if left := study.measures[len(study.measures) if measures is None else measures :]:
        said.append(f"The report has {', '.join(each.name for each in left)} too.")
    heads = {name: notes.nearly(study) * name.startswith("reg") + head for name, head in HEADS.items()}
    heads["difference"] = f"REG − {escape(baseline or '')}"
    out = Table(
        box=None,
        pad_edge=False,
        padding=(0, 1),
        header_style="bold",
        title=Text("\n".join(verdict)) if verdict else None,
        title_style="",
        title_justify="left",
        caption=" ".join(line for line in said if line) or None,
        caption_justify="left",
    )
    out.add_column("arm", no_wrap=True)
    for place in groups:
        for i, column in enumerate(columns):
            above = "" if len(groups) == 1 else f"{escape(title(place)) if i == 0 else ''}\n"
            out.add_column(above + escape(heads.get(column, column)), justify="right", no_wrap=True)

    def text(one: Cell) -> Text:
        if one.column == "difference" and one.text == formats.NONE:
            return Text("")
        style = COLOURS[one.tone] if one.column == "difference" else ""
        beside = f" {one.around}" if around and one.around and one.column != "length" else ""
        return Text.assemble((one.text, style), (beside, "dim"))

    judged = framed(study)
    rows = {(row["arm"], row["benchmark"]): row for row in table.to_dicts()}
    for arm in table["arm"].unique(maintain_order=True):
        cells = [
            cell(rows.get((arm, place), {}), place, column, roomy=True)
            for place in groups
            for column in columns
        ]
        out.add_row(Text(arm, style="bold" if judged and arm not in judged else ""), *map(text, cells))
    return out
