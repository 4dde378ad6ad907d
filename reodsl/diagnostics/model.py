"""Diagnostics: a code, a message, the places it is about, notes and a help line."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, TypedDict, Unpack

Severity = Literal["error", "warning", "note"]


class Span(NamedTuple):
    """A span of a source.

    A text has a span for each word, and a named tuple is made in half the time of a frozen dataclass.
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
    """A finding."""

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
    """The parts of a diagnostic that are passed by name; `labels` follow the primary label."""

    labels: Sequence[Label]
    where: str | None
    notes: Sequence[str]
    help: str | None
    edits: Sequence[Edit]


def _make(
    severity: Severity, code: str, message: str, span: Span | None, text: str, details: Details
) -> Diagnostic:
    """Return a diagnostic, without notes that repeat its help."""
    primary = () if span is None else (Label(span, text),)
    help = details.get("help")
    # A help line that lists what there is makes a note that lists it superfluous.
    notes = tuple(line for line in details.get("notes", ()) if line != help)
    labels = (*primary, *details.get("labels", ()))
    return Diagnostic(
        code, severity, message, labels, details.get("where"), notes, help, tuple(details.get("edits", ()))
    )


def error(
    code: str, message: str, span: Span | None = None, text: str = "", **details: Unpack[Details]
) -> Diagnostic:
    """Make an error; the command that shows it exits with 1."""
    return _make("error", code, message, span, text, details)


def warning(
    code: str, message: str, span: Span | None = None, text: str = "", **details: Unpack[Details]
) -> Diagnostic:
    """Make a warning of something legal that is most likely a mistake."""
    return _make("warning", code, message, span, text, details)


def note(
    code: str, message: str, span: Span | None = None, text: str = "", **details: Unpack[Details]
) -> Diagnostic:
    """Make a note of a fact worth seeing, as a setting that differs from the paper's table."""
    return _make("note", code, message, span, text, details)


class Problem(Exception):
    """Raised at an edge with effects (a file, a process, a cluster); the command line shows its diagnostics.

    Pure functions return diagnostics; only code that reads, writes or runs raises this. No other exception
    is meant to reach a user.
    """

    def __init__(self, *diagnostics: Diagnostic) -> None:
        super().__init__("; ".join(d.message for d in diagnostics))
        self.diagnostics = diagnostics

    def __reduce__(self) -> tuple[type[Problem], tuple[Diagnostic, ...]]:
        # Exceptions pickle by their message; ours cross process borders whole.
        return (Problem, self.diagnostics)


def problem(
    code: str, message: str, *, where: str | None = None, notes: Sequence[str] = (), help: str | None = None
) -> Problem:
    """Make a `Problem` with an error: what went wrong, where, and what to do instead."""
    return Problem(error(code, message, where=where, notes=notes, help=help))


def first_line(fault: BaseException, otherwise: str | None = None, most: int = 200) -> str:
    """Return the first line of an exception's message, of at most `most` characters.

    An empty message gives `otherwise`, or the exception's name.
    """
    lines = str(fault).strip().splitlines()
    return lines[0][:most] if lines else type(fault).__name__ if otherwise is None else otherwise


def misread(fault: Exception) -> str:
    """Return what is wrong with a JSON file: the first mistake, with its position."""
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


def listed(names: Sequence[str], most: int, joint: str = ", ", total: int | None = None) -> str:
    """Return the first `most` names, and how many more are in `names` or in `total`: `a, b and 3 more`."""
    rest = (len(names) if total is None else total) - min(len(names), most)
    return joint.join(names[:most]) + (f" and {rest} more" if rest > 0 else "")


def plural(count: int, noun: str) -> str:
    """Return `1 seed`, `3 seeds`."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def fold(line: str, columns: int) -> list[str]:
    """Return a line as lines of at most `columns` columns, the later lines indented further; no word is broken."""
    if len(line) <= columns:
        return [line]
    indent = len(line) - len(line.lstrip())
    below = indent if indent >= 6 else indent + 4
    return textwrap.wrap(
        line, columns, subsequent_indent=" " * below, break_long_words=False, break_on_hyphens=False
    ) or [line]


def shorten_text(text: str, most: int = 60) -> str:
    """Return a text without line breaks of at most `most` characters, with `…` at the end if it was cut."""
    line = " ".join(text.split())
    return line if len(line) <= most else line[: most - 1] + "…"


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
    """Return E0121 for a missing module of an extra, or None for a module that no extra has, which is a defect."""
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
