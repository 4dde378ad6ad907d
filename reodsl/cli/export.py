"""`reodsl export RUN --to inspect`: a run's evaluations as files that another tool reads, with nothing run."""

from __future__ import annotations

from pathlib import Path

import click

from reodsl.cli import completing
from reodsl.cli.options import Place, known_store_option
from reodsl.cli.place import existing_store


@click.command(
    short_help="Write a run's evaluations for inspect_ai.",
    epilog="""\b
Examples:
  reodsl export quickstart --to inspect              exports/inspect, for: inspect view --log-dir exports/inspect
  reodsl export quickstart --to inspect --arm reo_exp --out logs
""",
)
@click.argument("run", shell_complete=completing.runs)
@click.option("--to", required=True, type=click.Choice(["inspect"]), help="The form of the files.")
@click.option(
    "--arm", "arms", multiple=True, metavar="ARM", help="Only this arm. Repeatable. Default: every arm."
)
@known_store_option
@click.option(
    "--out",
    type=Place(),
    metavar="DIR",
    help="Where to put them. Default: exports/inspect.",
)
@click.option("--json", "as_json", is_flag=True, help="Print the files as JSON.")
def command(
    run: str,
    to: str,
    arms: tuple[str, ...],
    store_dir: Path | None,
    out: Path | None,
    as_json: bool,
) -> None:
    """Write a run's evaluations as logs of inspect_ai.

    RUN is a study, or how a run's name starts. Every response is in the files, with its answer and its answers at each token
    budget; accuracy by budget and REG are in its metadata. Evaluations that are not finished are reported.
    """
    from reodsl.cli.output import folder_to_fill, print_json, show
    from reodsl.diagnostics.render import to_json
    from reodsl.share.evaluated import gather
    from reodsl.share.export import export
    from reodsl.store.runs import pick, records

    store = existing_store(store_dir)
    record = pick(records(store), run)
    place = folder_to_fill(out or Path("exports") / to)
    shared = gather(store, record, arms)
    files = export(shared, place)
    show(shared.findings)
    if as_json:
        print_json(
            {
                "run": record.name,
                "study": record.study,
                "to": to,
                "folder": str(place),
                "files": [str(path.relative_to(place)) for path in files],
                "diagnostics": to_json(shared.findings),
            }
        )
    else:
        click.echo(f"{place}: {len(files)} files")
