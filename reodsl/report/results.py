"""The paper's table as values: accuracy, length and REG of each arm on each benchmark, with changes.

The page, the terminal and the texts to copy show these cells, so that all have the same numbers and marks.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars as pl
from rich.console import Console
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from reodsl.ir import Spec
from reodsl.ir.study import Study
from reodsl.report import formats, notes, verdict_words
from reodsl.report.material import MEAN, frontier_arms, title

ALL = ("accuracy", "length", "reg")
MOST_LETTERS = 16
"""The most letters of a baseline's name in the head of a column."""
LEAST_LETTERS = 8
"""The letters of a name in the narrowest terminal."""
BUILTIN_COLUMNS = frozenset({"difference", *ALL, "reg_plain"})
"""Columns that every table knows; others are measures, by their names."""
CHANGE = "change of REG"
"""The head of the column `difference` if the study names no baseline that differences are relative to."""
_CHANGES = {"accuracy": "accuracy_change", "reg": "difference", "difference": "difference"}
"""The name of each column's change from the baseline. Changes of length are left out, since they only add noise."""


@dataclass(frozen=True, slots=True)
class Cell:
    """A number of the table, with its texts."""

    benchmark: str
    """Benchmark of the column group, or `mean`."""
    column: str
    """Name of the column."""
    text: str
    """The value."""
    change: str = ""
    """Difference from the baseline, shown beside the value."""
    interval_text: str = ""
    """Interval of the value, or its spread over seeds."""
    about: str = ""
    """Interval and difference, in words."""
    tone: str = ""
    """`good` or `bad` if the difference is significant, else empty."""
    roomy: bool = True
    """True if there is room for the interval."""


@dataclass(frozen=True, slots=True)
class Results:
    """The columns of each benchmark, the average first, and the cells of each arm in that order."""

    columns: Mapping[str, tuple[str, ...]]
    rows: Mapping[str, tuple[Cell, ...]]


def results(table: pl.DataFrame, arms: Sequence[str] | None = None, fields: Sequence[str] = ALL) -> Results:
    """Return the cells of the report's main table: a row for each arm, a group of columns for each benchmark.

    Columns without any value are left out.

    Args:
        table: frame of `tables.main`.
        arms: names of arms in order; None for all. Arms without results are left out.
        fields: names of columns.
    """
    average, *benchmarks = reversed(column_groups(table))
    # The average comes first, since it stays in view while benchmarks are scrolled.
    columns = {group: columns_of(table, group, fields) for group in (average, *reversed(benchmarks))}
    values = {(row["arm"], row["benchmark"]): row for row in table.to_dicts()}
    evaluated = table["arm"].unique(maintain_order=True).to_list()
    rows = {
        arm: tuple(
            cell(values.get((arm, group), {}), group, column, roomy=group == MEAN or len(columns) < 3)
            for group, names in columns.items()
            for column in names
        )
        for arm in (evaluated if arms is None else arms)
        if arm in evaluated
    }
    return Results(columns, rows)


def column_groups(table: pl.DataFrame) -> tuple[str, ...]:
    """Return the groups of columns: each benchmark, then `mean`; only `mean` if there is one benchmark."""
    names = table["benchmark"].unique(maintain_order=True).to_list()
    benchmarks = [name for name in names if name != MEAN]
    return (*benchmarks, MEAN) if len(benchmarks) > 1 else (MEAN,)


def filled_columns(table: pl.DataFrame, columns: Sequence[str]) -> tuple[str, ...]:
    """Return the columns of a table that have any value."""
    return tuple(name for name in columns if name in table.columns and table[name].drop_nulls().len())


def columns_of(table: pl.DataFrame, benchmark: str, fields: Sequence[str]) -> tuple[str, ...]:
    """Return the columns of a benchmark that have any value.

    Under `mean`, if REG is shown, the difference of REG comes first, and REG against the plain frontier last.

    Args:
        table: frame of `tables.main`.
        benchmark: name of the benchmark, or `mean`.
        fields: names of columns.
    """
    return filled_columns(
        table, ("difference", *fields, "reg_plain") if benchmark == MEAN and "reg" in fields else fields
    )


def cell(row: Mapping[str, Any], benchmark: str, column: str, *, roomy: bool) -> Cell:
    """Return a cell of the table: a value, its interval, and its difference from the baseline.

    The column `difference` is REG's difference from the baseline. It has the change in percent beside it, if the interval
    of the baseline's REG excludes 0. A roomy column `reg` does not repeat this difference. The cell has a tone only if
    the difference is significant.

    Args:
        row: row of `tables.main`; empty if the arm has no result on the benchmark.
        benchmark: name of the benchmark, or `mean`.
        column: name of the column, a built-in one or a measure of the study.
        roomy: whether the column is wide enough for the interval below the value.
    """
    if column not in BUILTIN_COLUMNS:
        return _measure_cell(row, benchmark, column, roomy)
    scale = 100.0 if column == "accuracy" else 1.0
    stem = "" if column == "reg" and roomy else _CHANGES.get(column, "")
    change, low, high = (row.get(f"{stem}{end}") if stem else None for end in ("", "_low", "_high"))
    has_star = bool(row.get(f"{stem}_star"))
    better = change is not None and (change > 0 if column == "accuracy" else change < 0)
    interval_text = about = _spread(row, column, scale)
    value = row.get(column)
    if column == "difference":
        text, change_text = formats.difference(row), formats.format_change(row.get("change_pct"), unit="%")
    else:
        text = formats.percent(value) if column == "accuracy" else formats.number(value)
        change_text = formats.format_change(None if change is None else scale * change) + (
            formats.STAR if has_star else ""
        )
        if change is not None:
            ends = f"{formats.format_signed(scale * change)} {_interval(low, high, scale)}"
            about = f"{interval_text}; {ends}".strip("; ")
    tone = ("good" if better else "bad") if has_star else ""
    return Cell(benchmark, column, text, change_text, interval_text, about, tone, roomy)


def _measure_cell(row: Mapping[str, Any], benchmark: str, column: str, roomy: bool) -> Cell:
    """Return the cell of a measure that the study declares: its value and interval.

    The change of the measure from the baseline is shown on hover only.

    Args:
        row: row of `tables.main`.
        benchmark: name of the benchmark, or `mean`.
        column: name of the measure.
        roomy: whether the column is wide enough for the interval below the value.
    """
    value, change = row.get(column), row.get(f"{column}_change")
    digits = 1 if value is not None and abs(value) >= 10 else 3
    interval_text = formats.interval(row.get(f"{column}_low"), row.get(f"{column}_high"), digits)
    about = interval_text
    if change is not None:
        ends = formats.interval(row.get(f"{column}_change_low"), row.get(f"{column}_change_high"), digits)
        about += f"; {formats.format_signed(change, digits)} {ends}"
    return Cell(
        benchmark, column, formats.number(value, digits), "", interval_text, about.strip("; "), "", roomy
    )


def _spread(row: Mapping[str, Any], column: str, scale: float) -> str:
    """Return the interval of a value, `[0.9, 1.4]`, or its standard deviation over seeds, `±0.6`, if it has no interval.

    It is empty if neither is known, and for `reg_plain`.

    Args:
        row: row of `tables.main`.
        column: name of the column.
        scale: factor from the row's unit to the shown unit, 100 for shares.
    """
    low, high, sd = (row.get(f"{column}_{end}") for end in ("low", "high", "sd"))
    if low is not None and high is not None:
        return _interval(low, high, scale)
    # REG against the plain frontier has no interval, since no interval would have its stated coverage.
    return formats.spread(None if sd is None or column == "reg_plain" else scale * sd)


def _interval(low: float | None, high: float | None, scale: float) -> str:
    """Return an interval as `[0.9, 1.4]` in the shown unit; empty if an end is missing.

    Args:
        low: lower end in the row's unit.
        high: upper end in the row's unit.
        scale: factor from the row's unit to the shown unit.
    """
    return formats.interval(None if low is None else scale * low, None if high is None else scale * high)


def name_columns(study: Study, heads: Mapping[str, str], after: str = "") -> dict[str, str]:
    """Return the heads of columns by name, with the head of `difference` added and a mark at an approximate REG.

    Args:
        study: the study.
        heads: head of each column but `difference`, by name.
        after: text behind the head of `difference`, such as an arrow.
    """
    baseline = study.score.relative_to if study.score is not None else None
    mark = notes.nearly(study)
    named = {name: mark * name.startswith("reg") + head for name, head in heads.items()}
    return named | {"difference": (CHANGE if baseline is None else say_against(baseline)) + after}


def say_against(baseline: str) -> str:
    """Return the head of differences of REG from a baseline, which is named if its name is short."""
    return f"REG vs. {baseline if len(baseline) <= MOST_LETTERS else 'baseline'}"


MEASURES = ("reg", "reg_plain", "accuracy", "length")
HEADS = {"reg": "REG", "reg_plain": "plain", "accuracy": "acc %", "length": "length"}
COLOURS = {"good": "green", "bad": "red", "": ""}


def report_summary(folder: Path, *, average_only: bool = False, width: int | None = None) -> Table:
    """Return a report's main table and verdict for rich to print, read from the report's folder.

    Args:
        folder: folder of the report, with `tables/main.parquet`, `spec.reo.json` and the verdict.
        average_only: whether to leave out the benchmarks.
        width: width in characters; None for any width. Until the table fits, it loses first its intervals, then the
            study's measures, the last first; then names are cut in the middle, and never a number.
    """
    study = Spec.model_validate_json((folder / "spec.reo.json").read_text("utf-8")).study
    table = pl.read_parquet(folder / "tables" / "main.parquet", glob=False)
    num_measures = len(study.measures)
    longest = max(map(len, table["arm"]), default=0)
    layouts = [(True, num_measures, longest)]
    layouts += ((False, measures, longest) for measures in range(num_measures, -1, -1))
    layouts += ((False, 0, letters) for letters in range(longest - 1, LEAST_LETTERS - 1, -1))
    for intervals, measures, letters in layouts if width is not None else layouts[:1]:
        out = summary_table(
            study,
            table,
            average_only=average_only,
            intervals=intervals,
            measures=measures,
            letters=letters,
            verdict=verdict_words.read_sentences(folder),
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
    letters: int = 10_000,
    verdict: Sequence[str] = (),
) -> Table:
    """Return a table for the terminal: the verdict, REG's difference from the baseline, REG, accuracy and length.

    Columns without any value are left out. Arms that do not belong to the frontier are bold. If the table has one group
    of columns, each number but lengths has its interval beside it, or without a score its standard deviation over seeds.

    Args:
        study: the study.
        table: frame of `tables.main`.
        average_only: whether to leave out the benchmarks.
        intervals: whether intervals are shown.
        measures: number of the measures declared by the study that are shown; None for all.
        letters: most letters of an arm's name; longer names are cut in the middle.
        verdict: sentences above the table.
    """
    baseline = study.score.relative_to if study.score is not None else None
    filled = filled_columns(table, (*MEASURES, *(measure.name for measure in study.measures[:measures])))
    compared = "reg" in filled and baseline is not None and "difference" in table.columns
    columns = ("difference", *filled) if compared else filled
    groups = column_groups(table)[-1:] if average_only else column_groups(table)
    with_intervals = intervals and len(groups) == 1
    seeds = int(table["seeds"].max() or 1) if table.height else 1  # type: ignore[arg-type]
    star = notes.star(study.score) if compared and study.score is not None else ""
    omitted = ", ".join(measure.name for measure in study.measures[measures:]) if measures is not None else ""
    captions = (
        notes.intervals(study, seeds) if with_intervals else star,
        "REG is against the cross-fitted frontier; plain: against the paper's, which is biased upward."
        if "reg_plain" in filled and notes.frontiers(study)
        else "",
        notes.approximate(study),
        f"The report has {omitted} too." if omitted else "",
    )
    heads = name_columns(study, HEADS)
    out = Table(
        box=None,
        pad_edge=False,
        padding=(0, 1),
        header_style="bold",
        title=Text("\n".join(verdict)) if verdict else None,
        title_style="",
        title_justify="left",
        caption=" ".join(line for line in captions if line) or None,
        caption_justify="left",
    )
    out.add_column("arm", no_wrap=True)
    for group in groups:
        for i, column in enumerate(columns):
            head_line = "" if len(groups) == 1 else f"{escape(title(group)) if i == 0 else ''}\n"
            out.add_column(head_line + escape(heads.get(column, column)), justify="right", no_wrap=True)

    def text(cell: Cell) -> Text:
        """Return a cell as coloured text, with its interval if the table shows intervals."""
        if cell.column == "difference" and cell.text == formats.NONE:
            return Text("")
        style = COLOURS[cell.tone] if cell.column == "difference" else ""
        suffix = (
            f" {cell.interval_text}"
            if with_intervals and cell.interval_text and cell.column != "length"
            else ""
        )
        return Text.assemble((cell.text, style), (suffix, "dim"))

    edge_arms, names = (frontier_arms(study), formats.shorten(table["arm"].to_list(), letters))
    rows = {(row["arm"], row["benchmark"]): row for row in table.to_dicts()}
    for arm in table["arm"].unique(maintain_order=True):
        cells = [
            cell(rows.get((arm, group), {}), group, column, roomy=True)
            for group in groups
            for column in columns
        ]
        out.add_row(
            Text(names[arm], style="bold" if edge_arms and arm not in edge_arms else ""), *map(text, cells)
        )
    return out
