"""What every command prints alike: diagnostics to stderr, facts as JSON to stdout."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Mapping
from typing import Any

import click

from reodsl.diagnostics import Diagnostic
from reodsl.diagnostics.render import render


def show(diagnostics: Iterable[Diagnostic], sources: Mapping[str, str] | None = None) -> None:
    """Write diagnostics to stderr, each with its line where the source is at hand; colour on a terminal only."""
    text = render(tuple(diagnostics), sources or {}, color=sys.stderr.isatty())
    if text:
        click.echo(text, err=True)


def print_json(value: Any) -> None:
    """One JSON document on stdout, keys in the order given."""
    click.echo(json.dumps(value, indent=2, ensure_ascii=False, allow_nan=False))


def failed(diagnostics: Iterable[Diagnostic]) -> bool:
    """Whether any of them is an error."""
    return any(diagnostic.severity == "error" for diagnostic in diagnostics)
