"""`reodsl accept SPEC TASK`: keep a result although what makes it changed, and say why for everybody to read."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

import click

from reodsl.cli import completing
from reodsl.cli.options import spec_options
from reodsl.cli.place import prepare
from reodsl.plan.verdict import find


@click.command(
    short_help="Let a result stand although its task would run again.",
    epilog="""\b
Examples:
  reodsl accept specs/quickstart.reo vanilla.train.s1 --because "only the docstring of the data file changed"
  reodsl accept specs/quickstart.reo vanilla.train.s1 --because "same weights" --result 4fd1a2c0
  reodsl why specs/quickstart.reo vanilla.train.s1       (what changed, before; and the reason, afterwards)
""",
)
@click.argument("spec", shell_complete=completing.files)
@click.argument("task", shell_complete=completing.tasks)
@click.option(
    "--because", required=True, metavar="TEXT", help="Why the result still holds; shown in every report."
)
@click.option(
    "--result",
    metavar="KEY",
    help="The result to accept, by the beginning of its key. Default: the one that the task had when the study ran last.",
)
@spec_options
@click.option("--json", "as_json", is_flag=True, help="Print what was accepted as JSON.")
def command(
    spec: str,
    task: str,
    because: str,
    result: str | None,
    sets: tuple[str, ...],
    amends: tuple[str, ...],
    target: str | None,
    store_dir: Path | None,
    as_json: bool,
) -> None:
    """Let an existing result stand for TASK, which would run again because something that makes it changed.

    What was made from the result is then up to date as well. The reason and the change are kept with it, and `why`,
    `ls` and the report show them.
    """
    from reodsl.cli.output import print_json
    from reodsl.plan.verdict import accept

    ready = prepare(spec, sets, amends, target, store_dir).for_run()
    plan = ready.plan()
    done = accept(plan, ready.store, ready.keys, find(plan, task), because, result)
    if as_json:
        print_json(asdict(done))
        return
    click.echo(f"accepted {done.task}: the result {done.result[:8]} stands for it, although")
    for change in done.changes:
        click.echo(f"  {change}")
    work = [item for item in ready.plan().items if item.verdict != "reuse"]
    count = len(work)
    click.echo(f"{count} task{'' if count == 1 else 's'} left to run" if count else "Nothing is left to run.")
