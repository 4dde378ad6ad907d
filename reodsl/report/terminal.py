"""The main table for a terminal: the page's numbers in its order."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from reodsl.ir import Spec
from reodsl.ir.study import Study
from reodsl.report import formats

if TYPE_CHECKING:
    import polars as pl
    from rich.table import Table

MEASURES = {"reg": "REG", "reg_plain": "plain", "accuracy": "acc %", "length": "length"}


def report_summary(folder: Path, *, average_only: bool = False, intervals: bool = True) -> Table:
    """The table of a report's folder (its `tables/main.parquet`, `spec.reo.json` and verdict), to be printed by rich."""
    import polars as pl

    from reodsl.report.verdict_words import said

    spec = Spec.model_validate_json((folder / "spec.reo.json").read_text("utf-8"))
    return summary_table(
        spec.study,
        pl.read_parquet(folder / "tables" / "main.parquet", glob=False),
        average_only=average_only,
        intervals=intervals,
        verdict=said(folder),
    )


def summary_table(
    study: Study,
    table: pl.DataFrame,
    *,
    average_only: bool = False,
    intervals: bool = True,
    verdict: Sequence[str] = (),
) -> Table:
    """The `verdict`, then REG's difference from the baseline, REG against both frontiers, accuracy and length of each arm.

    `table` is `tables.main`. The arms that the frontier judges stand in bold; with one group of columns, the interval, or
    the spread over seeds where nothing is scored, stands beside each number, unless `intervals` is false.
    """
    from rich.markup import escape
    from rich.table import Table
    from rich.text import Text

    from reodsl.report import notes
    from reodsl.report.main_table import places, shown_columns
    from reodsl.report.material import framed, title

    baseline = study.score.relative_to if study.score is not None else None
    shown = shown_columns(table, ("reg", "reg_plain", "accuracy", "length"))
    groups = places(table)[-1:] if average_only else places(table)
    around = intervals and len(groups) == 1
    compared = "reg" in shown and baseline is not None and "difference" in table.columns
    seeds = int(table["seeds"].max() or 1) if table.height else 1  # type: ignore[arg-type]
    said = [notes.intervals(study, seeds) if around else _mark(study) if compared else ""]
    if "reg_plain" in shown and notes.frontiers(study):
        said.append("REG is against the cross-fitted frontier; plain: against the paper's, which errs high.")
    said.append(notes.approximate(study))
    near = notes.nearly(study)
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
        heads = [f"REG − {escape(baseline or '')}"] * compared + [
            near * column.startswith("reg") + MEASURES[column] for column in shown
        ]
        for i, head in enumerate(heads):
            above = "" if len(groups) == 1 else f"{escape(title(place)) if i == 0 else ''}\n"
            out.add_column(above + head, justify="right", no_wrap=True)
    judged = framed(study)
    cells = {(row["arm"], row["benchmark"]): row for row in table.to_dicts()}
    for arm in table["arm"].unique(maintain_order=True):
        line = [Text(arm, style="bold" if judged and arm not in judged else "")]
        for place in groups:
            row = cells.get((arm, place), {})
            if compared:
                line.append(_difference(row, around=around))
            line += [_number(row, column, around=around and column != "length") for column in shown]
        out.add_row(*line)
    return out


def _mark(study: Study) -> str:
    from reodsl.report import notes

    score = study.score
    if score is None:
        return ""
    return notes.star(score)


def _number(row: dict[str, Any], column: str, *, around: bool) -> Any:
    from rich.text import Text

    from reodsl.report.main_table import spread

    value = row.get(column)
    text = formats.percent(value) if column == "accuracy" else formats.number(value)
    beside = spread(row, column, 100.0 if column == "accuracy" else 1.0) if around else ""
    return Text.assemble(text, (f" {beside}" if beside else "", "dim"))


def _difference(row: dict[str, Any], *, around: bool) -> Any:
    from rich.text import Text

    from reodsl.report.main_table import interval_text

    value, low, high = (row.get(f"difference{end}") for end in ("", "_low", "_high"))
    if value is None:
        return Text("")
    style = ("green" if value < 0 else "red") if formats.starred(row, "difference") else ""
    beside = interval_text(low, high) if around else ""
    return Text.assemble((formats.difference(row), style), (f" {beside}" if beside else "", "dim"))
