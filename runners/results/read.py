"""Read result files of strangers row by row, within bounds: JSONL, JSON, CSV, Parquet, and the zip archives of inspect."""

from __future__ import annotations

import csv
import os
import struct
import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import polars as pl
import zstandard

from reodsl.diagnostics import Problem, first_line, problem
from reodsl.store.files import stat_plain
from runners.results.forms import FORMS, benchmark_of, find
from runners.untrusted import Undecodable, decoded, shown

LONGEST_ROW = 64 << 20
"""Bytes of a row, and of a member of an archive."""
LARGEST_DOCUMENT = 256 << 20
"""Bytes of a file that is one JSON value, which is in memory whole."""
AT_ONCE = 500
"""Rows of a Parquet file that are in memory together."""
ZSTD = 93
"""The number of zstd's compression in an archive."""
LOCAL_HEADER = struct.Struct("<4s5H3I2H")
"""Numbers before a member's name in an archive; the last two are the lengths of name and extra field."""
ENDINGS = (".jsonl", ".json", ".eval", ".csv", ".parquet")

Row = tuple[str, Mapping[str, Any]]
"""A place for messages, and a row with `head` and `file` beside its own fields."""


def read_rows(path: Path) -> Iterator[Row]:
    """Yield the rows of a file. Raises E0436 for a file or a row that cannot be read."""
    readers = dict(zip(ENDINGS, (_lines, _document, _archive, _table, _parquet), strict=True))
    reader = readers.get(path.suffix.lower())
    if reader is None:
        raise unreadable(path, f"its name ends in none of {', '.join(ENDINGS)}", "rename it by what it is")
    try:
        stat_plain(path)
        yield from reader(path)
    except Problem:
        raise
    except Undecodable as why:
        raise unreadable(path, str(why), "check that the file is whole") from None
    except OSError as why:
        raise unreadable(path, why.strerror or str(why), "check its path") from None
    # polars, csv and zipfile have no one error for a file that is not what its name says.
    except (Exception, pl.exceptions.PanicException) as why:
        raise unreadable(
            path, first_line(why), "check that the file is whole, and what its name says"
        ) from None


def unreadable(place: object, why: str, advice: str) -> Problem:
    """Return E0436: nothing of a file was imported."""
    return problem("E0436", f"nothing was imported: {why}", where=str(place), help=advice)


def _value(data: bytes, place: str, longest: int | None = None) -> Any:
    try:
        return decoded(data, longest or LONGEST_ROW)
    except Undecodable as why:
        raise unreadable(place, f"this row cannot be read: {why}", "mend it or take it out") from None


def _split(path: Path) -> Iterator[bytes]:
    with path.open("rb") as file:
        while line := file.readline(LONGEST_ROW + 1):
            if len(line) > LONGEST_ROW:
                raise Undecodable(f"it has a line of more than {LONGEST_ROW:,} bytes")
            yield line


def _lines(path: Path) -> Iterator[Row]:
    for number, line in enumerate(_split(path), 1):
        place = f"{path}: line {number}"
        if line.strip():
            yield place, _record(_value(line, place), place, path)


def _record(value: Any, place: str, path: Path, head: Any = None) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise unreadable(place, "this row is no record of fields", "give a record in each row")
    return {"head": head, "file": benchmark_of(path.stem), **value}


def _document(path: Path) -> Iterator[Row]:
    size = path.stat().st_size
    if size > LARGEST_DOCUMENT:
        raise unreadable(
            path,
            f"it is one JSON value of {size:,} bytes, and may have {LARGEST_DOCUMENT:,}",
            "give a row a line (.jsonl), or for inspect: `inspect log convert --to eval`",
        )
    value = _value(path.read_bytes(), str(path), LARGEST_DOCUMENT)
    for head, rows in _inside(value):
        for number, row in enumerate(rows, 1):
            place = f"{path}: row {number}"
            yield place, _record(row, place, path, head)


def _inside(value: Any) -> Iterator[tuple[Any, list[Any]]]:
    """Yield the lists of rows in a document, each with what is beside it."""
    if isinstance(value, list):
        yield None, value
        return
    for path in {form.rows: None for form in FORMS if form.rows}:
        outer, star, inner = path.partition(".*.")
        below = find(value, outer)
        if star and isinstance(below, Mapping):
            for key, each in below.items():
                if isinstance(rows := find(each, inner), list):
                    yield {"key": key}, rows
        elif isinstance(below, list):
            yield {name: each for name, each in value.items() if name != path}, below
            return
    if isinstance(value, Mapping) and not isinstance(find(value, "results"), Mapping):
        yield None, [value]


def _archive(path: Path) -> Iterator[Row]:
    with zipfile.ZipFile(path) as archive:
        names = [each.filename for each in archive.infolist()]
        head = next((name for name in ("header.json", "_journal/start.json") if name in names), None)
        header = None if head is None else _value(_member(archive, head), f"{path}: {head}")
        for name in names:
            if name.startswith("samples/"):
                place = f"{path}: {shown(name)}"
                yield place, _record(_value(_member(archive, name), place), place, path, header)


def _member(archive: zipfile.ZipFile, name: str) -> bytes:
    """Return a member's bytes, and no more than a row may have and one: what its header says is not believed.

    `zipfile` reads no zstd before Python 3.14, and inspect writes it.
    """
    info = archive.getinfo(name)
    if info.compress_type != ZSTD:
        with archive.open(name) as member:
            return member.read(LONGEST_ROW + 1)
    assert archive.fp is not None
    archive.fp.seek(info.header_offset)
    *_, named, more = LOCAL_HEADER.unpack(archive.fp.read(LOCAL_HEADER.size))
    archive.fp.seek(named + more, os.SEEK_CUR)
    with zstandard.ZstdDecompressor().stream_reader(archive.fp, closefd=False) as stream:
        return stream.read(LONGEST_ROW + 1)


def _table(path: Path) -> Iterator[Row]:
    csv.field_size_limit(LONGEST_ROW)
    texts = (line.decode("utf-8-sig") for line in _split(path))
    for number, row in enumerate(csv.DictReader(texts, strict=True), 2):
        place = f"{path}: row {number}"
        if None in row or None in row.values():
            raise unreadable(place, "this row has more or fewer values than there are columns", "mend it")
        yield place, _record({name: value or None for name, value in row.items()}, place, path)


def _parquet(path: Path) -> Iterator[Row]:
    frame = pl.scan_parquet(path, glob=False)
    count = frame.select(pl.len()).collect().item()
    for first in range(0, count, AT_ONCE):
        for number, row in enumerate(frame.slice(first, AT_ONCE).collect().iter_slices(1), first + 1):
            place = f"{path}: row {number}"
            if (size := int(row.estimated_size())) > LONGEST_ROW:
                raise unreadable(place, f"it has {size:,} bytes, and may have {LONGEST_ROW:,}", "take it out")
            yield place, _record(row.row(0, named=True), place, path)
