"""`reodsl fetch SPEC`: get the models and data sets of a spec from their hub."""

from __future__ import annotations

from pathlib import Path

import click

from reodsl.cli import completing
from reodsl.cli.options import spec_options
from reodsl.cli.place import prepare


@click.command(
    epilog="""\b
Examples:
  reodsl fetch specs/qwen3_4b_reo_exp.reo --dry-run   says what is missing and how large it is
  reodsl fetch specs/qwen3_4b_reo_exp.reo             gets it, and goes on where it was cut off
""",
)
@click.argument("spec", shell_complete=completing.files)
@spec_options
@click.option("--dry-run", is_flag=True, help="Say what would be fetched, and fetch nothing.")
def command(
    spec: str,
    sets: tuple[str, ...],
    amends: tuple[str, ...],
    target: str | None,
    store_dir: Path | None,
    dry_run: bool,
) -> None:
    """Get a spec's models and data sets from their hub.

    It takes weights, settings and tokenizers, and files with questions, and nothing else of a repository. What is on this
    machine already is left as it is. HF_HOME says where it goes, HF_ENDPOINT names another hub, and HF_TOKEN is the token
    for closed repositories. Exits 0 when everything is there.
    """
    from humanize import naturalsize

    from reodsl.ir.base import values_of
    from reodsl.ir.data import HubData
    from reodsl.ir.model import Hub
    from reodsl.share.fetch import Wanted, fetch, look_up

    ready = prepare(spec, sets, amends, target, store_dir)
    folder = ready.keys.folder
    asked = [Wanted("models", each.repo, each.revision) for each in values_of(ready.spec.study, Hub)]
    asked += [Wanted("datasets", each.repo, each.revision) for each in values_of(ready.spec.study, HubData)]
    missing = [each for each in dict.fromkeys(asked) if not each.is_here(folder)]
    if not missing:
        click.echo("Nothing to fetch: every model and data set is here.")
        return
    offers = [look_up(each) for each in missing]
    for offer in offers:
        click.echo(f"{naturalsize(offer.size):>10}  {offer.wanted.repo}  {offer.commit[:12]}")
    click.echo(f"{naturalsize(sum(offer.size for offer in offers)):>10}  in all")
    if dry_run:
        return
    for offer in offers:
        click.echo(f"fetched {offer.wanted.repo}: {fetch(offer)}")
