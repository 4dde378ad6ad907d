"""Read result files of strangers row by row, within bounds: JSONL, JSON, CSV, Parquet, and the zip archives of inspect."""

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
    """A form of result files: paths that its rows have, our columns by their paths, and the path of `rows` in a document."""

    name: str
    has: tuple[str, ...]
    columns: Mapping[str, str]
    rows: str = ""


def _columns(text: str) -> dict[str, str]:
    return dict(pair.split(": ", 1) for pair in " ".join(text.split()).split(", "))


PLAIN = ResultForm(
    "plain",
    ("correct",),
    _columns("""
        model: model, seed: seed, benchmark: benchmark, question: question|id, sample: sample|epoch, text: text|prompt,
        gold: gold, response: response, tokens: tokens, finish: finish, answer: answer, correct: correct, at: at"""),
)
FORMS = (
    ResultForm(
        "inspect",
        ("id", "epoch", "output.choices"),
        _columns("""
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
        _columns("""
            benchmark: doc.task_name, question: doc.id, text: doc.query, gold: doc.choices.0,
            response: model_response.text[], tokens: model_response.output_tokens[], correct: metric.*"""),
    ),
    # As its older versions wrote them.
    ResultForm(
        "lighteval",
        ("example", "predictions", "metrics"),
        _columns("""
            benchmark: file, question: #full_prompt|example, text: example, gold: gold.0|gold, response: predictions[],
            tokens: cont_tokens[], correct: metrics.*"""),
    ),
    ResultForm(
        "lm-eval",
        ("doc_id", "resps", "filter", "metrics"),
        _columns("""
            benchmark: file, question: doc_id, text: arguments.gen_args_0.arg_0, gold: target, response: resps.0[],
            correct: {metrics.0}"""),
    ),
    ResultForm(
        "Qwen2.5-Math",
        ("idx", "code", "score"),
        _columns(
            "question: idx, text: question, gold: gt, response: code[], answer: pred[], correct: score[]"
        ),
    ),
    ResultForm(
        "verl",
        ("input", "output", "score", "step"),
        _columns("question: #input, text: input, gold: gts, response: output, correct: acc|score"),
    ),
    ResultForm(
        "AReaL",
        ("task_id", "seqlen", "prompt_len", "completion"),
        _columns("""
            question: task_id, sample: sample_idx, text: prompt, response: completion, tokens: seqlen - prompt_len,
            correct: reward"""),
    ),
    ResultForm(
        "RL-Wall",
        ("problem", "responses", "corrects_verl_batched_responses"),
        _columns("""
            question: #problem, text: problem, gold: answer, response: responses[],
            correct: corrects_verl_batched_responses[]"""),
    ),
    ResultForm(
        "OckBench",
        ("problem_id", "correct", "tokens.output_tokens"),
        _columns("question: problem_id, tokens: tokens.output_tokens, correct: correct"),
        rows="results",
    ),
    PLAIN,
    replace(PLAIN, has=("gold", "response")),
)
"""A row has the first form all of whose paths it has."""
SPEED_FIELDS = ("output_lens", "ttfts")
"""Fields of a benchmark of speeds, whose responses nobody graded."""
_STEM = re.compile(
    r"(?:.*?(?:reviews|predictions)_|samples_|lmeval_samples_|details_)?(.+?)(?:_\d{4}-\d{2}-\d{2}T.*)?$"
)


def form_of(row: Mapping[str, Any]) -> ResultForm | None:
    """Return the first form that fits a row, or None; a row of the plain form may lack its score."""
    fitting = (form for form in FORMS if all(find(row, path) is not None for path in form.has))
    return next(fitting, PLAIN if set(PLAIN.has) <= row.keys() else None)


def benchmark_of(stem: str) -> str:
    """Return the benchmark in a file's name without what tools add to the name: `samples_gsm8k_2026-01-01T…`."""
    match = _STEM.match(stem)
    return match[1] if match else stem


def find(row: Any, path: str) -> Any:
    """Return the value at a path of a row, or None.

    `#PATH` is the value's digest, `A - B` a difference of integers, `A|B` the first that exists, `*` the only entry.

    Raises:
        LookupError: `*` could be several entries.
    """
    if path.startswith("#"):
        text = find(row, path[1:])
        return None if text is None else hashlib.sha256(str(text).encode()).hexdigest()[:12]
    if " - " in path:
        minuend, subtrahend = (find(row, term) for term in path.split(" - ", 1))
        return minuend - subtrahend if isinstance(minuend, int) and isinstance(subtrahend, int) else None
    for option in path.removesuffix("[]").split("|"):
        value = _walk(row, option)
        if value is not None:
            return value
    return None


def _walk(value: Any, path: str) -> Any:
    """Return the value at a path of names and indices, or None; `{PATH}` is the name found at another path."""
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
"""Bytes of a row, and of a member of an archive."""
LARGEST_DOCUMENT = 256 << 20
"""Bytes of a file that is one JSON value, which is in memory whole."""
AT_ONCE = 500
"""Rows of a Parquet file that are in memory together."""
ZSTD = 93
"""The number of zstd's compression in an archive."""
UNPACKED = {zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED, ZSTD}
"""Compressions whose bytes are read as far as is asked. `zipfile` unpacks the whole of any other."""
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


def unreadable(where: object, why: str, advice: str) -> Problem:
    """Return E0436: nothing of a file was imported."""
    return problem("E0436", f"nothing was imported: {why}", where=str(where), help=advice)


def _value(data: bytes, where: str, longest: int | None = None) -> Any:
    try:
        return decoded(data, longest or LONGEST_ROW)
    except Undecodable as why:
        raise unreadable(where, f"this row cannot be read: {why}", "mend it or take it out") from None


def _split(path: Path) -> Iterator[bytes]:
    with path.open("rb") as file:
        if file.read(len(codecs.BOM_UTF8)) != codecs.BOM_UTF8:
            file.seek(0)
        while line := file.readline(LONGEST_ROW + 1):
            if len(line) > LONGEST_ROW:
                raise Undecodable(f"it has a line of more than {LONGEST_ROW:,} bytes")
            yield line


def _lines(path: Path) -> Iterator[Row]:
    """Yield the rows of a JSONL file."""
    for number, line in enumerate(_split(path), 1):
        where = f"{path}: line {number}"
        if line.strip() in (b"{", b"["):
            raise unreadable(
                where,
                "a value goes on over several lines, and this file has a row in each",
                f"name a file that is one value `{path.with_suffix('.json').name}`, or write each row in one line",
            )
        if line.strip():
            yield where, _record(_value(line, where), where, path)


def _record(value: Any, where: str, path: Path, head: Any = None) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise unreadable(where, "this row is no record of fields", "give a record in each row")
    return {"head": head, "file": benchmark_of(path.stem), **value}


def _document(path: Path) -> Iterator[Row]:
    """Yield the rows of a file that is a single JSON value."""
    size = path.stat().st_size
    if size > LARGEST_DOCUMENT:
        raise unreadable(
            path,
            f"it is one JSON value of {size:,} bytes, and may have {LARGEST_DOCUMENT:,}",
            "give a row a line (.jsonl), or for inspect: `inspect log convert --to eval`",
        )
    data = path.read_bytes().removeprefix(codecs.BOM_UTF8)
    value = _value(data, str(path), LARGEST_DOCUMENT)
    for head, rows in _inside(value):
        for number, row in enumerate(rows, 1):
            where = f"{path}: row {number}"
            yield where, _record(row, where, path, head)


def _inside(value: Any) -> Iterator[tuple[Any, list[Any]]]:
    """Yield the lists of rows in a document, each with the document's other fields."""
    if isinstance(value, list):
        yield None, value
        return
    for path in {form.rows: None for form in FORMS if form.rows}:
        if isinstance(below := find(value, path), list):
            yield {name: field for name, field in value.items() if name != path}, below
            return
    if isinstance(value, Mapping) and not isinstance(find(value, "results"), Mapping):
        yield None, [value]


def _archive(path: Path) -> Iterator[Row]:
    with zipfile.ZipFile(path) as archive:
        names = [member.filename for member in archive.infolist()]
        head = next((name for name in ("header.json", "_journal/start.json") if name in names), None)
        header = None if head is None else _value(_member(archive, head), f"{path}: {head}")
        for name in names:
            if name.startswith("samples/") and not name.endswith("/"):
                where = f"{path}: {shown(name)}"
                yield where, _record(_value(_member(archive, name), where), where, path, header)


def _member(archive: zipfile.ZipFile, name: str) -> bytes:
    """Return at most `LONGEST_ROW + 1` bytes of a member, whatever length its header says.

    `zipfile` reads no zstd before Python 3.14, and inspect writes it.
    """
    info = archive.getinfo(name)
    if info.compress_type not in UNPACKED:
        raise unreadable(
            f"{archive.filename}: {shown(name)}",
            f"it is packed in the way {info.compress_type}, and what is stored, deflated or packed by zstd is read",
            "write the log again: `inspect log convert --to eval`",
        )
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
    """Yield the rows of a CSV file."""
    csv.field_size_limit(LONGEST_ROW)
    reader = csv.DictReader((line.decode() for line in _split(path)), strict=True)
    for name, count in Counter(reader.fieldnames).items():
        if name and count > 1:
            raise unreadable(path, f"it has {count} columns `{shown(name)}`", "give each a name of its own")
    for number, row in enumerate(reader, 2):
        where = f"{path}: row {number}"
        if None in row or None in row.values():
            raise unreadable(where, "this row has more or fewer values than there are columns", "mend it")
        yield where, _record({name: value or None for name, value in row.items()}, where, path)


def _parquet(path: Path) -> Iterator[Row]:
    frame = pl.scan_parquet(path, glob=False)
    count = frame.select(pl.len()).collect().item()
    for first in range(0, count, AT_ONCE):
        for number, row in enumerate(frame.slice(first, AT_ONCE).collect().iter_slices(1), first + 1):
            where = f"{path}: row {number}"
            if (size := int(row.estimated_size())) > LONGEST_ROW:
                raise unreadable(where, f"it has {size:,} bytes, and may have {LONGEST_ROW:,}", "take it out")
            yield where, _record(row.row(0, named=True), where, path)
