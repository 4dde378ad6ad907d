"""What a hub offers of a spec's models and data sets, said and, where that is wanted, fetched."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

import click

from reodsl.diagnostics import Problem
from reodsl.plan.verdict import Ready
from reodsl.share.fetch import Offer, Wanted, fetch, look_up, named_by


def say_offers(offers: Sequence[Offer], err: bool = False) -> None:
    """Write how large each is, and all together."""
    from humanize import naturalsize

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
    missing = [each for each in named_by(ready.spec) if not each.is_here(ready.keys.folder)]
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
