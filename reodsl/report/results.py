"""The paper's table as values: accuracy, length and REG of each arm on each benchmark, with changes.

The page, the terminal and the texts to copy show these cells, so that all have the same numbers and marks.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import polars as pl

from reodsl.report import formats
from reodsl.report.material import MEAN

ALL = ("accuracy", "length", "reg")
KNOWN = frozenset({"difference", *ALL, "reg_plain"})
"""Columns that every table knows; others are measures, by their names."""
CHANGE = "change of REG"
"""The head of differences where each method is compared with itself, and not with a baseline."""
_CHANGES = {"accuracy": "accuracy_change", "reg": "difference", "difference": "difference"}
"""The name of each column's difference from the baseline. Lengths' would only add noise."""


@dataclass(frozen=True, slots=True)
class Cell:
    """One number: its `text`, the `change` beside it, the interval `around` it, and all of these in words (`about`).

    `tone` is `good` or `bad` where the difference from the baseline has a star, else empty. `roomy` cells have room for
    their interval.
    """

    place: str
    column: str
    text: str
    change: str = ""
    around: str = ""
    about: str = ""
    tone: str = ""
    roomy: bool = True


@dataclass(frozen=True, slots=True)
class Results:
    """The columns of each benchmark, the average first, and the cells of each arm in that order."""

    columns: Mapping[str, tuple[str, ...]]
    rows: Mapping[str, tuple[Cell, ...]]


def results(table: pl.DataFrame, arms: Sequence[str] | None = None, wanted: Sequence[str] = ALL) -> Results:
    """Return the cells of `tables.main`: of the wanted columns, and of these arms in their order, or of all."""
    average, *benchmarks = reversed(places(table))
    # The average comes first, which stays while the benchmarks are scrolled.
    columns = {place: columns_of(table, place, wanted) for place in (average, *reversed(benchmarks))}
    values = {(row["arm"], row["benchmark"]): row for row in table.to_dicts()}
    evaluated = table["arm"].unique(maintain_order=True).to_list()
    rows = {
        arm: tuple(
            cell(values.get((arm, place), {}), place, column, roomy=place == MEAN or len(columns) < 3)
            for place, names in columns.items()
            for column in names
        )
        for arm in (evaluated if arms is None else arms)
        if arm in evaluated
    }
    return Results(columns, rows)


def places(table: pl.DataFrame) -> tuple[str, ...]:
    """Return the column groups: each benchmark and the average, or the average alone where there is one benchmark."""
    names = table["benchmark"].unique(maintain_order=True).to_list()
    benchmarks = [name for name in names if name != MEAN]
    return (*benchmarks, MEAN) if len(benchmarks) > 1 else (MEAN,)


def known_columns(table: pl.DataFrame, columns: Sequence[str]) -> tuple[str, ...]:
    """Return those columns that have any value."""
    return tuple(name for name in columns if name in table.columns and table[name].drop_nulls().len())


def columns_of(table: pl.DataFrame, place: str, wanted: Sequence[str]) -> tuple[str, ...]:
    """Return a group's columns. On average the difference of REG comes first, and REG is against both frontiers."""
    if place != MEAN or "reg" not in wanted:
        return known_columns(table, wanted)
    return known_columns(table, ("difference", *wanted, "reg_plain"))


def cell(row: Mapping[str, Any], place: str, column: str, *, roomy: bool) -> Cell:
    """Return one number of a row of `tables.main`, with its difference from the baseline.

    On average, REG's difference has a column of its own, and is not repeated beside REG. That column has the change in
    percent beside it, where it means something.
    """
    if column not in KNOWN:
        return _measured(row, place, column, roomy)
    scale = 100.0 if column == "accuracy" else 1.0
    stem = "" if column == "reg" and roomy else _CHANGES.get(column, "")
    change, low, high = (row.get(f"{stem}{end}") if stem else None for end in ("", "_low", "_high"))
    star = formats.has_star(row, stem)
    better = change is not None and (change > 0 if column == "accuracy" else change < 0)
    around = about = _spread(row, column, scale)
    value = row.get(column)
    if column == "difference":
        text, beside = formats.difference(row), formats.format_change(row.get("change_pct"), unit="%")
    else:
        text = formats.percent(value) if column == "accuracy" else formats.number(value)
        beside = formats.format_change(None if change is None else scale * change) + (
            formats.APART if star else ""
        )
        if change is not None:
            ends = f"{formats.format_signed(scale * change)} {_interval(low, high, scale)}"
            about = f"{around}; {ends}".strip("; ")
    tone = ("good" if better else "bad") if star else ""
    return Cell(place, column, text, beside, around, about, tone, roomy)


def _measured(row: Mapping[str, Any], place: str, column: str, roomy: bool) -> Cell:
    """Return a measure with its interval, and its difference from the baseline in words."""
    value, change = row.get(column), row.get(f"{column}_change")
    digits = 1 if value is not None and abs(value) >= 10 else 3
    around = formats.interval(row.get(f"{column}_low"), row.get(f"{column}_high"), digits)
    about = around
    if change is not None:
        ends = formats.interval(row.get(f"{column}_change_low"), row.get(f"{column}_change_high"), digits)
        about += f"; {formats.format_signed(change, digits)} {ends}"
    return Cell(place, column, formats.number(value, digits), "", around, about.strip("; "), "", roomy)


def _spread(row: Mapping[str, Any], column: str, scale: float) -> str:
    """Return the interval, or `±0.6` over seeds where nothing is scored."""
    low, high, sd = (row.get(f"{column}_{end}") for end in ("low", "high", "sd"))
    if low is not None and high is not None:
        return _interval(low, high, scale)
    # Of REG against the plain frontier there is no interval: none would hold what it estimates as often as it says.
    return formats.spread(None if sd is None or column == "reg_plain" else scale * sd)


def _interval(low: float | None, high: float | None, scale: float) -> str:
    """Return `[0.9, 1.4]` in the unit of the cell."""
    return formats.interval(None if low is None else scale * low, None if high is None else scale * high)
