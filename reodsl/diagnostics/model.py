"""Diagnostics: a code, a message, the places it is about, notes and a help line."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, TypedDict, Unpack

Severity = Literal["error", "warning", "note"]


class Span(NamedTuple):
    """A place in a source: `path` as shown to the user, 1-based lines and columns, `end_column` exclusive.

    A text has one for each of its words, and a named tuple is made in half the time of a frozen dataclass.
    """

    path: str
    line: int
    column: int
    end_line: int
    end_column: int


@dataclass(frozen=True, slots=True)
class Label:
    """A span and the words beside its underline, such as `65536 tokens, set here`."""

    span: Span
    text: str = ""


@dataclass(frozen=True, slots=True)
class Edit:
    """A text that takes the place of a span; nothing is replaced where the span is empty."""

    span: Span
    text: str


@dataclass(frozen=True, slots=True)
class Diagnostic:
    """One finding. `code` is stable (`E0402`); `labels[0]`, when there is one, is the primary place.

    `where` names a place that is no source span: a file, a column, a row, a task. Each of `edits` does what the help says.
    """

    code: str
    severity: Severity
    message: str
    labels: tuple[Label, ...] = ()
    where: str | None = None
    notes: tuple[str, ...] = ()
    help: str | None = None
    edits: tuple[Edit, ...] = ()


class Details(TypedDict, total=False):
    """The parts of a diagnostic that are given by name; `others` are labels after the primary one."""

    others: Sequence[Label]
    where: str | None
    notes: Sequence[str]
    help: str | None
    edits: Sequence[Edit]


def _make(
    severity: Severity, code: str, message: str, span: Span | None, text: str, details: Details
) -> Diagnostic:
    primary = () if span is None else (Label(span, text),)
    help = details.get("help")
    # A help line that lists what there is makes a note that lists it superfluous.
    kept = tuple(each for each in details.get("notes", ()) if each != help)
    labels = (*primary, *details.get("others", ()))
    return Diagnostic(
        code, severity, message, labels, details.get("where"), kept, help, tuple(details.get("edits", ()))
    )


def error(
    code: str, message: str, span: Span | None = None, text: str = "", **details: Unpack[Details]
) -> Diagnostic:
    """Make an error; the command that shows it exits with 1."""
    return _make("error", code, message, span, text, details)


def warning(
    code: str, message: str, span: Span | None = None, text: str = "", **details: Unpack[Details]
) -> Diagnostic:
    """Make a warning, of something legal that is most likely not what was meant."""
    return _make("warning", code, message, span, text, details)


def note(
    code: str, message: str, span: Span | None = None, text: str = "", **details: Unpack[Details]
) -> Diagnostic:
    """Make a note of a fact worth seeing, such as a setting that differs from the paper's table."""
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
    code: str,
    message: str,
    *,
    where: str | None = None,
    notes: Sequence[str] = (),
    help: str | None = None,
) -> Problem:
    """Make a `Problem` with one error: what went wrong, where, and what to do instead."""
    return Problem(error(code, message, where=where, notes=notes, help=help))


def first_line(fault: BaseException, otherwise: str | None = None, most: int = 200) -> str:
    """Get the first line with words, at most `most` characters of it; else `otherwise` or the exception's name."""
    lines = str(fault).strip().splitlines()
    return lines[0][:most] if lines else type(fault).__name__ if otherwise is None else otherwise


def misread(fault: Exception) -> str:
    """Say what is wrong with a JSON file: the first mistake, with its place."""
    errors: Any = getattr(fault, "errors", None)
    if callable(errors):
        first = errors()[0]
        place = ".".join(map(str, first["loc"]))
        return f"`{place}`: {first['msg']}" if place else str(first["msg"])
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
    """Return the first `most` names, and how many more there are of all or of `total`: `a, b and 3 more`."""
    rest = (len(names) if total is None else total) - min(len(names), most)
    return joint.join(names[:most]) + (f" and {rest} more" if rest > 0 else "")


def plural(count: int, noun: str) -> str:
    """Return `1 seed`, `3 seeds`."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def fold(line: str, columns: int) -> list[str]:
    """Return a line as several of at most so many columns, the later ones further in; no word is broken."""
    if len(line) <= columns:
        return [line]
    indent = len(line) - len(line.lstrip())
    below = indent if indent >= 6 else indent + 4
    return textwrap.wrap(
        line, columns, subsequent_indent=" " * below, break_long_words=False, break_on_hyphens=False
    ) or [line]


def shorten_text(text: str, most: int = 60) -> str:
    """Return a text on one line of at most so many characters, the last of which is `…` where some are missing."""
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
    """E0121 for a module that comes with an extra; None for one that no extra brings, which is a defect."""
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
