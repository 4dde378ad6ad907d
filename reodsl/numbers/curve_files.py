"""Curves in files: read from JSON, CSV or Parquet, and frontiers written as JSON."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from reodsl.diagnostics import Problem, first_line, misread, problem
from reodsl.diagnostics.model import unique_record
from reodsl.numbers.curves import (
    KINDS,
    Curve,
    Curves,
    ReferenceFrontier,
    check_benchmarks,
    check_curve,
    format_value,
    same_model,
)

if TYPE_CHECKING:
    import polars as pl

MOST_BYTES = 64 * 2**20
FRONTIER_SHAPE = '{"base": "<model>", "curves": {"<benchmark>": {"budgets": [...], "accuracy": [...]}, ...}}'
CURVES_SHAPE = '{"<model>": {"<benchmark>": {"budgets": [...], "accuracy": [...]}, ...}, ...}'


def read_frontier(path: str | Path) -> Curves:
    """Return the curves of a frontier file. Raises `Problem` for a bad file."""
    return read_reference(path).curves


def read_reference(path: str | Path, base: Sequence[str] = ()) -> ReferenceFrontier:
    """Read a frontier and the base models that its file names.

    A file is `{"base": "<model>", "curves": {"<benchmark>": <curve>, …}}`, or the inner object of curves alone. A curve
    is `{"budgets": […], "accuracy": […]}`, or `[[budgets], [accuracy]]`. A file may also have a frontier for each of
    several base models, as `{"frontiers": {"<model>": …}}`; then `base` chooses the frontier.

    Args:
        path: The file.
        base: Names of base models. They are needed only for a file with frontiers of several models.

    Raises:
        Problem: E0421 for a bad file.
    """
    path = check_file(path)
    data, models = unwrap_curves(parse_json(path, FRONTIER_SHAPE), str(path))
    if models is None:
        names = [name for name in data if any(same_model(name, model) for model in base)] or list(data)
        if len(names) > 1:
            raise problem(
                "E0421",
                f"the file has frontiers of {len(names)} models, {', '.join(names)}",
                where=str(path),
                help=f"choose a frontier: `reodsl frontier {path} --of {names[0]} -o edge.json`; `reodsl reg` chooses by the"
                f" base model, as in `--base {names[0]}`",
            )
        data, models = data[names[0]] if names else {}, tuple(names)
    wrong = describe_misfit(data, ("benchmark",))
    if wrong is not None:
        if describe_misfit(data, ("model", "benchmark")) is None:
            raise problem(
                "E0421",
                "these are models' curves, not a frontier",
                where=str(path),
                help=f"make a frontier from the curves: `reodsl frontier {path} --base MODEL -o edge.json`",
            )
        raise problem(
            "E0421",
            f"this is not a frontier: {wrong}",
            where=str(path),
            help=f"write JSON of the form {FRONTIER_SHAPE}",
        )
    return ReferenceFrontier(benchmarks(data, str(path)), models)


def read_models(
    path: str | Path, model: str | None = None
) -> tuple[dict[str, Curves], dict[str, tuple[str, ...]]]:
    """Read curves by model and benchmark, and the base models that the file names for each model.

    A JSON file is `{"<model>": {"<benchmark>": {"budgets": […], "accuracy": […]}}}`, or has this object under `curves`
    beside a key `base`. A .csv or .parquet file is a table with the columns model, benchmark, budget and accuracy, and
    names no base models.

    Args:
        path: The file.
        model: Name for the curves of a file without names of models, such as an evaluation's curves.json.

    Returns:
        The curves, and the base models by model; a model without a known base model is missing there. In a file of
        frontiers by base model, each model is its own base model.

    Raises:
        Problem: E0421 for a bad file.
    """
    path = check_file(path)
    if path.suffix.lower() in (".csv", ".parquet", ".pq"):
        return read_long_table(path), {}
    data, base = unwrap_curves(parse_json(path, CURVES_SHAPE), str(path))
    models = _read_by_model(path, data, model)
    return models, {name: (name,) if base is None else base for name in models if base != ()}


def _read_by_model(path: Path, data: Any, model: str | None) -> dict[str, Curves]:
    """Return the curves of each model in JSON data.

    Args:
        path: The file, for messages.
        data: The JSON value.
        model: Name for the curves if the data have no names of models.

    Raises:
        Problem: E0421 for data of another shape.
    """
    if describe_misfit(data, ("benchmark",)) is None:
        if model is None:
            raise problem(
                "E0421",
                "these curves have no model name",
                where=str(path),
                help=f"put the curves under a model's name: {CURVES_SHAPE}",
            )
        return {model: benchmarks(data, str(path))}
    wrong = describe_misfit(data, ("model", "benchmark"))
    if wrong is not None:
        raise problem(
            "E0421",
            f"these are not curves: {wrong}",
            where=str(path),
            help=f"write JSON of the form {CURVES_SHAPE}, or a long table as .csv or .parquet",
        )
    return {name: benchmarks(value, f"{path}: {name}") for name, value in data.items()}


def write_frontier(path: str | Path, curves: Curves, base: Sequence[str] = ()) -> None:
    """Write a frontier file atomically: a reader sees the complete file or none.

    Args:
        path: The file.
        curves: The frontier's curves.
        base: The models that the frontier's models were trained from.

    Raises:
        Problem: E0421 if the file cannot be written.
    """
    data = curves_data(curves)
    text = json.dumps({"base": list(base), "curves": data} if base else data, indent=1) + "\n"
    path = Path(path)
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        temporary.write_text(text, encoding="utf-8")
        temporary.replace(path)
    except OSError as e:
        with suppress(OSError):
            temporary.unlink()
        raise problem(
            "E0421",
            f"cannot write the file: {e.strerror or e}",
            where=str(path),
            help="check the folder, its permissions and the space left",
        ) from None


def curves_data(curves: Curves) -> dict[str, dict[str, Any]]:
    """Return curves as plain JSON data, in the form of a frontier file; the kind `J` is left out."""
    return {
        name: {"budgets": list(curve.budgets), "accuracy": list(curve.accuracy)}
        | ({} if curve.kind == "J" else {"kind": curve.kind})
        for name, curve in curves.items()
    }


def benchmarks(data: Mapping[str, Mapping[str, Any]], where: str, separator: str = ": ") -> dict[str, Curve]:
    """Return curves by benchmark from JSON data of the right shape, after a check of their numbers.

    Args:
        data: Budgets, accuracies and kinds by benchmark.
        where: The location in messages.
        separator: Text between `where` and a benchmark's name.

    Raises:
        Problem: E0421 for the first fault.
    """
    check_benchmarks(data, where)
    curves = {}
    for name, entry in data.items():
        budgets = [int(b) if isinstance(b, float) and b.is_integer() else b for b in entry["budgets"]]
        check_curve(budgets, entry["accuracy"], f"{where}{separator}{name}")
        kind = entry.get("kind", "J")
        if kind not in KINDS:
            raise problem(
                "E0421",
                f"`kind` is {format_value(kind)}, which is not a kind of curve",
                where=f"{where}{separator}{name}",
                notes=[f"`{label}`: {words}" for label, words in KINDS.items()],
                help="write one of these kinds, or leave `kind` out for `J`",
            )
        curves[name] = Curve(tuple(budgets), tuple(float(a) for a in entry["accuracy"]), kind)
    return curves


def unwrap_curves(data: Any, where: str) -> tuple[Any, tuple[str, ...] | None]:
    """Return the curves in a JSON value, and the base models that the value names.

    A curve that is a pair of lists becomes an object with the keys `budgets` and `accuracy`. In a file of frontiers by
    base model, a curve that has no benchmark gets the benchmark `Average`. The shape is not checked here.

    Args:
        data: The JSON value of a file.
        where: The location in messages.

    Returns:
        The curves, and the base models: empty if none are named, None if the value has a frontier for each model.

    Raises:
        Problem: E0421 if `base` does not name a model.
    """
    match data:
        case {"base": [*_] | str() | int() | float() | None as base, "curves": curves}:
            names = base if isinstance(base, list) else [base]
            if not names or not all(isinstance(name, str) and name.strip() for name in names):
                raise problem(
                    "E0421",
                    f"`base` is {format_value(base)}, which names no model",
                    where=where,
                    help='name the base model of these curves, as in `"base": "Qwen/Qwen3-4B"`',
                )
            return name_pairs(curves), tuple(names)
        case {"frontiers": dict() as frontiers} if frontiers and describe_misfit(frontiers, ()) is not None:
            by_model = name_pairs(frontiers)
            return {
                name: {"Average": value} if describe_misfit(value, ()) is None else value
                for name, value in by_model.items()
            }, None
    return name_pairs(data), ()


def name_pairs(data: Any, levels: int = 2) -> Any:
    """Return a JSON value in which pairs of lists `[[budgets], [accuracy]]` become objects with these names.

    Args:
        data: The JSON value.
        levels: The number of nested objects around a pair, at most.
    """
    match data:
        case dict() if levels:
            return {name: name_pairs(value, levels - 1) for name, value in data.items()}
        case [[*budgets], [*accuracy]]:
            return {"budgets": budgets, "accuracy": accuracy}
    return data


def describe_misfit(data: Any, levels: tuple[str, ...]) -> str | None:
    """Return the first reason why a JSON value is not an object of curves, nested as `levels` says; None if it is.

    The numbers of the curves are not checked.

    Args:
        data: The JSON value.
        levels: What the keys of each nested object name, from the outermost, such as `("model", "benchmark")`; empty if
            the value is a curve.
    """
    if levels:
        if not isinstance(data, dict):
            return f"found {format_value(data)} instead of {levels[0]}s by name"
        if not data:
            return f"there is no {levels[0]}"
        faults = ((name, describe_misfit(value, levels[1:])) for name, value in data.items())
        return next((f"{levels[0]} `{name}`: {wrong}" for name, wrong in faults if wrong is not None), None)
    if not isinstance(data, dict):
        return f"found {format_value(data)} instead of a curve"
    for key in ("budgets", "accuracy"):
        if key not in data:
            return f"there is no `{key}`, only {', '.join(f'`{k}`' for k in list(data)[:6]) or 'nothing'}"
        if not isinstance(data[key], list):
            return f"`{key}` is {format_value(data[key])}, which is not a list"
    return None


def check_file(path: str | Path) -> Path:
    """Return a path after a check that it is a file of 1 to `MOST_BYTES` bytes.

    Raises:
        Problem: E0421 for any other path, and for a log of inspect (`.eval`), which has responses.
    """
    path = Path(path)
    if path.suffix.lower() == ".eval":
        raise responses_found(path)
    try:
        size = path.stat().st_size
        regular = path.is_file()
    except (OSError, ValueError) as e:
        reason = e.strerror if isinstance(e, OSError) and e.strerror else str(e)
        raise problem(
            "E0421", f"cannot read the file: {reason}", where=str(path), help="check its path"
        ) from None
    if not regular:
        raise problem(
            "E0421", "this is not a file", where=str(path), help="give a .json, .csv or .parquet file"
        )
    if size == 0:
        raise problem("E0421", "the file is empty", where=str(path), help="write the curves again")
    if size > MOST_BYTES:
        raise problem(
            "E0421",
            f"the file has {size:,} bytes, and curves have at most {MOST_BYTES:,}",
            where=str(path),
            help="give curves (a row for each budget), not samples",
        )
    return path


def responses_found(path: Path) -> Problem:
    """Return E0421 for a file that has responses in place of curves."""
    return problem(
        "E0421",
        "these are responses, not curves",
        where=str(path),
        help=f"import them, and give this command the table: `reodsl import {path} -o theirs.parquet`",
    )


def parse_json(path: Path, shape: str) -> Any:
    """Return the value of a JSON file, in which no key may be repeated.

    NaN is accepted here, and refused as an accuracy later.

    Args:
        path: The file.
        shape: The expected form, for messages.

    Raises:
        Problem: E0421 for a file that cannot be read.
    """
    try:
        return json.loads(path.read_text(encoding="utf-8-sig"), object_pairs_hook=unique_record)
    except json.JSONDecodeError as e:
        if path.suffix.lower() == ".jsonl":
            raise responses_found(path) from None
        raise problem(
            "E0421",
            f"this is not JSON: {e.msg} at line {e.lineno}, column {e.colno}",
            where=str(path),
            help=f"write JSON of the form {shape}",
        ) from None
    except (ValueError, RecursionError) as e:
        raise problem(
            "E0421", f"this JSON cannot be read: {misread(e)}", where=str(path), help=f"write {shape}"
        ) from None
    except OSError as e:
        raise problem(
            "E0421", f"cannot read the file: {e.strerror}", where=str(path), help="check its path"
        ) from None


COLUMNS = ("model", "benchmark", "budget", "accuracy")
MOST_ROWS = 2_000_000


def read_long_table(path: Path) -> dict[str, Curves]:
    """Read curves by model and benchmark from a table with the columns model, benchmark, budget and accuracy.

    A column `kind` may give the kind of each curve. Rows may come in any order; other columns are ignored.

    Raises:
        Problem: E0421 or E0435 for a doubled row, a missing column or value, or a value that is not a number.
    """
    frame = read_frame(path)
    twice = [name for name in COLUMNS if f"{name}_duplicated_0" in frame.columns]
    if twice:
        raise problem(
            "E0421",
            f"the table has two columns `{twice[0]}`",
            where=str(path),
            help="keep one of the columns",
        )
    missing = [name for name in COLUMNS if name not in frame.columns]
    if missing and {"tokens", "correct"} <= set(frame.columns):
        raise responses_found(path)
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
    columns = {name: frame[name].to_list() for name in (*COLUMNS, "kind") if name in frame.columns}
    kinds: dict[tuple[str, str], Any] = {}
    points: dict[str, dict[str, dict[int, float]]] = {}
    seen: dict[tuple[str, str, int], int] = {}
    for row in range(frame.height):
        where = f"{path}: row {row + 1}"
        model, benchmark = (text(columns[name][row], name, where) for name in ("model", "benchmark"))
        budget = whole_number(columns["budget"][row], where)
        key = (model, benchmark, budget)
        if key in seen:
            raise problem(
                "E0421",
                f"`{model}` on `{benchmark}` at {budget} tokens is listed twice, in rows {seen[key] + 1} and {row + 1}",
                where=str(path),
                help="keep one row each; average over seeds or samples first",
            )
        seen[key] = row
        kind = columns["kind"][row] if "kind" in columns else "J"
        if kinds.setdefault((model, benchmark), kind) != kind:
            raise problem(
                "E0435",
                f"`{model}` on `{benchmark}` is of two kinds, `{kinds[model, benchmark]}` and `{kind}`",
                where=where,
                help="give each curve one kind in all of its rows",
            )
        points.setdefault(model, {}).setdefault(benchmark, {})[budget] = number(
            columns["accuracy"][row], "accuracy", where
        )
    return {
        model: benchmarks(
            {
                name: {
                    "budgets": sorted(row_values),
                    "accuracy": [row_values[budget] for budget in sorted(row_values)],
                    "kind": kinds[model, name],
                }
                for name, row_values in curves.items()
            },
            f"{path}: {model}",
            ", ",
        )
        for model, curves in points.items()
    }


def read_frame(path: Path) -> pl.DataFrame:
    """Read a table of at most `MOST_ROWS` rows from CSV or Parquet.

    Columns of a CSV file stay texts: polars would guess their types, but callers check every value.

    Raises:
        Problem: E0421 for a file that cannot be read or has more rows.
    """
    import polars as pl

    try:
        if path.suffix.lower() == ".csv":
            frame = pl.read_csv(path, infer_schema=False, n_rows=MOST_ROWS + 1, glob=False)
        else:
            frame = pl.scan_parquet(path, glob=False).head(MOST_ROWS + 1).collect()
    except Exception as e:  # polars raises no single class of error for a file with a wrong suffix
        raise problem(
            "E0421",
            f"the table cannot be read: {first_line(e)}",
            where=str(path),
            help="write Parquet, or CSV in UTF-8 with commas between columns and points in numbers, with the columns "
            f"{', '.join(COLUMNS)}",
        ) from None
    if frame.height > MOST_ROWS:
        raise problem(
            "E0421", f"the table has over {MOST_ROWS:,} rows", where=str(path), help="give a row per budget"
        )
    return frame


def short(name: str) -> str:
    """Return the name of a column, shortened to 40 characters."""
    return name if len(name) <= 40 else f"{name[:37]}..."


def text(value: object, column: str, where: str) -> str:
    """Return a value of a row after a check that it is a text that is not blank; any other value is E0421.

    Args:
        value: The value.
        column: The column, for messages.
        where: The row, for messages.
    """
    if not isinstance(value, str) or not value.strip():
        raise problem(
            "E0421",
            f"`{column}` is {'missing' if value is None or value == '' else format_value(value)}",
            where=where,
            help=f"name the {column} in every row",
        )
    return value


def number(value: object, column: str, where: str) -> float:
    """Return a value of a row as a number; a value that is neither a number nor the text of a number is E0421.

    Args:
        value: The value.
        column: The column, for messages.
        where: The row, for messages.

    Returns:
        The number, which may be infinite or NaN.
    """
    if value is None or value == "":
        raise problem(
            "E0421", f"`{column}` is missing", where=where, help="leave out rows without a measurement"
        )
    try:
        if isinstance(value, bool) or not isinstance(value, (str, int, float)):
            raise ValueError
        return float(value)
    except (ValueError, OverflowError):
        percent = isinstance(value, str) and value.strip().endswith("%")
        raise problem(
            "E0421",
            f"`{column}` is {format_value(value)}, which is not a number",
            where=where,
            help="write a fraction, without a percent sign" if percent else "write a plain number",
        ) from None


def whole_number(value: object, where: str) -> int:
    """Return a value of a row as a budget in tokens, from `64` or `64.0`; a value that is not whole is E0421.

    Args:
        value: The value.
        where: The row, for messages.
    """
    count = number(value, "budget", where)
    if not count.is_integer():
        raise problem(
            "E0421",
            f"`budget` is {format_value(value)}, which is not a number of tokens",
            where=where,
            help="write whole tokens, without a unit",
        )
    return int(count)
