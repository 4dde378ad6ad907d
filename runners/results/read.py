"""Read result files row by row: JSONL, JSON, CSV, Parquet, and inspect's zip archives; memory is bounded for any file."""

from __future__ import annotations

import codecs
import csv
import hashlib
import os
import re
import struct
import zipfile
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import polars as pl
import zstandard

from reodsl.diagnostics import Problem, first_line, problem
from reodsl.store.files import stat_plain
from runners.sandbox.untrusted import Undecodable, decoded, shown


@dataclass(frozen=True, slots=True)
class ResultForm:
    """A form of result files: the fields by which a row is recognised, and the paths of its values, as `find` reads them."""

    name: str
    """Name of the tool that writes it."""
    has: tuple[str, ...]
    """Paths that every row has."""
    columns: Mapping[str, str]
    """Path in a row by column of the table of responses; a path that ends in `[]` leads to a list of responses."""
    rows: str = ""
    """Path of the list of rows in a JSON document."""


def _parse_columns(text: str) -> dict[str, str]:
    """Return columns with their paths from a text such as `tokens: usage.output, correct: score`."""
    return dict(pair.split(": ", 1) for pair in " ".join(text.split()).split(", "))


PLAIN = ResultForm(
    "plain",
    ("correct",),
    _parse_columns("""
        model: model, seed: seed, benchmark: benchmark, question: question|id, sample: sample|epoch, text: text|prompt,
        gold: gold, response: response, tokens: tokens, finish: finish, answer: answer, correct: correct, at: at"""),
)
FORMS = (
    ResultForm(
        "inspect",
        ("id", "epoch", "output.choices"),
        _parse_columns("""
            model: head.eval.metadata.arm|head.eval.model, seed: head.eval.metadata.seed,
            benchmark: head.eval.dataset.name|head.eval.task, question: id, sample: epoch, text: input, gold: target,
            response: output.choices.0.message.content, tokens: output.usage.output_tokens,
            finish: output.choices.0.stop_reason, answer: scores.*.answer, correct: scores.*.value,
            at: metadata.at_budgets"""),
        rows="samples",
    ),
    ResultForm(
        "lighteval",
        ("doc", "model_response", "metric"),
        _parse_columns("""
            benchmark: doc.task_name, question: doc.id, text: doc.query, gold: doc.choices.0,
            response: model_response.text[], tokens: model_response.output_tokens[], correct: metric.*"""),
    ),
    # Files of lighteval's older versions.
    ResultForm(
        "lighteval",
        ("example", "predictions", "metrics"),
        _parse_columns("""
            benchmark: file, question: #full_prompt|example, text: example, gold: gold.0|gold, response: predictions[],
            tokens: cont_tokens[], correct: metrics.*"""),
    ),
    ResultForm(
        "lm-eval",
        ("doc_id", "resps", "filter", "metrics"),
        _parse_columns("""
            benchmark: file, question: doc_id, text: arguments.gen_args_0.arg_0, gold: target, response: resps.0[],
            correct: {metrics.0}"""),
    ),
    ResultForm(
        "Qwen2.5-Math",
        ("idx", "code", "score"),
        _parse_columns(
            "question: idx, text: question, gold: gt, response: code[], answer: pred[], correct: score[]"
        ),
    ),
    ResultForm(
        "verl",
        ("input", "output", "score", "step"),
        _parse_columns("question: #input, text: input, gold: gts, response: output, correct: acc|score"),
    ),
    ResultForm(
        "AReaL",
        ("task_id", "seqlen", "prompt_len", "completion"),
        _parse_columns("""
            question: task_id, sample: sample_idx, text: prompt, response: completion, tokens: seqlen - prompt_len,
            correct: reward"""),
    ),
    ResultForm(
        "RL-Wall",
        ("problem", "responses", "corrects_verl_batched_responses"),
        _parse_columns("""
            question: #problem, text: problem, gold: answer, response: responses[],
            correct: corrects_verl_batched_responses[]"""),
    ),
    ResultForm(
        "OckBench",
        ("problem_id", "correct", "tokens.output_tokens"),
        _parse_columns("question: problem_id, tokens: tokens.output_tokens, correct: correct"),
        rows="results",
    ),
    PLAIN,
    replace(PLAIN, has=("gold", "response")),
)
"""A row has the first form whose paths it has all."""
SPEED_FIELDS = ("output_lens", "ttfts")
"""Fields of a benchmark of speeds, whose responses are not graded."""
# A file's name without the tools' prefixes and a time at its end.
_STEM = re.compile(
    r"(?:.*?(?:reviews|predictions)_|samples_|lmeval_samples_|details_)?(.+?)(?:_\d{4}-\d{2}-\d{2}T.*)?$"
)


def form_of(row: Mapping[str, Any]) -> ResultForm | None:
    """Return the form of a row: the first in `FORMS` whose paths `has` all lead to values in the row.

    If no form fits, the result is `PLAIN` for a row whose field `correct` is empty, else None.
    """
    fitting = (form for form in FORMS if all(find(row, path) is not None for path in form.has))
    return next(fitting, PLAIN if set(PLAIN.has) <= row.keys() else None)


def benchmark_of(stem: str) -> str:
    """Return the benchmark in a file's name, such as `gsm8k` in `samples_gsm8k_2026-01-01T…`."""
    match = _STEM.match(stem)
    return match[1] if match else stem


def find(row: Any, path: str) -> Any:
    """Return the value at a path in a row, or None if the row has no such value.

    Args:
        row: The row, or a value in it.
        path: Names and indices separated by points: `choices.0.text`. `#PATH` is a digest of the value at PATH, `A - B`
            the difference of two integers, and `A|B` the first value that exists. The name `*` is the only entry of a
            record that has a value. A path may end in `[]`, which marks lists for the import and has no effect here.

    Raises:
        LookupError: a record has several entries that `*` could mean.
    """
    if path.startswith("#"):
        text = find(row, path[1:])
        return None if text is None else hashlib.sha256(str(text).encode()).hexdigest()[:12]
    if " - " in path:
        minuend, subtrahend = (find(row, term) for term in path.split(" - ", 1))
        return minuend - subtrahend if isinstance(minuend, int) and isinstance(subtrahend, int) else None
    for option in path.removesuffix("[]").split("|"):
        value = _follow_path(row, option)
        if value is not None:
            return value
    return None


def _follow_path(value: Any, path: str) -> Any:
    """Return the value at a path of names and indices, or None if there is no such value.

    The name `{PATH}` stands for the text of the value at another path of the same row.
    """
    row = value
    for step in re.findall(r"\{[^}]*\}|[^.]+", path):
        name = str(find(row, step[1:-1])) if step.startswith("{") else step
        if isinstance(value, Mapping) and name == "*" and value:
            entries = {key: entry for key, entry in value.items() if entry is not None}
            if len(entries) > 1:
                raise LookupError(f"`{path.split('.*')[0]}` has {', '.join(map(str, entries))}")
            value = next(iter(entries.values()), None)
        elif isinstance(value, Mapping):
            value = value.get(name)
        elif isinstance(value, list) and name.isdigit() and int(name) < len(value):
            value = value[int(name)]
        else:
            return None
    return value


LONGEST_ROW = 64 << 20
"""Largest size in bytes of a row, and of a member of an archive."""
LARGEST_DOCUMENT = 256 << 20
"""Largest size in bytes of a file that is a single JSON value, which is read into memory completely."""
AT_ONCE = 500
"""Rows of a Parquet file that are in memory together."""
ZSTD = 93
"""Number of zstd's compression in an archive."""
UNPACKED = {zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED, ZSTD}
"""Compressions that can be unpacked up to a bound; `zipfile` unpacks other members completely."""
LOCAL_HEADER = struct.Struct("<4s5H3I2H")
"""Numbers before a member's name in an archive; the last two are the lengths of name and extra field."""
ENDINGS = (".jsonl", ".json", ".eval", ".csv", ".parquet")

Row = tuple[str, Mapping[str, Any]]
"""(place for messages, row), whose further fields are `head`, the header of the file, and `file`, its benchmark."""


def read_rows(path: Path) -> Iterator[Row]:
    """Yield the rows of a result file.

    Args:
        path: File whose name ends in one of `ENDINGS`.

    Raises:
        Problem: E0436 if the file or a row cannot be read.
    """
    readers = dict(
        zip(ENDINGS, (_read_jsonl, _read_json, _read_archive, _read_csv, _read_parquet), strict=True)
    )
    reader = readers.get(path.suffix.lower())
    if reader is None:
        raise unreadable(path, f"its name ends in none of {', '.join(ENDINGS)}", "rename it by its format")
    try:
        stat_plain(path)
        yield from reader(path)
    except Problem:
        raise
    except Undecodable as why:
        raise unreadable(path, str(why), "check that the file is complete") from None
    except OSError as why:
        raise unreadable(path, why.strerror or str(why), "check its path") from None
    # The errors of polars, csv and zipfile for a file of another format have no common class.
    except (Exception, pl.exceptions.PanicException) as why:
        raise unreadable(
            path, first_line(why), "check that the file is complete, and has the format of its name"
        ) from None


def unreadable(where: object, why: str, advice: str) -> Problem:
    """Return E0436, the error with which an import ends and writes no table.

    Args:
        where: File or row with the mistake.
        why: The mistake.
        advice: Advice to the user.
    """
    return problem("E0436", f"nothing was imported: {why}", where=str(where), help=advice)


def _decode(data: bytes, where: str, max_bytes: int | None = None) -> Any:
    """Return the value in JSON data.

    Args:
        data: The data.
        where: Place of the data, for the error message.
        max_bytes: Largest size of the data; None for `LONGEST_ROW`.

    Raises:
        Problem: E0436 for larger data, or data that are no JSON.
    """
    try:
        return decoded(data, max_bytes or LONGEST_ROW)
    except Undecodable as why:
        raise unreadable(where, f"this row cannot be read: {why}", "correct or remove the row") from None


def _split_lines(path: Path) -> Iterator[bytes]:
    """Yield the lines of a file without a byte-order mark; `Undecodable` for a line longer than `LONGEST_ROW`."""
    with path.open("rb") as file:
        if file.read(len(codecs.BOM_UTF8)) != codecs.BOM_UTF8:
            file.seek(0)
        while line := file.readline(LONGEST_ROW + 1):
            if len(line) > LONGEST_ROW:
                raise Undecodable(f"it has a line of more than {LONGEST_ROW:,} bytes")
            yield line


def _read_jsonl(path: Path) -> Iterator[Row]:
    """Yield the rows of a JSONL file: a record on each line that is not blank; E0436 for a value over several lines."""
    for number, line in enumerate(_split_lines(path), 1):
        where = f"{path}: line {number}"
        if line.strip() in (b"{", b"["):
            raise unreadable(
                where,
                "a JSON value spans several lines, and each line of a JSONL file is a row",
                f"rename a file with a single value to `{path.with_suffix('.json').name}`, or write each row in a line",
            )
        if line.strip():
            yield where, _make_record(_decode(line, where), where, path)


def _make_record(value: Any, where: str, path: Path, head: Any = None) -> Mapping[str, Any]:
    """Return a row with two further fields: `head`, the file's header, and `file`, the benchmark in the file's name.

    Args:
        value: The row; E0436 if it is no record of fields.
        where: Place of the row, for the error message.
        path: The file.
        head: The file's header, or None.
    """
    if not isinstance(value, Mapping):
        raise unreadable(where, "this row is no record of fields", "write a record in each row")
    return {"head": head, "file": benchmark_of(path.stem), **value}


def _read_json(path: Path) -> Iterator[Row]:
    """Yield the rows of a file that is a single JSON value; E0436 if it is larger than `LARGEST_DOCUMENT`."""
    size = path.stat().st_size
    if size > LARGEST_DOCUMENT:
        raise unreadable(
            path,
            f"its JSON value has {size:,} bytes, and may have {LARGEST_DOCUMENT:,}",
            "write a row in each line (.jsonl), or for inspect: `inspect log convert --to eval`",
        )
    data = path.read_bytes().removeprefix(codecs.BOM_UTF8)
    value = _decode(data, str(path), LARGEST_DOCUMENT)
    for header, rows in _find_rows(value):
        for number, row in enumerate(rows, 1):
            where = f"{path}: row {number}"
            yield where, _make_record(row, where, path, header)


def _find_rows(value: Any) -> Iterator[tuple[Any, list[Any]]]:
    """Yield (header, list of rows) of a JSON document, at most once.

    A list is the list of rows, without a header. In a record, the rows are the list at the path that a form names
    (`ResultForm.rows`), and the other fields are the header. A record without such a list is a row itself, except that
    a record whose field `results` is a record (a summary) yields nothing.
    """
    if isinstance(value, list):
        yield None, value
        return
    for path in {form.rows: None for form in FORMS if form.rows}:
        if isinstance(rows := find(value, path), list):
            yield {name: field for name, field in value.items() if name != path}, rows
            return
    if isinstance(value, Mapping) and not isinstance(find(value, "results"), Mapping):
        yield None, [value]


def _read_archive(path: Path) -> Iterator[Row]:
    """Yield the samples in a log of inspect (.eval) as rows.

    The log is a zip archive with a member of JSON for each sample, below `samples/`, and a header for all samples.
    """
    with zipfile.ZipFile(path) as archive:
        names = [member.filename for member in archive.infolist()]
        head = next((name for name in ("header.json", "_journal/start.json") if name in names), None)
        header = None if head is None else _decode(_read_member(archive, head), f"{path}: {head}")
        for name in names:
            if name.startswith("samples/") and not name.endswith("/"):
                where = f"{path}: {shown(name)}"
                yield where, _make_record(_decode(_read_member(archive, name), where), where, path, header)


def _read_member(archive: zipfile.ZipFile, name: str) -> bytes:
    """Return the unpacked bytes of a member of an archive, at most the first `LONGEST_ROW + 1`.

    The length in the member's header is not trusted. Members that are packed with zstd, as inspect writes them, are read
    here, because `zipfile` cannot read them before Python 3.14.

    Args:
        archive: The archive.
        name: Name of the member.

    Raises:
        Problem: E0436 for another compression.
    """
    info = archive.getinfo(name)
    if info.compress_type not in UNPACKED:
        raise unreadable(
            f"{archive.filename}: {shown(name)}",
            f"its compression has the number {info.compress_type}, and only stored, deflated and zstd members can be read",
            "convert the log: `inspect log convert --to eval`",
        )
    if info.compress_type != ZSTD:
        with archive.open(name) as member:
            return member.read(LONGEST_ROW + 1)
    assert archive.fp is not None
    archive.fp.seek(info.header_offset)
    *_, name_length, extra_length = LOCAL_HEADER.unpack(archive.fp.read(LOCAL_HEADER.size))
    archive.fp.seek(name_length + extra_length, os.SEEK_CUR)
    with zstandard.ZstdDecompressor().stream_reader(archive.fp, closefd=False) as stream:
        return stream.read(LONGEST_ROW + 1)


def _read_csv(path: Path) -> Iterator[Row]:
    """Yield the rows of a CSV file, in which empty values become None.

    E0436 is raised for two columns with the same name, and for a row with another number of values than the header.
    """
    csv.field_size_limit(LONGEST_ROW)
    reader = csv.DictReader((line.decode() for line in _split_lines(path)), strict=True)
    for name, count in Counter(reader.fieldnames).items():
        if name and count > 1:
            raise unreadable(path, f"it has {count} columns `{shown(name)}`", "rename them")
    for number, row in enumerate(reader, 2):
        where = f"{path}: row {number}"
        if None in row or None in row.values():
            raise unreadable(where, "this row has more or fewer values than the header", "correct it")
        yield where, _make_record({name: value or None for name, value in row.items()}, where, path)


def _read_parquet(path: Path) -> Iterator[Row]:
    """Yield the rows of a Parquet file, of which `AT_ONCE` rows are in memory; E0436 for a row above `LONGEST_ROW`."""
    frame = pl.scan_parquet(path, glob=False)
    count = frame.select(pl.len()).collect().item()
    for first in range(0, count, AT_ONCE):
        for number, row in enumerate(frame.slice(first, AT_ONCE).collect().iter_slices(1), first + 1):
            where = f"{path}: row {number}"
            if (size := int(row.estimated_size())) > LONGEST_ROW:
                raise unreadable(where, f"it has {size:,} bytes, and may have {LONGEST_ROW:,}", "remove it")
            yield where, _make_record(row.row(0, named=True), where, path)
