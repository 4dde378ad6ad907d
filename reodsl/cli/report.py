"""Commands that show reports: `report` draws one into a folder, `view` serves all of a store to a browser."""

from __future__ import annotations

import webbrowser
from pathlib import Path
from urllib.parse import quote

import click

from reodsl.cli.options import Place, complete_runs, existing_store, known_store_option
from reodsl.cli.output import folder_to_fill, print_json, show
from reodsl.diagnostics.render import to_json
from reodsl.ir import digest
from reodsl.store.layout import require_place
from reodsl.store.runs import pick, records, slug


@click.command(
    epilog="""\b
Examples:
  reodsl report quickstart                    the last run of that study, where its report was
  reodsl report 20260101T120000               a run by the start of its name; see `reodsl ls`
  reodsl report quickstart --out /tmp/shown   somewhere else
  reodsl report quickstart mine --compare     the arms of two runs on one page
"""
)
@click.argument("runs", metavar="RUN...", nargs=-1, required=True, shell_complete=complete_runs)
@known_store_option
@click.option(
    "--out",
    type=Place(),
    metavar="DIR",
    help="Where to put it. Default: where the run left its report, or runs/STUDY-DIGEST; of several, runs/compare-….",
)
@click.option("--compare", is_flag=True, help="Draw several runs on one page.")
@click.option("--pictures", is_flag=True, help="Write each chart as PDF and SVG for a paper's column too.")
@click.option("--json", "as_json", is_flag=True, help="Print the run's name and the page's place as JSON.")
def report_command(
    runs: tuple[str, ...],
    store_dir: Path | None,
    out: Path | None,
    compare: bool,
    pictures: bool,
    as_json: bool,
) -> None:
    """Draw the report of a run, finished or not, or compare several.

    RUN is a study, or the start of a run's name. The report is made from what the store holds; nothing is trained
    or evaluated, and nothing in the store changes. Use it for a run that is still going, to see what is there so
    far; for a report that was lost or edited; and for one that an earlier version of reodsl drew.

    A comparison has the arms of all runs in one table, with differences paired by question and seed, and says which
    arms cannot be compared and why.
    """
    from reodsl.report.run import redraw, redraw_together
    from reodsl.report.verdict_words import read_verdict

    if compare and len(runs) == 1:
        raise click.UsageError("name at least two runs to compare")
    if len(runs) > 1 and not compare:
        raise click.UsageError("several runs are drawn on one page with --compare")
    if compare and pictures:
        raise click.UsageError("--pictures goes with one run")
    store = existing_store(store_dir)
    chosen = [pick(records(store), run) for run in runs]
    record = chosen[0]
    if compare:
        studies = "-".join(dict.fromkeys(slug(each.study) for each in chosen))[:60]
        name = f"compare-{studies}-{digest([each.name for each in chosen])[:8]}"
    else:
        name = f"{slug(record.study)}-{record.spec[:8]}"
        if out is None and record.report is not None:
            out = Path(record.report).parent
    place = folder_to_fill(out or Path("runs") / name)
    require_place(place, store)
    drawn = redraw_together(store, chosen, place) if compare else redraw(store, record, place, pictures)
    show(drawn.findings)
    if not as_json:
        click.echo(f"report: {drawn.page}")
        return
    findings = to_json(drawn.findings)
    about: dict[str, object] = {"run": record.name, "study": record.study}
    if compare:
        about = {"runs": [{"run": each.name, "study": each.study} for each in chosen]}
    verdict = read_verdict(drawn.page.parent)
    print_json({**about, "report": str(drawn.page), "verdict": verdict, "diagnostics": findings})


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
    """
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
