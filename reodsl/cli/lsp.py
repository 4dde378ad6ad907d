"""`reodsl lsp`: the language server, over standard input and output."""

from __future__ import annotations

import click


@click.command(
    short_help="Serve an editor: diagnostics, hover, completion, formatting.",
    epilog="""\b
Examples:
  reodsl lsp       as an editor starts it; docs/TOOLS.md has settings for some
""",
)
def command() -> None:
    """Speak the Language Server Protocol over standard input and output, for an editor that starts it.

    Diagnostics as you type, formatting, what a setting or name means and where its value comes from, its definition
    (in the standard library too), and what may be written next. Nothing in a spec is run, and no network is reached.
    """
    from reodsl.lsp.server import serve

    serve()
