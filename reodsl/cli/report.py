"""`reodsl report RUN`: the report of a run drawn from its stored results as far as they are, with nothing run."""

from __future__ import annotations

from pathlib import Path

import click

from reodsl.cli import completing
from reodsl.cli.options import Place, known_store_option
from reodsl.cli.place import existing_store


@click.command(
    epilog="""\b
Examples:
  reodsl report quickstart                    the last run of that study, where its report was
  reodsl report 20260101T120000               a run by the start of its name; see `reodsl ls`
  reodsl report quickstart --out /tmp/shown   somewhere else
""",
)
@click.argument("run", shell_complete=completing.runs)
@known_store_option
@click.option(
    "--out",
    type=Place(),
    metavar="DIR",
    help="Where to put it. Default: where the run left its report, or runs/STUDY-DIGEST.",
)
@click.option("--json", "as_json", is_flag=True, help="Print the run's name and the page's place as JSON.")
def command(run: str, store_dir: Path | None, out: Path | None, as_json: bool) -> None:
    """Draw the report of a run, finished or not.

    RUN is a study, or the start of a run's name. The report is made from what the store holds; nothing is trained
    or evaluated, and nothing in the store changes. Use it for a run that is still going, to see what is there so
    far; for a report that was lost or edited; and for one that an earlier version of reodsl drew.
    """
    from reodsl.cli.destination import folder_to_fill
    from reodsl.cli.output import print_json, show
    from reodsl.diagnostics.render import to_json
    from reodsl.report.redraw import redraw
    from reodsl.store.layout import require_place
    from reodsl.store.runs import records, slug
    from reodsl.store.select import pick

    store = existing_store(store_dir)
    record = pick(records(store), run)
    if out is None and record.report is not None:
        out = Path(record.report).parent
    place = folder_to_fill(out or Path("runs") / f"{slug(record.study)}-{record.spec[:8]}")
    require_place(place, store)
    drawn = redraw(store, record, place)
    show(drawn.findings)
    if as_json:
        findings = to_json(drawn.findings)
        print_json(
            {"run": record.name, "study": record.study, "report": str(drawn.page), "diagnostics": findings}
        )
    else:
        click.echo(f"report: {drawn.page}")
