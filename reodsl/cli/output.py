"""What every command prints alike: diagnostics to stderr, facts as JSON to stdout."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Mapping
from typing import Any

import click

from reodsl.diagnostics import Diagnostic
from reodsl.diagnostics.render import in_order, render

MOST_SHOWN = 100


def show(diagnostics: Iterable[Diagnostic], sources: Mapping[str, str] | None = None) -> None:
    """Write diagnostics to stderr, each with its line where the source is at hand; colour on a terminal only.

    Past `MOST_SHOWN` they are only counted: mending the first ones is what helps.
    """
    every = in_order(diagnostics)
    text = render(every[:MOST_SHOWN], sources or {}, color=sys.stderr.isatty())
    if text:
        click.echo(text, err=True)
    if len(every) > MOST_SHOWN:
        click.echo(f"and {len(every) - MOST_SHOWN} more, not shown\n", err=True)


def print_json(value: Any) -> None:
    """One JSON document on stdout, keys in the order given."""
    click.echo(json.dumps(value, indent=2, ensure_ascii=False, allow_nan=False))


def failed(diagnostics: Iterable[Diagnostic]) -> bool:
    """Whether any of them is an error."""
    return any(diagnostic.severity == "error" for diagnostic in diagnostics)
