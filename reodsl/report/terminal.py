"""The main table for a terminal: `tables.main` in, a rich table out; the page's numbers in the page's order."""

from __future__ import annotations

from typing import TYPE_CHECKING

from reodsl.report import formats
from reodsl.report.main_table import Column, places, shown_columns, spread
from reodsl.report.material import Material, title

if TYPE_CHECKING:
    import polars as pl
    from rich.table import Table

HEADS: dict[Column, str] = {"accuracy": "acc %", "length": "length", "reg": "REG"}


def summary_table(material: Material, table: pl.DataFrame, *, average_only: bool = False) -> Table:
    """Accuracy, length and REG an arm, by benchmark and on average, with changes against the baseline."""
    from rich.markup import escape
    from rich.table import Table
    from rich.text import Text

    score = material.study.score
    baseline = score.relative_to if score is not None else None
    shown = shown_columns(table, tuple(HEADS))
    groups = places(material)[-1:] if average_only else places(material)
    out = Table(box=None, pad_edge=False, padding=(0, 1), header_style="bold", title=None)
    out.add_column("arm", no_wrap=True)
    for place in groups:
        for i, column in enumerate(shown):
            prefix = f"{title(place)}\n" if i == 0 else "\n"
            out.add_column(
                escape(prefix if len(groups) > 1 else "") + HEADS[column], justify="right", no_wrap=True
            )
        if "reg" in shown and baseline is not None:
            out.add_column(
                ("\n" if len(groups) > 1 else "") + f"to {escape(baseline)}", justify="right", no_wrap=True
            )
    cells = {(row["arm"], row["benchmark"]): row for row in table.to_dicts()}
    for arm in material.arms:
        line = [Text(arm, style="bold" if material.framed and arm not in material.framed else "")]
        for place in groups:
            row = cells.get((arm, place), {})
            for column in shown:
                value = row.get(column)
                text = formats.percent(value) if column == "accuracy" else formats.number(value)
                around = (
                    spread(row, column, 100.0 if column == "accuracy" else 1.0) if len(groups) == 1 else ""
                )
                line.append(Text.assemble(text, (f" {around}" if around else "", "dim")))
            if "reg" in shown and baseline is not None:
                change = row.get("change_pct")
                tone = "" if change is None else ("green" if change < 0 else "red")
                line.append(Text("" if change is None else f"{formats.signed(change, 0)}%", style=tone))
        out.add_row(*line)
    return out
