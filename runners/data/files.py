"""Read questions from Parquet, JSONL, JSON or CSV files of bounded size, on this machine or of a hub's data set.

Messages name bad rows by number. Files of a hub's data set come from a local mirror, the hub's cache on this machine, or
the hub itself. A mirror is the folder `data/OWNER/NAME` beside the spec. Loading scripts and other code of a data set are
not run.

The package `datasets` only reads data sets that are not on this machine, because it needs pyarrow and pandas, and copies
files into its own cache. `reodsl.ir` checks the form of names.
"""

from __future__ import annotations

import csv
import importlib.util
import os
import re
from collections.abc import Iterator, Mapping
from itertools import islice
from pathlib import Path
from typing import Any

import polars as pl

from reodsl.diagnostics import Diagnostic, Problem, error, first_line, problem, refuse
from reodsl.ir.data import Columns, HubData
from reodsl.ir.names import DATA_FILES
from reodsl.store.external import hub_snapshot, local_copy
from reodsl.store.files import NotPlain, open_plain, stat_plain
from runners.data.table import (
    from_records,
    json_records,
    jsonl_records,
    list_mapped,
    questions_table,
    require_columns,
    spell_numbers,
)

LARGEST_FILE = 2 * 2**30
"""The most bytes of a file, and of the unpacked text of a Parquet file."""
MOST_ROWS = 20_000_000
"""The most rows of a Parquet file."""
LARGEST_FIELD = 2**24
"""The most characters of a CSV field."""


def read_questions(path: Path, columns: Columns) -> pl.DataFrame:
    """Read the questions table of a file.

    Empty rows and duplicates are not checked here, but by `require_filled` and `settle_duplicates`.

    Args:
        path: A Parquet, CSV, JSON or JSONL file.
        columns: The file's names of the question, the answer and other columns.

    Raises:
        Problem: E0706 for a file or a row that cannot be read, E0701 for a missing column or a column that is not text.
    """
    refuse(file_problem(path))
    try:
        match path.suffix.lower():
            case ".parquet":
                frame = _read_parquet(path, columns)
            case ".csv":
                frame = _read_csv(path, columns)
            case suffix:
                frame = from_records(list(_RECORDS[suffix](path)), path, columns)
    except UnicodeDecodeError as failure:
        raise problem(
            "E0706",
            f"the file is not UTF-8 text: it has the byte {failure.object[failure.start]:#04x}",
            where=str(path),
            help="write it again as UTF-8",
        ) from None
    except (OSError, pl.exceptions.PolarsError, pl.exceptions.PanicException) as failure:
        raise problem(
            "E0706",
            f"the file cannot be read: {first_line(failure, 'damaged')}",
            where=str(path),
            help="check that the file is complete and has the format of its ending",
        ) from None
    return questions_table(frame, columns, str(path))


def require_head(path: Path, columns: Columns) -> None:
    """Check the columns of a Parquet or CSV file without reading its rows.

    JSON files are not checked, because each row has its own names. A file that cannot be read passes: reading it
    reports the error.

    Raises:
        Problem: E0701 for missing columns, E0706 for broken CSV.
    """
    try:
        match path.suffix.lower():
            case ".parquet":
                require_columns(
                    list(_paths(pl.scan_parquet(path, glob=False).collect_schema())), columns, str(path)
                )
            case ".csv":
                header = next(_csv_rows(path), None)
                if header is not None:
                    require_columns(header[1], columns, str(path))
    except (OSError, UnicodeDecodeError, pl.exceptions.PolarsError, pl.exceptions.PanicException):
        # Reading the file reports other errors.
        return


def read_head(path: Path, rows: int) -> list[tuple[str, Any]]:
    """Return the first rows of a file with all fields.

    Returns:
        For each row, its position for messages, such as `line 2`, and its record.
    """
    match path.suffix.lower():
        case ".parquet":
            head = pl.scan_parquet(path, glob=False).head(rows).collect().iter_rows(named=True)
            return [(f"row {number}", spell_numbers(row)) for number, row in enumerate(head, 1)]
        case ".csv":
            (_, header), *lines = islice(_csv_rows(path), rows + 1)
            return [(f"line {line}", dict(zip(header, row, strict=True))) for line, row in lines]
        case suffix:
            return list(islice(_RECORDS[suffix](path), rows))


def count_rows(path: Path, columns: Columns) -> int:
    """Return the number of rows of a file. Rows of CSV and JSON files are parsed for this, others are only counted.

    Raises:
        Problem: E0706 for a file that cannot be read, E0701 for a missing column.
    """
    try:
        match path.suffix.lower():
            case ".parquet":
                return int(pl.scan_parquet(path, glob=False).select(pl.len()).collect().item())
            case ".jsonl" | ".ndjson":
                with path.open("rb") as lines:
                    return sum(1 for line in lines if line.strip())
    except (OSError, pl.exceptions.PolarsError, pl.exceptions.PanicException):
        pass  # Reading the file reports the error.
    return read_questions(path, columns).height


def file_problem(path: Path) -> Diagnostic | None:
    """Return E0706 if a file is missing, unreadable, not a plain file, too large, or has an unknown ending; else None."""
    if path.suffix.lower() not in DATA_FILES:
        return error(
            "E0706",
            f"data files cannot end in `{path.suffix or path.name}`",
            where=str(path),
            help=f"name a file that ends in {', '.join(DATA_FILES)}",
        )
    try:
        status = stat_plain(path)
    except NotPlain as failure:
        return error(
            "E0706",
            f"this is not a plain file: {failure.strerror}",
            where=str(path),
            help="name a file, not a folder or device",
        )
    except OSError as failure:
        return error(
            "E0706",
            f"the data file cannot be opened: {failure.strerror}",
            where=str(path),
            help="a relative path starts at the folder of the spec",
        )
    try:
        open_plain(path).close()
    except OSError as failure:
        return error(
            "E0706",
            f"the data file cannot be opened: {failure.strerror}",
            where=str(path),
            help=f"make the file readable: `chmod u+r {path}`",
        )
    if status.st_size > LARGEST_FILE:
        return error(
            "E0706",
            f"the file has {status.st_size} bytes, and may have at most {LARGEST_FILE}",
            where=str(path),
            help="divide the file, or store it as Parquet with only the columns that are needed",
        )
    return None


def _read_parquet(path: Path, columns: Columns) -> pl.DataFrame:
    """Read the columns of a Parquet file that `columns` names.

    A column with records or lists is read row by row (`from_records`), others directly. The number of rows is checked
    before the columns are read, and the bytes of their text after.

    Raises:
        Problem: E0701 for missing columns, E0706 for a file with too many rows or too much text.
    """
    scan = pl.scan_parquet(path, glob=False)
    schema = scan.collect_schema()
    require_columns(list(_paths(schema)), columns, str(path))
    names = list(
        dict.fromkeys(name if name in schema else name.partition(".")[0] for name in list_mapped(columns))
    )
    # Counted before reading, because a small file may unpack to any size.
    rows = int(scan.select(pl.len()).collect().item())
    if rows > MOST_ROWS:
        raise _too_large(path, f"{rows} rows", f"{MOST_ROWS} rows")
    frame = scan.select(names).collect()
    texts = [name for name in names if frame.schema[name] == pl.String]
    size = sum(int(frame[name].str.len_bytes().sum() or 0) for name in texts)
    if size > LARGEST_FILE:
        raise _too_large(path, f"{size} bytes of text", str(LARGEST_FILE))
    if any(frame.schema[name].is_nested() for name in names):
        records = enumerate(frame.iter_rows(named=True), 1)
        return from_records([(f"row {number}", spell_numbers(row)) for number, row in records], path, columns)
    return frame


def _paths(schema: Mapping[str, Any], prefix: str = "") -> Iterator[str]:
    """Yield the names of columns, and the paths of fields in records, such as `reward_model.ground_truth`."""
    for name, kind in schema.items():
        yield prefix + name
        if isinstance(kind, pl.Struct):
            yield from _paths(kind.to_schema(), f"{prefix}{name}.")


def _too_large(path: Path, size: str, bound: str) -> Problem:
    """Return E0706 for a file whose `size`, such as "30 rows", is above a bound."""
    return problem(
        "E0706",
        f"the file has {size}, and may have at most {bound}",
        where=str(path),
        help="keep only the rows and columns that are needed",
    )


def _read_csv(path: Path, columns: Columns) -> pl.DataFrame:
    """Read the columns of a CSV file that `columns` names, as text.

    Raises:
        Problem: E0701 for missing columns, E0706 for a repeated column or a row with a wrong number of fields.
    """
    (_, header), *rows = list(_csv_rows(path)) or [(1, [])]
    require_columns(header, columns, str(path))
    for number, row in rows:
        if len(row) != len(header):
            raise problem(
                "E0706",
                f"this row has {len(row)} fields, and the header has {len(header)}",
                where=f"{path}, line {number}",
                help="quote fields that contain commas or line breaks",
            )
    names = list_mapped(columns)
    twice = next((name for name in names if header.count(name) > 1), None)
    if twice is not None:
        raise problem(
            "E0706",
            f"{header.count(twice)} columns are named `{twice}`",
            where=f"{path}, line 1",
            help="give every column a different name",
        )
    data = {name: [row[header.index(name)] for _, row in rows] for name in names}
    return pl.DataFrame(data, schema=dict.fromkeys(names, pl.String))


def _csv_rows(path: Path) -> Iterator[tuple[int, list[str]]]:
    """Yield the rows of a CSV file that are not blank, each after the number of the line at which the row ends.

    Raises:
        Problem: E0706 if the text is not CSV.
    """
    former_limit = csv.field_size_limit(LARGEST_FIELD)
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            reader = csv.reader(file, strict=True)
            try:
                for row in reader:
                    if row:
                        yield reader.line_num, row
            except csv.Error as failure:
                raise problem(
                    "E0706",
                    f"this is not CSV: {failure}",
                    where=f"{path}, line {reader.line_num}",
                    help="correct or remove this line",
                ) from None
    finally:
        csv.field_size_limit(former_limit)


_RECORDS = {".jsonl": jsonl_records, ".ndjson": jsonl_records, ".json": json_records}


_SPLIT = re.compile(r"(?<![a-z])(train|test|valid|validation|dev|eval)(?![a-z])", re.IGNORECASE)


def read_hub(source: HubData, folder: Path) -> pl.DataFrame:
    """Read the questions table of a hub's data set, from this machine if possible.

    Args:
        source: The data set, its split and revision, and the names of its columns.
        folder: The folder of the spec, where a local mirror may be.

    Raises:
        Problem: E0850 if the data set or the split is not found, E0706 for a file that cannot be read, E0701 for columns.
    """
    files = local_files(source, folder)
    if files:
        return pl.concat([read_questions(path, source.columns) for path in files])
    refuse(hub_problem(source, folder))
    return _download(source)


def hub_problem(source: HubData, folder: Path) -> Diagnostic | None:
    """Return E0850 if a data set cannot be read: this machine has no copy of it, and cannot download it; else None."""
    if local_files(source, folder) or (importlib.util.find_spec("datasets") is not None and not _offline()):
        return None
    return _missing(
        source, "this machine has no copy, and the package `datasets` is not installed or is offline"
    )


def local_files(source: HubData, folder: Path) -> list[Path]:
    """Return the files of a dataset split on this machine, sorted by path; empty if there are none.

    `data/OWNER/NAME` in the spec's folder is searched first. The hub's cache is searched if there are no files.
    """
    copies = (local_copy(source.repo, folder), hub_snapshot("datasets", source.repo, source.revision))
    return next(filter(None, (_split_files(copy, source) for copy in copies if copy is not None)), [])


def _split_files(copy: Path, source: HubData) -> list[Path]:
    """Return the files of a dataset split in a copy of a data set, by the naming rules of hubs; may be empty.

    Files of the split `test` are named `test.jsonl`, `test-0.parquet` or `test/0.parquet`. They are in the copy or in
    its folder `data`; with a configuration `source.name`, in the folder of this name. For the split `train`, all files
    of a folder count if the name of none contains the name of a split.
    """
    roots = [copy / source.name, copy / "data" / source.name] if source.name else [copy, copy / "data"]
    for root in roots:
        for pattern in (f"{source.split}.*", f"{source.split}-*", f"{source.split}/*"):
            files = sorted(path for path in root.glob(pattern) if path.suffix.lower() in DATA_FILES)
            if files:
                return files
        files = sorted(path for path in root.glob("*") if path.suffix.lower() in DATA_FILES)
        if files and source.split == "train" and not any(_SPLIT.search(path.stem) for path in files):
            return files
    return []


def _offline() -> bool:
    """Return whether an environment variable of the hub forbids downloads."""
    values = [os.environ.get(name, "").upper() for name in ("HF_HUB_OFFLINE", "HF_DATASETS_OFFLINE")]
    return any(value in ("1", "ON", "YES", "TRUE") for value in values)


def _download(source: HubData) -> pl.DataFrame:
    """Load the data set by the package `datasets`, which downloads and caches it.

    Raises:
        Problem: E0850 if this fails or the result is not a table.
    """
    datasets = importlib.import_module("datasets")
    try:
        loaded = datasets.load_dataset(source.repo, source.name, split=source.split, revision=source.revision)
        frame = pl.from_arrow(loaded.data.table)
    except Exception as failure:
        raise Problem(_missing(source, first_line(failure))) from None
    if not isinstance(frame, pl.DataFrame):
        raise problem(
            "E0850", "the data set is not a table", where=source.repo, help="name one of its splits"
        )
    return questions_table(frame, source.columns, source.repo)


def _missing(source: HubData, why: str) -> Diagnostic:
    """Return E0850 for a data set that cannot be read because of `why`, with the paths that were searched."""
    name = f", configuration `{source.name}`" if source.name else ""
    revision = f" --revision {source.revision}" if source.revision else ""
    return error(
        "E0850",
        f"the data set `{source.repo}`{name}, split `{source.split}`, cannot be read: {why}",
        where="hub data",
        notes=[
            f"looked for `{source.split}.jsonl`, `{source.split}-*.parquet` and similar names in "
            f"`data/{source.repo}` beside the spec and in the hub's cache"
        ],
        help=f"on a machine with a network, run `hf download --repo-type dataset {source.repo}{revision} "
        f"--local-dir data/{source.repo}`, then copy that folder beside the spec",
    )
