"""Long tables: CSV or Parquet with a row per model, benchmark and budget, to curves."""

from __future__ import annotations

import csv
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from reodsl.diagnostics import Problem, first_line, problem
from reodsl.numbers.curves import Curve, Curves, accuracy_error, benchmark_error, curve_error, shown

if TYPE_CHECKING:
    import polars as pl

COLUMNS = ("model", "benchmark", "budget", "accuracy")
MOST_ROWS = 2_000_000


def read_long_table(path: Path) -> dict[str, Curves]:
    """Curves by model and benchmark from a table with the columns model, benchmark, budget and accuracy.

    Rows may come in any order; other columns are left alone. A row that is there twice, a value that is missing or
    no number, and a column that is not there are each a `Problem` with the place.
    """
    frame = read_frame(path)
    twice = [name for name in COLUMNS if f"{name}_duplicated_0" in frame.columns]
    if twice:
        raise problem(
            "E0423",
            f"the table has two columns `{twice[0]}`",
            where=str(path),
            help="keep one: which of them counts is no choice to make silently",
        )
    missing = [name for name in COLUMNS if name not in frame.columns]
    if missing:
        raise problem(
            "E0421",
            f"the table has no column {' and no column '.join(f'`{name}`' for name in missing)}",
            where=str(path),
            notes=[
                f"it has {', '.join(f'`{short(name)}`' for name in frame.columns[:20]) or 'no column at all'}"
            ],
            help=f"a table of curves has the columns {', '.join(COLUMNS)}",
        )
    if frame.height == 0:
        raise problem("E0421", "the table has no rows", where=str(path), help="give a row for each budget")
    columns = {name: frame[name].to_list() for name in COLUMNS}
    points: dict[str, dict[str, dict[int, float]]] = {}
    seen: dict[tuple[str, str, int], int] = {}
    for row in range(frame.height):
        where = f"{path}: row {row + 1}"
        model, benchmark = (text(columns[name][row], name, where) for name in ("model", "benchmark"))
        budget = whole_number(columns["budget"][row], where)
        key = (model, benchmark, budget)
        if key in seen:
            raise problem(
                "E0423",
                f"`{model}` on `{benchmark}` at {budget} tokens is there twice, in rows {seen[key] + 1} and {row + 1}",
                where=str(path),
                help="keep one row each; average over seeds or samples first",
            )
        seen[key] = row
        points.setdefault(model, {}).setdefault(benchmark, {})[budget] = number(
            columns["accuracy"][row], "accuracy", where
        )
    return {model: curves_of(model, benchmarks, path) for model, benchmarks in points.items()}


def read_frame(path: Path) -> pl.DataFrame:
    """The file as a frame; CSV columns come as text, so that every value is checked here and not guessed."""
    import polars as pl

    try:
        if path.suffix.lower() == ".csv":
            other_separator(path)
            frame = pl.read_csv(path, infer_schema=False, n_rows=MOST_ROWS + 1, glob=False)
        else:
            frame = pl.scan_parquet(path, glob=False).head(MOST_ROWS + 1).collect()
    except Problem:
        raise
    except Exception as e:  # polars has no one error for a file that is not what its ending says
        raise problem(
            "E0420",
            f"the table cannot be read: {longer_row(path) or first_line(e)}",
            where=str(path),
            help=f"write CSV in UTF-8 or Parquet, with the columns {', '.join(COLUMNS)}",
        ) from None
    if frame.height > MOST_ROWS:
        raise problem(
            "E0420", f"the table has over {MOST_ROWS:,} rows", where=str(path), help="give a row a budget"
        )
    return frame


def other_separator(path: Path) -> None:
    """Raises E0420 for columns that are parted by semicolons or tabs, as spreadsheets write them."""
    with path.open("rb") as file:
        head = file.readline(1000)
    for separator, name in ((b";", "semicolons"), (b"\t", "tabs")):
        if separator in head and b"," not in head:
            raise problem(
                "E0420",
                f"the columns of the table are parted by {name}",
                where=str(path),
                help="part them by commas, and write numbers with a point",
            )


def longer_row(path: Path) -> str | None:
    """The first row of a CSV file that has more values than there are columns, in words."""
    if path.suffix.lower() != ".csv":
        return None
    try:
        with path.open(newline="", encoding="utf-8-sig") as file:
            rows = csv.reader(file)
            columns = len(next(rows, ()))
            long = next(((n, len(row)) for n, row in enumerate(rows, 1) if len(row) > columns), None)
    except (OSError, ValueError, csv.Error):
        return None
    return long and f"row {long[0]} has {long[1]} values, and there are {columns} columns"


def short(name: str) -> str:
    """A column's name, or how it begins."""
    return name if len(name) <= 40 else f"{name[:37]}..."


def curves_of(model: str, benchmarks: Mapping[str, Mapping[int, float]], path: Path) -> dict[str, Curve]:
    """One model's points as checked curves."""
    bad = benchmark_error(benchmarks, f"{path}: {model}")
    if bad is not None:
        raise Problem(bad)
    curves = {}
    for benchmark, points in benchmarks.items():
        budgets = tuple(sorted(points))
        accuracy = tuple(points[budget] for budget in budgets)
        where = f"{path}: {model}, {benchmark}"
        bad = accuracy_error(accuracy, where) or curve_error(budgets, accuracy, where)
        if bad is not None:
            raise Problem(bad)
        curves[benchmark] = Curve(budgets, accuracy)
    return curves


def text(value: object, column: str, where: str) -> str:
    """A name in a row."""
    if not isinstance(value, str) or not value.strip():
        raise problem(
            "E0422",
            f"`{column}` is {'missing' if value is None or value == '' else shown(value)}",
            where=where,
            help=f"name the {column} in every row",
        )
    return value


def number(value: object, column: str, where: str) -> float:
    """A number in a row, from a number or its text."""
    if value is None or value == "":
        raise problem(
            "E0422", f"`{column}` is missing", where=where, help="leave out rows without a measurement"
        )
    try:
        if isinstance(value, bool) or not isinstance(value, (str, int, float)):
            raise ValueError
        return float(value)
    except (ValueError, OverflowError):
        percent = isinstance(value, str) and value.strip().endswith("%")
        raise problem(
            "E0422",
            f"`{column}` is {shown(value)}, which is not a number",
            where=where,
            help="write a fraction, without a percent sign" if percent else "write a plain number",
        ) from None


def whole_number(value: object, where: str) -> int:
    """A budget in a row: a whole number, `64` or `64.0`."""
    count = number(value, "budget", where)
    if not count.is_integer():
        raise problem(
            "E0422",
            f"`budget` is {shown(value)}, which is not a number of tokens",
            where=where,
            help="write whole tokens, without a unit",
        )
    return int(count)
