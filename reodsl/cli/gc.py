"""`reodsl gc`: list what no recent run needs, and remove it when told to."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from reodsl.cli.options import known_store_option
from reodsl.cli.place import existing_store


@click.command(
    short_help="Remove results that no recent run of any study needs.",
    epilog="""\b
Examples:
  reodsl gc --dry-run            what would go, and how much space that frees
  reodsl gc                      ask, then remove it
  reodsl gc --keep 3 --yes       keep what the last three runs of each study used
""",
)
@known_store_option
@click.option(
    "--keep",
    type=click.IntRange(min=1),
    default=1,
    show_default=True,
    help="Finished runs to keep of each study.",
)
@click.option("--dry-run", is_flag=True, help="Only list; exits 2 when there is something to remove.")
@click.option("--yes", "-y", is_flag=True, help="Remove without asking.")
@click.option("--json", "as_json", is_flag=True, help="Print the list as JSON.")
def command(store_dir: Path | None, keep: int, dry_run: bool, yes: bool, as_json: bool) -> None:
    """Remove results that no recent run of any study needs, and what killed runs left behind.

    It keeps what the last finished run of each study used, and what runs have made since, whether they finished or not.

    A result that is removed can be made again by running its spec again.
    """
    from humanize import naturalsize

    from reodsl.cli.output import print_json
    from reodsl.store.sweep import find_garbage, sweep

    store = existing_store(store_dir)
    items = find_garbage(store, keep)
    total = sum(item.bytes for item in items)
    if as_json:
        listed = [{"kind": item.kind, "name": item.name, "bytes": item.bytes} for item in items]
        print_json({"store": str(store.root), "items": listed, "bytes": total})
    else:
        for kind in ("result", "leftover", "record"):
            of_kind = [item for item in items if item.kind == kind]
            if of_kind:
                kinds = kind if len(of_kind) == 1 else f"{kind}s"
                click.echo(
                    f"{len(of_kind):6} {kinds}  {naturalsize(sum(item.bytes for item in of_kind), binary=True)}"
                )
        if not items:
            click.echo("Nothing to remove.")
    if not items:
        return
    if dry_run:
        raise SystemExit(2)
    if not yes:
        if not sys.stdin.isatty():
            raise click.UsageError("removing needs a yes: give --yes, or --dry-run to only list")
        click.confirm(f"Remove them from {store.root}?", abort=True, err=True)
    freed = sweep(store, items)
    if not as_json:
        click.echo(f"{naturalsize(freed, binary=True)} freed")
