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
  reodsl fetch specs/qwen3_4b_reo_exp.reo --update    also gets what has moved on since
""",
)
@click.argument("spec", shell_complete=completing.files)
@spec_options
@click.option("--dry-run", is_flag=True, help="Say what would be fetched, and fetch nothing.")
@click.option(
    "--update", is_flag=True, help="Also fetch branches that have moved on since they were fetched."
)
def command(
    spec: str,
    sets: tuple[str, ...],
    amends: tuple[str, ...],
    target: str | None,
    store_dir: Path | None,
    dry_run: bool,
    update: bool,
) -> None:
    """Get a spec's models and data sets from their hub.

    It takes weights, settings and tokenizers, and files with questions, and nothing else of a repository. What is on this
    machine already is left as it is; where the spec names no commit, it is told which branches have moved on. HF_HOME
    says where it goes, HF_ENDPOINT names another hub, and HF_TOKEN is the token for closed repositories. Exits 0 when
    everything is there.
    """
    from reodsl.cli.offers import say_offers, tell_moved
    from reodsl.share.fetch import fetch, look_up, named_by

    ready = prepare(spec, sets, amends, target, store_dir)
    folder, wanted = ready.keys.folder, named_by(ready.spec)
    offers = [look_up(each) for each in wanted if not each.is_here(folder)]
    moved = tell_moved([each for each in wanted if each.is_here(folder)], folder)
    offers += moved if update else []
    if not offers:
        click.echo("Nothing to fetch: every model and data set is here.")
        return
    say_offers(offers)
    if dry_run:
        return
    for offer in offers:
        click.echo(f"fetched {offer.wanted.repo}: {fetch(offer)}")
