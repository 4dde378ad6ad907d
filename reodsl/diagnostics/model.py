"""Diagnostics: a code, a message, the places it is about, notes and a help line."""

from __future__ import annotations

import json
import re
import textwrap
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, TypedDict, TypeVar, Unpack

Key = TypeVar("Key")
Item = TypeVar("Item")
Severity = Literal["error", "warning", "note"]


class Span(NamedTuple):
    """A span of a source.

    A named tuple is created in half the time of a frozen dataclass, and a text has a span for each word.
    """

    path: str
    """The path that the user sees."""
    line: int
    """The first line, from 1."""
    column: int
    """The first column, from 1."""
    end_line: int
    """The last line."""
    end_column: int
    """The column behind the last character."""


@dataclass(frozen=True, slots=True)
class Label:
    """A span and the words beside its underline: `65536 tokens, set here`."""

    span: Span
    text: str = ""


@dataclass(frozen=True, slots=True)
class Edit:
    """A text that replaces a span, or is inserted at an empty span."""

    span: Span
    text: str


@dataclass(frozen=True, slots=True)
class Diagnostic:
    """A finding about a spec, a file or a run."""

    code: str
    """The stable code, as `E0402`."""
    severity: Severity
    """An error, a warning or a note."""
    message: str
    """The mistake, with the value."""
    labels: tuple[Label, ...] = ()
    """The spans it is about, the primary span first."""
    where: str | None = None
    """The subject if that is no span: a file, a column, a row, a task."""
    notes: tuple[str, ...] = ()
    """Further facts."""
    help: str | None = None
    """The text to write instead."""
    edits: tuple[Edit, ...] = ()
    """Edits that do what the help says."""


class Details(TypedDict, total=False):
    """The optional fields of a diagnostic, for keyword arguments; `labels` follow the primary label."""

    labels: Sequence[Label]
    where: str | None
    notes: Sequence[str]
    help: str | None
    edits: Sequence[Edit]


def _make_diagnostic(
    severity: Severity, code: str, message: str, span: Span | None, text: str, details: Details
) -> Diagnostic:
    """Return a diagnostic.

    Args:
        severity: `error`, `warning` or `note`.
        code: The stable code, as `E0402`.
        message: The mistake, with the value.
        span: The primary span; None for a finding without a position in a source.
        text: The words beside the primary span's underline.
        details: Further fields of the diagnostic. A note that repeats the help line is dropped.
    """
    primary = () if span is None else (Label(span, text),)
    help, where = (line and shorten_words(line) for line in (details.get("help"), details.get("where")))
    notes = tuple(shorten_words(line) for line in details.get("notes", ()) if line != details.get("help"))
    labels = (*primary, *details.get("labels", ()))
    return Diagnostic(
        code, severity, shorten_words(message), labels, where, notes, help, tuple(details.get("edits", ()))
    )


def error(
    code: str, message: str, span: Span | None = None, text: str = "", **details: Unpack[Details]
) -> Diagnostic:
    """Return an error; a command that shows an error exits with 1.

    Args:
        code: The stable code, as `E0402`.
        message: The mistake, with the value.
        span: The primary span; None for a finding without a position in a source.
        text: The words beside the underline.
        **details: Further fields: `labels`, `where`, `notes`, `help` and `edits`.
    """
    return _make_diagnostic("error", code, message, span, text, details)


def warning(
    code: str, message: str, span: Span | None = None, text: str = "", **details: Unpack[Details]
) -> Diagnostic:
    """Return a warning: the input is legal but most likely a mistake.

    Args:
        code: The stable code, as `W0520`.
        message: What is probably wrong, with the value.
        span: The primary span; None for a finding without a position in a source.
        text: The words beside the underline.
        **details: Further fields: `labels`, `where`, `notes`, `help` and `edits`.
    """
    return _make_diagnostic("warning", code, message, span, text, details)


def note(
    code: str, message: str, span: Span | None = None, text: str = "", **details: Unpack[Details]
) -> Diagnostic:
    """Return a note: a fact worth seeing, as a setting that differs from the paper's.

    Args:
        code: The stable code, as `N0101`.
        message: The fact, with the value.
        span: The primary span; None for a finding without a position in a source.
        text: The words beside the underline.
        **details: Further fields: `labels`, `where`, `notes`, `help` and `edits`.
    """
    return _make_diagnostic("note", code, message, span, text, details)


class Problem(Exception):
    """The exception for findings at an edge with effects: a file, a process, a cluster. Commands show its diagnostics.

    Pure functions return diagnostics; only code that reads, writes or runs raises a `Problem`. No other
    exception is meant to reach a user.
    """

    def __init__(self, *diagnostics: Diagnostic) -> None:
        super().__init__("; ".join(d.message for d in diagnostics))
        self.diagnostics = diagnostics

    def __reduce__(self) -> tuple[type[Problem], tuple[Diagnostic, ...]]:
        """Return what pickle needs to rebuild the exception; by default it would keep the message only."""
        return (Problem, self.diagnostics)


def problem(
    code: str, message: str, *, where: str | None = None, notes: Sequence[str] = (), help: str | None = None
) -> Problem:
    """Return a `Problem` with a single error.

    Args:
        code: The stable code, as `E0402`.
        message: What went wrong, with the value.
        where: The subject of the error: a file, a column, a row, a task.
        notes: Further facts.
        help: What to do instead.
    """
    return Problem(error(code, message, where=where, notes=notes, help=help))


def refuse(finding: Diagnostic | None) -> None:
    """Raise a Problem with what a check found, if it found anything."""
    if finding is not None:
        raise Problem(finding)


def first_line(fault: BaseException, fallback: str | None = None, max_characters: int = 200) -> str:
    """Return the first line of an exception's message, cut to `max_characters` characters.

    Args:
        fault: The exception.
        fallback: The text for an empty message; by default the name of the exception's class.
        max_characters: The largest number of characters.
    """
    lines = str(fault).strip().splitlines()
    return lines[0][:max_characters] if lines else type(fault).__name__ if fallback is None else fallback


def misread(fault: Exception) -> str:
    """Return the first mistake in a JSON file, with its position, from the exception of reading the file.

    Args:
        fault: The exception of pydantic's validation, of `json`, of decoding UTF-8, or of a missing key.
    """
    errors: Any = getattr(fault, "errors", None)
    if callable(errors):
        first = errors()[0]
        path = ".".join(map(str, first["loc"]))
        return f"`{path}`: {first['msg']}" if path else str(first["msg"])
    match fault:
        case UnicodeDecodeError():
            return f"it is not UTF-8 text: byte {fault.start} is 0x{fault.object[fault.start]:02x}"
        case json.JSONDecodeError():
            return f"it is not JSON: {fault.msg} at line {fault.lineno}, column {fault.colno}"
        case RecursionError():
            return "it is nested too deeply"
        case KeyError():
            return f"it has no `{fault.args[0]}`"
        case ValueError() if "integer string conversion" in str(fault):
            return "a number in it has thousands of digits"
    return first_line(fault)


def listed(names: Sequence[str], max_names: int, joint: str = ", ", total: int | None = None) -> str:
    """Return the first `max_names` names and the number of further names: `a, b and 3 more`.

    Args:
        names: The names to list.
        max_names: The largest number of names to show.
        joint: The text between two names.
        total: The number of all names, if `names` has only some of them.
    """
    num_omitted = (len(names) if total is None else total) - min(len(names), max_names)
    return joint.join(names[:max_names]) + (f" and {num_omitted} more" if num_omitted > 0 else "")


def join_words(words: Iterable[str], conjunction: str = "and") -> str:
    """Return words, at least one, as a list in a sentence: `a`, `a and b`, `a, b and c`."""
    *first, last = words
    return f"{', '.join(first)} {conjunction} {last}" if first else last


def group(pairs: Iterable[tuple[Key, Item]]) -> dict[Key, list[Item]]:
    """Return the items of each key, as (key, item) pairs give them: the arms by reason of `(reason, arm)`.

    Keys have the order of their first items.
    """
    groups: dict[Key, list[Item]] = {}
    for key, item in pairs:
        groups.setdefault(key, []).append(item)
    return groups


def plural(count: int, noun: str) -> str:
    """Return a count with its noun: `1 seed`, `3 seeds`."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


ROUNDING = 1e-9
"""The distance within which a share counts as exactly 0 or 1, since sums are rounded."""


def in_percent(share: float, digits: int = 0) -> str:
    """Return a share in percent without a percent sign, never rounded to `0` or `100`: .996 is `99`.

    Args:
        share: 0 to 1.
        digits: Digits after the point.

    Returns:
        The text; `0` or `100` only for a share of exactly 0 or 1.
    """
    least = 10.0**-digits
    value = 100 * share
    if ROUNDING < share < 1 - ROUNDING:
        value = min(max(value, least), 100 - least)
    return f"{value:.{digits}f}"


def fold(line: str, columns: int) -> list[str]:
    """Return a line as lines of at most `columns` columns, without breaking words.

    Later lines are indented by four more columns, or like the first line if it is indented by six or more.
    """
    if len(line) <= columns:
        return [line]
    indent = len(line) - len(line.lstrip())
    indent_below = indent if indent >= 6 else indent + 4
    return textwrap.wrap(
        line, columns, subsequent_indent=" " * indent_below, break_long_words=False, break_on_hyphens=False
    ) or [line]


def shorten_text(text: str, most: int = 60) -> str:
    """Return a text without line breaks of at most `most` characters, with `…` at the end if it was cut."""
    line = " ".join(text.split())
    return line if len(line) <= most else line[: most - 1] + "…"


_ESCAPES = {"\n": "\\n", "\t": "\\t", "\r": "\\r", '"': '\\"', "\\": "\\\\"}


def quote(value: str) -> str:
    """Return a text in double quotes as a spec writes it: characters that cannot be printed are escaped."""
    spelled = (_ESCAPES.get(it, it if it.isprintable() else f"\\u{{{ord(it):x}}}") for it in value)
    return f'"{"".join(spelled)}"'


def shorten_words(text: str) -> str:
    """Return a text in which names and numbers of more than 255 characters are cut to 60; paths stay as they are.

    A name of a file has at most 255 bytes, so what is longer between two slashes names nothing that a user could open.
    """
    return re.sub(r"[^\s/'\"`]{256,}", lambda word: shorten_text(word[0]), text)


class RepeatedName(ValueError):
    """A name that a JSON object has twice."""


def unique_record(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return the fields of a JSON object, for `object_pairs_hook`. Raises RepeatedName if a name occurs twice."""
    record: dict[str, Any] = {}
    for name, value in pairs:
        if name in record:
            raise RepeatedName(f"`{shorten_text(name)}` is listed twice")
        record[name] = value
    return record


EXTRAS = {
    "run": (
        "torch",
        "transformers",
        "tokenizers",
        "safetensors",
        "math_verify",
        "ray",
        "httpx",
        "orjson",
        "psutil",
        "tensorboard",
        "zstandard",
    ),
    "report": ("numpy", "polars", "altair", "vl_convert", "rich"),
    "hub": ("huggingface_hub", "datasets"),
    "gym": ("reasoning_gym",),
}
"""The modules of each extra, by the names that they are imported by."""


def missing_extra(error: ModuleNotFoundError) -> Problem | None:
    """Return E0121 for a missing module that belongs to an optional extra of this package.

    Args:
        error: The exception of the import.

    Returns:
        The problem, with the `pip install` command; None if no extra has the module. In this case the program
        has a defect, and the caller raises the exception again.
    """
    module = (error.name or "").partition(".")[0]
    extra = next((extra for extra, modules in EXTRAS.items() if module in modules), None)
    if extra is None:
        return None
    return problem(
        "E0121",
        f"this needs the package `{module.replace('_', '-')}`, which is not installed",
        notes=["checking, formatting, planning and the language server work without it"],
        help=f"install it with: pip install 'reodsl[{extra}]'",
    )
