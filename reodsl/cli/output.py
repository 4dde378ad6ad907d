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

from reodsl.diagnostics import Diagnostic, Problem, fold, group, listed, problem
from reodsl.diagnostics.render import render, sort_diagnostics

MOST_SHOWN = 100


def show(diagnostics: Iterable[Diagnostic], sources: Mapping[str, str] | None = None) -> None:
    """Write diagnostics to stderr with their source lines, in colour on a terminal.

    At most `MOST_SHOWN` diagnostics are written, and then the number of those that are left out.

    Args:
        diagnostics: Diagnostics in any order.
        sources: Texts of the source files by path, from which the lines are quoted.
    """
    ordered = sort_diagnostics(diagnostics)
    columns = shutil.get_terminal_size().columns if sys.stderr.isatty() else None
    text = render(ordered[:MOST_SHOWN], sources or {}, color=colourful(), columns=columns)
    if text:
        click.echo(text, err=True)
    if len(ordered) > MOST_SHOWN:
        click.echo(f"and {len(ordered) - MOST_SHOWN} more, not shown\n", err=True)


def colourful() -> bool:
    """Return whether stderr is a terminal with colour (see no-color.org)."""
    return sys.stderr.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def gather_findings(by_task: Mapping[str, Iterable[Diagnostic]]) -> list[Diagnostic]:
    """Return the diagnostics of tasks without repetition, each with the names of the tasks that have it.

    E0950, a store that refuses to be written, gets no names, since it concerns all tasks.
    """
    tasks = group((diagnostic, task) for task, diagnostics in by_task.items() for diagnostic in diagnostics)
    return [_name_tasks(diagnostic, names) for diagnostic, names in tasks.items()]


def _name_tasks(diagnostic: Diagnostic, names: list[str]) -> Diagnostic:
    """Return a diagnostic with the names of its tasks, at most three and the number of further tasks.

    The names become the diagnostic's place if it has no place, else a note. E0950, and a diagnostic whose place names one
    of the tasks, stay unchanged.
    """
    task_list = listed(names, 3)
    if diagnostic.code == "E0950" or any(name in (diagnostic.where or "") for name in names):
        return diagnostic
    if not diagnostic.labels and diagnostic.where is None:
        return replace(diagnostic, where=task_list)
    return replace(diagnostic, notes=(*diagnostic.notes, f"in {task_list}"))


def terminal_columns() -> int | None:
    """Return the width of the terminal in characters, or None if stdout is a pipe or a file."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else None


def print_text(text: str) -> None:
    """Print lines to stdout; on a terminal, fold them between words to its width."""
    columns = terminal_columns()
    lines = text.split("\n")
    click.echo(
        "\n".join(lines if columns is None else [piece for line in lines for piece in fold(line, columns)])
    )


def print_json(value: Any) -> None:
    """Print a value as an indented JSON document, with keys in the order of its dictionaries."""
    click.echo(json.dumps(value, indent=2, ensure_ascii=False, allow_nan=False))


def lay_columns(rows: Iterable[Sequence[str]], num_left: int = 0) -> list[str]:
    """Return the rows of a table as lines in which each column is as wide as its widest cell.

    Args:
        rows: Cells by row; every row has the same number of cells.
        num_left: Number of columns, from the left, whose text is aligned left; further columns are aligned right.
    """
    lines = list(rows)
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    return [
        "  ".join(
            f"{cell:<{width}}" if i < num_left else f"{cell:>{width}}"
            for i, (cell, width) in enumerate(zip(line, widths, strict=True))
        )
        for line in lines
    ]


def has_error(diagnostics: Iterable[Diagnostic]) -> bool:
    """Return whether any diagnostic is an error."""
    return any(diagnostic.severity == "error" for diagnostic in diagnostics)


REMEDY = "name another path with --out"


def file_to_write(path: Path, reads: Iterable[Path] = (), remedy: str = REMEDY) -> Path:
    """Check that a command may write a file, and return the path of the file with links followed.

    The file is not created.

    Args:
        path: the file, whose folder need not exist yet.
        reads: files that the command reads, which it must not overwrite.
        remedy: advice to the user in the diagnostic, such as to name another path.

    Raises:
        Problem: E0118 for a device or folder, a file that the command reads, or a folder that cannot be made.
    """
    try:
        target = path.resolve()
        status = target.stat() if target.exists() else None
        read = status is not None and any(source.exists() and source.samefile(target) for source in reads)
    except (OSError, RuntimeError, ValueError) as cause:
        raise _refuse_path(path, str(getattr(cause, "strerror", None) or cause), remedy) from None
    if status is not None and not stat.S_ISREG(status.st_mode):
        reason = "it is a folder" if stat.S_ISDIR(status.st_mode) else "it is a device or a pipe"
        raise _refuse_path(path, reason, remedy)
    if read:
        raise _refuse_path(path, "this command reads it, and would overwrite it", remedy)
    folder_to_fill(target.parent, remedy)
    return target


def folder_to_fill(path: Path, remedy: str = REMEDY) -> Path:
    """Check that files can be written into a folder, and return its path.

    The check writes a temporary file into the folder, or into the nearest existing folder above, and removes the file.

    Args:
        path: the folder, which need not exist yet.
        remedy: advice to the user in the diagnostic, such as to name another path.

    Raises:
        Problem: E0118 if nothing can be written.
    """
    try:
        nearest = next(
            folder for folder in (path.absolute(), *path.absolute().parents) if os.path.lexists(folder)
        )
        if not nearest.is_dir():
            raise _refuse_path(path, f"{nearest} is not a folder", remedy)
        with tempfile.TemporaryFile(dir=nearest):
            pass
    except (OSError, ValueError) as cause:
        raise _refuse_path(path, str(getattr(cause, "strerror", None) or cause), remedy) from None
    return path


def _refuse_path(path: Path, reason: str, remedy: str) -> Problem:
    """Return the diagnostic E0118 for a path that cannot be written, with the reason and advice to the user."""
    return problem(
        "E0118",
        f"nothing can be written here: {reason[:1].lower() + reason[1:]}",
        where=str(path),
        help=remedy,
    )
