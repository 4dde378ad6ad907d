"""Read curves from JSON, CSV or Parquet, and write frontiers as JSON."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from reodsl.diagnostics import Problem, misread, problem
from reodsl.numbers.curves import Curve, Curves, benchmark_error, curve_error, shown
from reodsl.numbers.long_table import read_long_table

MOST_BYTES = 64 * 2**20
FRONTIER_SHAPE = '{"<benchmark>": {"budgets": [...], "accuracy": [...]}, ...}'
CURVES_SHAPE = '{"<model>": {"<benchmark>": {"budgets": [...], "accuracy": [...]}, ...}, ...}'


def read_frontier(path: str | Path) -> Curves:
    """A frontier file, JSON `{"<benchmark>": {"budgets": […], "accuracy": […]}, …}`. Bad files raise `Problem`."""
    path = checked(path)
    data = parse_json(path)
    wrong = misfit(data, ("benchmark",))
    if wrong is not None:
        if misfit(data, ("model", "benchmark")) is None:
            raise problem(
                "E0421",
                "these are models' curves, not a frontier",
                where=str(path),
                help=f"make one of them: `reodsl frontier {path.name} -o edge.json`",
            )
        raise problem(
            "E0421",
            f"this is not a frontier: {wrong}",
            where=str(path),
            help=f"write JSON of the form {FRONTIER_SHAPE}",
        )
    return benchmarks(data, str(path))


def read_curves(path: str | Path, model: str | None = None) -> dict[str, Curves]:
    """Curves by model and benchmark, from JSON, or from a long table that ends in .csv or .parquet.

    JSON is `{"<model>": {"<benchmark>": {"budgets": […], "accuracy": […]}}}`; a file without the outer level (an
    evaluation's curves.json) is read under the name `model`, where that is given. A long table has the columns
    model, benchmark, budget and accuracy. Bad files raise `Problem`.
    """
    path = checked(path)
    if path.suffix.lower() in (".csv", ".parquet", ".pq"):
        return read_long_table(path)
    data = parse_json(path)
    if misfit(data, ("benchmark",)) is None:
        if model is None:
            raise problem(
                "E0421",
                "these curves have no model name",
                where=str(path),
                help=f"put them under one: {CURVES_SHAPE}",
            )
        return {model: benchmarks(data, str(path))}
    wrong = misfit(data, ("model", "benchmark"))
    if wrong is not None:
        raise problem(
            "E0421",
            f"these are not curves: {wrong}",
            where=str(path),
            help=f"write JSON of the form {CURVES_SHAPE}, or a long table as .csv or .parquet",
        )
    return {name: benchmarks(value, f"{path}: {name}") for name, value in data.items()}


def write_frontier(path: str | Path, curves: Curves) -> None:
    """Writes a frontier file, whole or not at all."""
    write_text(Path(path), json.dumps(curves_data(curves), indent=1) + "\n")


def curves_data(curves: Curves) -> dict[str, dict[str, list[int] | list[float]]]:
    """Curves as plain JSON data, in the form of a frontier file."""
    return {
        name: {"budgets": list(curve.budgets), "accuracy": list(curve.accuracy)}
        for name, curve in curves.items()
    }


def benchmarks(data: Mapping[str, Mapping[str, list[Any]]], where: str) -> dict[str, Curve]:
    """JSON data whose shape is known to be right, as checked curves by benchmark."""
    bad = benchmark_error(data, where)
    if bad is not None:
        raise Problem(bad)
    curves = {}
    for name, entry in data.items():
        budgets = [int(b) if isinstance(b, float) and b.is_integer() else b for b in entry["budgets"]]
        bad = curve_error(budgets, entry["accuracy"], f"{where}: {name}")
        if bad is not None:
            raise Problem(bad)
        curves[name] = Curve(tuple(budgets), tuple(float(a) for a in entry["accuracy"]))
    return curves


def misfit(data: Any, levels: tuple[str, ...]) -> str | None:
    """What of a JSON value is not an object of the first level's names … to curves; None where all of it is.

    Only the shape counts here; the numbers are checked later.
    """
    if levels:
        if not isinstance(data, dict):
            return f"{shown(data)} stands where {levels[0]}s by name should"
        if not data:
            return f"there is no {levels[0]}"
        faults = ((name, misfit(value, levels[1:])) for name, value in data.items())
        return next((f"{levels[0]} `{name}`: {wrong}" for name, wrong in faults if wrong is not None), None)
    if not isinstance(data, dict):
        return f"{shown(data)} stands where a curve should"
    for key in ("budgets", "accuracy"):
        if key not in data:
            return f"there is no `{key}`, only {', '.join(f'`{k}`' for k in list(data)[:6]) or 'nothing'}"
        if not isinstance(data[key], list):
            return f"`{key}` is {shown(data[key])}, which is not a list"
    return None


def checked(path: str | Path) -> Path:
    """A path to a file that is there and of a size that curves can have."""
    path = Path(path)
    try:
        size = path.stat().st_size
        regular = path.is_file()
    except (OSError, ValueError) as e:
        reason = e.strerror if isinstance(e, OSError) and e.strerror else str(e)
        raise problem(
            "E0420", f"cannot read the file: {reason}", where=str(path), help="check its path"
        ) from None
    if not regular:
        raise problem(
            "E0420", "this is not a file", where=str(path), help="give a .json, .csv or .parquet file"
        )
    if size == 0:
        raise problem("E0420", "the file is empty", where=str(path), help="write the curves again")
    if size > MOST_BYTES:
        raise problem(
            "E0420",
            f"the file has {size:,} bytes, and curves have at most {MOST_BYTES:,}",
            where=str(path),
            help="give curves (a row a budget), not samples",
        )
    return path


def parse_json(path: Path) -> Any:
    """A file's JSON value. Doubled keys, NaN and Infinity are errors, as is anything that is not JSON."""

    def unique(pairs: Iterable[tuple[str, object]]) -> dict[str, object]:
        out: dict[str, object] = {}
        for key, value in pairs:
            if key in out:
                raise problem(
                    "E0423",
                    f"`{key}` is there twice",
                    where=str(path),
                    help="keep one: which of them counts is no choice to make silently",
                )
            out[key] = value
        return out

    def constant(word: str) -> object:
        raise problem(
            "E0422", f"there is {word} in it", where=str(path), help="leave out what was not measured"
        )

    try:
        return json.loads(
            path.read_text(encoding="utf-8-sig"), object_pairs_hook=unique, parse_constant=constant
        )
    except json.JSONDecodeError as e:
        raise problem(
            "E0420",
            f"this is not JSON: {e.msg} at line {e.lineno}, column {e.colno}",
            where=str(path),
            help=f"write JSON of the form {FRONTIER_SHAPE}",
        ) from None
    except UnicodeDecodeError as e:
        raise problem(
            "E0420", f"this is not UTF-8 text: byte {e.start}", where=str(path), help="write JSON in UTF-8"
        ) from None
    except RecursionError:
        raise problem(
            "E0420", "the JSON is nested too deeply", where=str(path), help=f"write {FRONTIER_SHAPE}"
        ) from None
    except ValueError as e:
        raise problem(
            "E0420",
            f"this is not JSON of ours: {misread(e)}",
            where=str(path),
            help=f"write {FRONTIER_SHAPE}",
        ) from None
    except OSError as e:
        raise problem(
            "E0420", f"cannot read the file: {e.strerror}", where=str(path), help="check its path"
        ) from None


def write_text(path: Path, text: str) -> None:
    """Writes UTF-8 text to a temporary file beside `path`, then moves it there, so that no half of a file is ever seen."""
    temporary: Path | None = None
    try:
        handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
        os.close(handle)
        temporary = Path(name)
        temporary.write_text(text, encoding="utf-8")
        os.chmod(temporary, 0o666 & ~current_umask())
        os.replace(temporary, path)
    except OSError as e:
        if temporary is not None:
            temporary.unlink(missing_ok=True)
        raise problem(
            "E0420",
            f"cannot write the file: {e.strerror or e}",
            where=str(path),
            help="check the folder, its permissions and the space left",
        ) from None


def current_umask() -> int:
    """The process's umask, which can only be read by setting it."""
    mask = os.umask(0)
    os.umask(mask)
    return mask
