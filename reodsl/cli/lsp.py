"""`reodsl lsp`: the language server, over standard input and output."""

from __future__ import annotations

import importlib.util

import click

from reodsl.diagnostics import problem


@click.command(
    short_help="Serve editors: diagnostics, hover, definitions, completion, formatting.",
    epilog="""\b
Examples:
  pip install 'reodsl[lsp]'     once
  reodsl lsp                    as an editor starts it; docs/EDITORS.md has settings for some
""",
)
def command() -> None:
    """Speak the Language Server Protocol over standard input and output, for an editor that starts it.

    Diagnostics as you type, formatting, what a setting or name means and where its value comes from, its definition
    (in the standard library too), and what may be written next. Nothing in a spec is run, and no network is reached.
    """
    if importlib.util.find_spec("pygls") is None:
        raise problem(
            "E0121",
            "the language server needs the package `pygls`",
            help="install it with: pip install 'reodsl[lsp]'",
        )
    from reodsl.lsp.server import serve

    serve()
