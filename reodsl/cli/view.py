"""`reodsl view`: a page on this machine with the runs of a store, their reports as they grow, and every response."""

from __future__ import annotations

import webbrowser
from pathlib import Path
from urllib.parse import quote

import click

from reodsl.cli import completing
from reodsl.cli.options import known_store_option
from reodsl.cli.place import existing_store


@click.command(
    short_help="Look at runs, reports and every response in a browser.",
    epilog="""\b
Examples:
  reodsl view                    every run of the store
  reodsl view quickstart         the report of the latest run of that study, as it grows
  reodsl view --port 9000        at a port of your choice, so that links stay good
\b
On another machine: ssh -L 8377:127.0.0.1:8377 HOST, and open the address here.
""",
)
@click.argument("run", required=False, shell_complete=completing.runs)
@known_store_option
@click.option(
    "--port",
    type=click.IntRange(1, 65535),
    metavar="PORT",
    help="Where to listen. Default: 8377, or one that is free.",
)
@click.option("--open", "opens", is_flag=True, help="Open the page in this machine's browser.")
def command(run: str | None, store_dir: Path | None, port: int | None, opens: bool) -> None:
    """Serve a page that shows a store, to this machine alone, until Ctrl-C.

    The page lists runs, and shows each run's report as it grows and every response: filtered, cut at a budget with the
    answer forced there, and two arms beside each other. Its address has a key in it: whoever has the address can read the
    store while this runs.
    """
    from reodsl.store.runs import pick, records
    from reodsl.view.api import Api
    from reodsl.view.server import Viewer, key_place, read_key

    store = existing_store(store_dir)
    chosen = f"report/{quote(pick(records(store), run).name)}" if run is not None else ""
    with Viewer(Api(store), read_key(key_place()), port) as viewer:
        if viewer.moved:
            click.echo(f"the usual port is in use; this is {viewer.server_port}", err=True)
        address = viewer.address + chosen
        click.echo(f"view: {address}")
        if opens and not webbrowser.open(address):
            click.echo("no browser can be opened here; open the address by hand", err=True)
        try:
            viewer.serve_forever()
        except KeyboardInterrupt:
            click.echo("closed", err=True)
