"""`reodsl fetch SPEC`: get the models and data sets of a spec from their hub."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

import click
from humanize import naturalsize

from reodsl.cli import completing
from reodsl.cli.options import spec_options
from reodsl.cli.place import prepare
from reodsl.diagnostics import Problem
from reodsl.plan.verdict import Ready
from reodsl.share.fetch import Offer, Wanted, fetch, list_repositories, look_up


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
    ready = prepare(spec, sets, amends, target, store_dir)
    folder, wanted = ready.keys.folder, list_repositories(ready.spec)
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


def say_offers(offers: Sequence[Offer], err: bool = False) -> None:
    """Write how large each is, and all together."""
    for offer in offers:
        click.echo(f"{naturalsize(offer.size):>10}  {offer.wanted.repo}  {offer.commit[:12]}", err=err)
    click.echo(f"{naturalsize(sum(offer.size for offer in offers)):>10}  in all", err=err)


def tell_moved(here: Iterable[Wanted], folder: Path) -> list[Offer]:
    """Write which branches their hub has moved on since they were fetched, and return what it has now.

    A hub that cannot be asked is told of once: nothing is missing.
    """
    moved = []
    for wanted in here:
        stored = wanted.follows_branch(folder)
        if stored is None:
            continue
        try:
            offer = look_up(wanted)
        except Problem as refused:
            click.echo(f"cannot ask whether it moved: {refused.diagnostics[0].message}", err=True)
            break
        if offer.commit != stored.name:
            moved.append(offer)
            click.echo(
                f"{wanted.repo} has moved: {stored.name[:12]} is here, the hub has {offer.commit[:12]}. "
                f'`revision: "{stored.name}"` in `hub(...)` keeps this one, `reodsl fetch SPEC --update` gets that one.',
                err=True,
            )
    return moved


def fetch_missing(ready: Ready, allowed: bool) -> None:
    """Get what a run lacks, after saying how much it is: where that is `allowed`, or the terminal's user says so.

    Else nothing is fetched, and the run's own check tells what is missing. Raises as `look_up`, where it is allowed.
    """
    missing = [each for each in list_repositories(ready.spec) if not each.is_here(ready.keys.folder)]
    if not missing or not (allowed or (sys.stdin.isatty() and sys.stderr.isatty())):
        return
    try:
        offers = [look_up(each) for each in missing]
    except Problem:
        if allowed:
            raise
        return
    click.echo("Not on this machine yet:", err=True)
    say_offers(offers, err=True)
    if allowed or click.confirm("Fetch it now?", err=True):
        for offer in offers:
            click.echo(f"fetched {offer.wanted.repo}: {fetch(offer)}", err=True)
