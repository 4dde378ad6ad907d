"""`reodsl plan SPEC`: what a run would do now, task by task, why, and for how much."""

from __future__ import annotations

from pathlib import Path

import click

from reodsl.cli import completing
from reodsl.cli.options import Place, spec_options
from reodsl.cli.place import prepare, wrong_files


@click.command(
    epilog="""\b
Examples:
  reodsl plan specs/quickstart.reo
  reodsl plan specs/quickstart.reo --set n=10 --all
  reodsl plan specs/quickstart.reo --json
  reodsl plan --markdown -- specs/quickstart.reo     (for a pull request; see docs/TOOLS.md)
  reodsl plan specs/quickstart.reo --out plan.json   (then: reodsl run plan.json)
""",
)
@click.argument("spec", shell_complete=completing.files)
@spec_options
@click.option("--all", "everything", is_flag=True, help="Show the unchanged tasks too.")
@click.option("--json", "as_json", is_flag=True, help="Print the plan as JSON.")
@click.option(
    "--markdown", is_flag=True, help="Print the plan as Markdown, for a page such as a pull request's."
)
@click.option(
    "--out",
    type=Place(),
    metavar="FILE",
    help="Save the plan, to be run with `reodsl run FILE`.",
)
def command(
    spec: str,
    sets: tuple[str, ...],
    amends: tuple[str, ...],
    target: str | None,
    store_dir: Path | None,
    everything: bool,
    as_json: bool,
    markdown: bool,
    out: Path | None,
) -> None:
    """Show what running a spec would do, and change nothing.

    Every task is one of: reuse (its result is there), run (it is new), rerun (with the setting that changed, old
    and new, and its line), later (known once another task is done). Each has its price: --all shows tokens, calls,
    memory and disk task by task. Exits 0 when there is nothing to do, 2 when there is work, and 1 when that costs more
    than the spec's limit, a local file of questions has mistakes, or Python beside the spec cannot be read.
    """
    from reodsl.cli.output import file_to_write, print_json, show, terminal_columns
    from reodsl.plan.render import PlanRequest, save_plan, to_json, to_markdown, to_text
    from reodsl.price.show import refusals
    from reodsl.run import prices_of

    if as_json and markdown:
        raise click.UsageError("--json and --markdown exclude each other")
    place = None if out is None else file_to_write(out, (Path(spec),))
    ready = prepare(spec, sets, amends, target, store_dir)
    plan = ready.plan()
    prices = prices_of(ready)
    if as_json:
        print_json(to_json(plan, prices))
    elif markdown:
        click.echo(to_markdown(plan, spec, everything, prices=prices))
    else:
        click.echo(to_text(plan, everything, prices=prices, columns=terminal_columns()))
    if place is not None:
        asked = PlanRequest(spec, str(ready.store.root), sets, amends, target)
        save_plan(place, plan, prices, asked)
    refused = (*wrong_files(ready, plan), *refusals(prices, (*plan.now, *plan.later), ready.spec))
    if refused:
        show(refused, ready.spec.sources)
        raise SystemExit(1)
    if plan.work:
        raise SystemExit(2)
