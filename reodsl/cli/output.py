"""Write the output that commands share: diagnostics to stderr, facts as JSON to stdout, files where they may be written."""

from __future__ import annotations

import json
import os
import shutil
import stat
import sys
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import click

from reodsl.diagnostics import Diagnostic, Problem, fold, listed, problem
from reodsl.diagnostics.render import render, sort_diagnostics

MOST_SHOWN = 100


def show(diagnostics: Iterable[Diagnostic], sources: Mapping[str, str] | None = None) -> None:
    """Write diagnostics to stderr, each with its line where the source is at hand; colour on a terminal only.

    Past `MOST_SHOWN` they are only counted: mending the first ones is what helps.
    """
    every = sort_diagnostics(diagnostics)
    columns = shutil.get_terminal_size().columns if sys.stderr.isatty() else None
    text = render(every[:MOST_SHOWN], sources or {}, color=colourful(), columns=columns)
    if text:
        click.echo(text, err=True)
    if len(every) > MOST_SHOWN:
        click.echo(f"and {len(every) - MOST_SHOWN} more, not shown\n", err=True)


def colourful() -> bool:
    """Return whether stderr is a terminal that wants colour: NO_COLOR (no-color.org) and a dumb one do not."""
    return sys.stderr.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def gather_findings(by_task: Mapping[str, Iterable[Diagnostic]]) -> list[Diagnostic]:
    """Return the findings of tasks, each once, with its tasks named: as its place if it has none, else in a note.

    A store that refuses all tasks alike is no matter of one of them.
    """
    tasks: dict[Diagnostic, list[str]] = {}
    for task, diagnostics in by_task.items():
        for diagnostic in diagnostics:
            tasks.setdefault(diagnostic, []).append(task)
    return [_name_tasks(diagnostic, names) for diagnostic, names in tasks.items()]


def _name_tasks(diagnostic: Diagnostic, names: list[str]) -> Diagnostic:
    words = listed(names, 3)
    if diagnostic.code == "E0950" or any(name in (diagnostic.where or "") for name in names):
        return diagnostic
    if not diagnostic.labels and diagnostic.where is None:
        return replace(diagnostic, where=words)
    return replace(diagnostic, notes=(*diagnostic.notes, f"in {words}"))


def terminal_columns() -> int | None:
    """Return the width of the terminal that stdout is, in characters; None where it is none."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else None


def print_text(text: str) -> None:
    """Print lines to stdout; in a terminal, those that are too long on several, and no word is broken."""
    columns = terminal_columns()
    lines = text.split("\n")
    click.echo(
        "\n".join(lines if columns is None else [part for line in lines for part in fold(line, columns)])
    )


def print_json(value: Any) -> None:
    """One JSON document on stdout, keys in the order given."""
    click.echo(json.dumps(value, indent=2, ensure_ascii=False, allow_nan=False))


def lay_columns(rows: Iterable[Sequence[str]], left: int = 0) -> list[str]:
    """Return the rows of a table as lines, its first `left` columns to the left and the others to the right."""
    lines = list(rows)
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    return [
        "  ".join(
            f"{cell:<{width}}" if place < left else f"{cell:>{width}}"
            for place, (cell, width) in enumerate(zip(line, widths, strict=True))
        )
        for line in lines
    ]


def has_error(diagnostics: Iterable[Diagnostic]) -> bool:
    """Return whether any of them is an error."""
    return any(diagnostic.severity == "error" for diagnostic in diagnostics)


ANOTHER = "name another place with --out"


def file_to_write(path: Path, reads: Iterable[Path] = (), remedy: str = ANOTHER) -> Path:
    """Return the file that `path` is, links followed. Nothing is created: its folder need not exist yet.

    Raises `Problem` E0118 with the `remedy` for a device or folder, a file that the command itself reads, or a folder
    that cannot be made.
    """
    try:
        place = path.resolve()
        status = place.stat() if place.exists() else None
        read = status is not None and any(each.exists() and each.samefile(place) for each in reads)
    except (OSError, RuntimeError, ValueError) as cause:
        raise _refuse_path(path, str(getattr(cause, "strerror", None) or cause), remedy) from None
    if status is not None and not stat.S_ISREG(status.st_mode):
        what = "it is a folder" if stat.S_ISDIR(status.st_mode) else "it is a device or a pipe"
        raise _refuse_path(path, what, remedy)
    if read:
        raise _refuse_path(path, "this command reads it, and would overwrite it", remedy)
    folder_to_fill(place.parent, remedy)
    return place


def folder_to_fill(path: Path, remedy: str = ANOTHER) -> Path:
    """`path`, where files can be put into it; it need not exist yet, and nothing is left there.

    Asked before hours of work whose end would be the refusal. Raises `Problem` E0118.
    """
    try:
        there = next(each for each in (path.absolute(), *path.absolute().parents) if os.path.lexists(each))
        if not there.is_dir():
            raise _refuse_path(path, f"{there} is not a folder", remedy)
        with tempfile.TemporaryFile(dir=there):
            pass
    except (OSError, ValueError) as cause:
        raise _refuse_path(path, str(getattr(cause, "strerror", None) or cause), remedy) from None
    return path


def _refuse_path(path: Path, reason: str, remedy: str) -> Problem:
    return problem(
        "E0118",
        f"nothing can be written here: {reason[:1].lower() + reason[1:]}",
        where=str(path),
        help=remedy,
    )
