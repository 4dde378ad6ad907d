"""What every command prints alike: diagnostics to stderr, facts as JSON to stdout."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

import click

from reodsl.diagnostics import Diagnostic
from reodsl.diagnostics.render import render, sort_diagnostics
from reodsl.diagnostics.words import listed

MOST_SHOWN = 100


def show(diagnostics: Iterable[Diagnostic], sources: Mapping[str, str] | None = None) -> None:
    """Write diagnostics to stderr, each with its line where the source is at hand; colour on a terminal only.

    Past `MOST_SHOWN` they are only counted: mending the first ones is what helps.
    """
    every = sort_diagnostics(diagnostics)
    text = render(every[:MOST_SHOWN], sources or {}, color=colourful())
    if text:
        click.echo(text, err=True)
    if len(every) > MOST_SHOWN:
        click.echo(f"and {len(every) - MOST_SHOWN} more, not shown\n", err=True)


def colourful() -> bool:
    """Return whether stderr is a terminal that wants colour: NO_COLOR (no-color.org) and a dumb one do not."""
    return sys.stderr.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def located(by_task: Mapping[str, Iterable[Diagnostic]]) -> list[Diagnostic]:
    """Return the findings of tasks, each once, with its tasks named: as its place if it has none, else in a note.

    A store that refuses all tasks alike is no matter of one of them.
    """
    tasks: dict[Diagnostic, list[str]] = {}
    for task, diagnostics in by_task.items():
        for diagnostic in diagnostics:
            tasks.setdefault(diagnostic, []).append(task)
    return [_in_tasks(diagnostic, names) for diagnostic, names in tasks.items()]


def _in_tasks(diagnostic: Diagnostic, names: list[str]) -> Diagnostic:
    words = listed(names, 3)
    if diagnostic.code in ("E0950", "E0951") or any(name in (diagnostic.where or "") for name in names):
        return diagnostic
    if not diagnostic.labels and diagnostic.where is None:
        return replace(diagnostic, where=words)
    return replace(diagnostic, notes=(*diagnostic.notes, f"in {words}"))


def print_json(value: Any) -> None:
    """One JSON document on stdout, keys in the order given."""
    click.echo(json.dumps(value, indent=2, ensure_ascii=False, allow_nan=False))


def failed(diagnostics: Iterable[Diagnostic]) -> bool:
    """Return whether any of them is an error."""
    return any(diagnostic.severity == "error" for diagnostic in diagnostics)
