"""Commands that show reports: `report` draws one into a folder, `view` serves all of a store to a browser."""

from __future__ import annotations

import webbrowser
from pathlib import Path
from urllib.parse import quote

import click

from reodsl.cli.options import PathOption, complete_runs, existing_store, known_store_option
from reodsl.cli.output import folder_to_fill, print_json, show
from reodsl.diagnostics.render import to_json
from reodsl.store.layout import require_place, run_folder
from reodsl.store.runs import pick, records


@click.command(
    epilog="""\b
Examples:
  reodsl report quickstart                    the last run of that study, where its report was
  reodsl report 20260101T120000               a run by the start of its name; see `reodsl ls`
  reodsl report quickstart --out /tmp/shown   somewhere else
"""
)
@click.argument("run", shell_complete=complete_runs)
@known_store_option
@click.option(
    "--out",
    type=PathOption(),
    metavar="DIR",
    help="Where to put it. Default: where the run left its report, or a folder in runs/.",
)
@click.option("--pictures", is_flag=True, help="Write each chart as PDF and SVG for a paper's column too.")
@click.option("--json", "as_json", is_flag=True, help="Print the run's name and the page's path as JSON.")
def report_command(run: str, store_dir: Path | None, out: Path | None, pictures: bool, as_json: bool) -> None:
    """Draw the report of a run, finished or not.

    RUN is a study, or the start of a run's name. The report is made from what the store holds; nothing is trained
    or evaluated, and nothing in the store changes. Use it to see the results so far
    of a run that is still going, or to replace a report that was lost, edited, or drawn by an earlier version.

    Args:
        run: Name of a study, or the start of a run's name.
        store_dir: Folder of the store, or None to look for it.
        out: Folder for the report, or None for the folder where the run left its report.
        pictures: Whether to write each chart as PDF and SVG too.
        as_json: Whether to print JSON instead of text.
    """
    from reodsl.report.run import redraw
    from reodsl.report.verdict_words import read_verdict

    store = existing_store(store_dir)
    record = pick(records(store), run)
    if out is None and record.report is not None:
        out = Path(record.report).parent
    folder = folder_to_fill(out or run_folder(record.study, record.spec))
    require_place(folder, store)
    report = redraw(store, record, folder, pictures)
    show(report.findings)
    if not as_json:
        click.echo(f"report: {report.page}")
        return
    findings = to_json(report.findings)
    about = {"run": record.name, "study": record.study}
    verdict = read_verdict(report.page.parent)
    print_json({**about, "report": str(report.page), "verdict": verdict, "diagnostics": findings})


@click.command(
    short_help="Look at runs, reports and every response in a browser.",
    epilog="""\b
Examples:
  reodsl view                    every run of the store
  reodsl view quickstart         the report of the latest run of that study, as it grows
  reodsl view --port 9000        at a port of your choice, so that links stay good

On another machine: ssh -L 8377:127.0.0.1:8377 HOST, and open the address here.
""",
)
@click.argument("run", required=False, shell_complete=complete_runs)
@known_store_option
@click.option(
    "--port",
    type=click.IntRange(1, 65535),
    metavar="PORT",
    help="Where to listen. Default: 8377, or one that is free.",
)
@click.option("--open", "opens", is_flag=True, help="Open the page in this machine's browser.")
def view_command(run: str | None, store_dir: Path | None, port: int | None, opens: bool) -> None:
    """Serve a page that shows a store, to this machine alone, until Ctrl-C.

    The page lists runs, and shows each run's report as it grows and every response: filtered, cut at a budget with the
    answer forced there, and two arms beside each other. Its address has a key in it: whoever has the address can read the
    store while this runs.

    Args:
        run: Name of a study, or the start of a run's name, whose report is opened first; None for the list of runs.
        store_dir: Folder of the store, or None to look for it.
        port: Port to listen on, or None for the usual port or a free port.
        opens: Whether to open the page in this machine's browser.
    """
    from reodsl.view.api import Api
    from reodsl.view.server import Viewer, key_place, read_key

    store = existing_store(store_dir)
    chosen = f"report/{quote(pick(records(store), run).name)}" if run is not None else ""
    with Viewer(Api(store), read_key(key_place()), port) as viewer:
        if viewer.moved:
            click.echo(f"the usual port is in use; using {viewer.server_port}", err=True)
        address = viewer.address + chosen
        click.echo(f"view: {address}")
        if opens and not webbrowser.open(address):
            click.echo("no browser can be opened here; open the address by hand", err=True)
        try:
            viewer.serve_forever()
        except KeyboardInterrupt:
            click.echo("closed", err=True)
