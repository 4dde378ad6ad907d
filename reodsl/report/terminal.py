"""The main table for a terminal: a finished report's folder in, a rich table out; the page's numbers in its order."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from reodsl.ir import Spec
from reodsl.ir.study import Study
from reodsl.report import formats

if TYPE_CHECKING:
    import polars as pl
    from rich.table import Table

MEASURES = {"accuracy": "acc %", "length": "length", "reg": "REG"}


def report_summary(folder: Path, *, average_only: bool = False, intervals: bool = True) -> Table:
    """The table of a report's folder (its `tables/main.parquet` and `spec.reo.json`), to be printed by rich."""
    import polars as pl

    spec = Spec.model_validate_json((folder / "spec.reo.json").read_text("utf-8"))
    return summary_table(
        spec.study,
        pl.read_parquet(folder / "tables" / "main.parquet"),
        average_only=average_only,
        intervals=intervals,
    )


def summary_table(
    study: Study, table: pl.DataFrame, *, average_only: bool = False, intervals: bool = True
) -> Table:
    """Accuracy, length and REG of each arm, by benchmark and on average, with REG's change against the baseline.

    `table` is `tables.main`. The arms that the frontier judges stand in bold; with one group of columns, the spread
    over seeds or the interval stands beside each number, unless `intervals` is false.
    """
    from rich.markup import escape
    from rich.table import Table
    from rich.text import Text

    from reodsl.report.main_table import places, shown_columns
    from reodsl.report.material import framed, title

    baseline = study.score.relative_to if study.score is not None else None
    shown = shown_columns(table, ("accuracy", "length", "reg"))
    groups = places(table)[-1:] if average_only else places(table)
    out = Table(box=None, pad_edge=False, padding=(0, 1), header_style="bold")
    out.add_column("arm", no_wrap=True)
    compared = "reg" in shown and baseline is not None
    for place in groups:
        heads = [MEASURES[column] for column in shown] + (
            [f"to {escape(baseline or '')}"] if compared else []
        )
        for i, head in enumerate(heads):
            above = "" if len(groups) == 1 else f"{escape(title(place)) if i == 0 else ''}\n"
            out.add_column(above + head, justify="right", no_wrap=True)
    judged = framed(study)
    cells = {(row["arm"], row["benchmark"]): row for row in table.to_dicts()}
    for arm in table["arm"].unique(maintain_order=True):
        line = [Text(arm, style="bold" if judged and arm not in judged else "")]
        for place in groups:
            row = cells.get((arm, place), {})
            line += [_number(row, column, around=intervals and len(groups) == 1) for column in shown]
            if compared:
                line.append(_change(row.get("change_pct")))
        out.add_row(*line)
    return out


def _number(row: dict[str, Any], column: str, *, around: bool) -> Any:
    from rich.text import Text

    from reodsl.report.main_table import spread

    value = row.get(column)
    text = formats.percent(value) if column == "accuracy" else formats.number(value)
    beside = spread(row, column, 100.0 if column == "accuracy" else 1.0) if around else ""
    return Text.assemble(text, (f" {beside}" if beside else "", "dim"))


def _change(change: float | None) -> Any:
    from rich.text import Text

    if change is None:
        return Text("")
    return Text(f"{formats.signed(change, 0)}%", style="green" if change < 0 else "red")
