"""`reodsl push RUN ARM OWNER/NAME`: a trained model with its card, curves and spec to a hub."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from reodsl.cli import completing
from reodsl.cli.options import known_store_option
from reodsl.cli.place import existing_store


@click.command(
    short_help="Send a trained model to a hub, with card, curves and spec.",
    epilog="""\b
Examples:
  reodsl push quickstart reo_exp me/tiny-reo               the model of the study's one seed
  reodsl push quickstart reo_exp me/tiny-reo --seed 2      of several seeds, one
  reodsl push quickstart reo_exp me/tiny-reo --dry-run     shows the files and the card, and sends nothing
""",
)
@click.argument("run", shell_complete=completing.runs)
@click.argument("arm")
@click.argument("repo", metavar="OWNER/NAME")
@click.option("--seed", type=int, help="Which model, where the study has several seeds.")
@click.option("--private", is_flag=True, help="Make the repository private, where it is not there yet.")
@click.option("--license", metavar="ID", help="The licence that the card names, as in --license apache-2.0.")
@click.option("--message", metavar="TEXT", help="The commit's message.")
@click.option("--dry-run", is_flag=True, help="Show the files and the card, and send nothing.")
@known_store_option
def command(
    run: str,
    arm: str,
    repo: str,
    seed: int | None,
    private: bool,
    license: str | None,
    message: str | None,
    dry_run: bool,
    store_dir: Path | None,
) -> None:
    """Send the model of an arm to a hub, with a card, its curves and the spec.

    RUN is a study, or how a run's name starts; ARM is one of its arms. The card has accuracy, length and REG on every
    benchmark, the curve over token budgets, how to prompt the model, and the spec that made it. The token is that of
    `hf auth login`, or HF_TOKEN; HF_ENDPOINT names another hub.
    """
    from huggingface_hub.utils import disable_progress_bars  # type: ignore[attr-defined]
    from humanize import naturalsize

    import reodsl
    from reodsl.cli.output import show
    from reodsl.share import hub
    from reodsl.share.evaluated import gather
    from reodsl.store.runs import pick, records

    hub.require_name(repo)
    store = existing_store(store_dir)
    record = pick(records(store), run)
    shared = gather(store, record, (arm,))
    show(shared.findings)
    files = hub.repository(shared, hub.choose(shared, arm, seed), repo.partition("/")[2], license)
    if dry_run:
        for each in files:
            click.echo(f"{naturalsize(each.size, binary=True):>10}  {each.path}")
        (readme,) = (each.content for each in files if each.path == "README.md")
        click.echo()
        click.echo(bytes(readme).decode() if isinstance(readme, bytes) else "")
        return
    if not sys.stderr.isatty():
        disable_progress_bars()
    text = message or f"{arm} of {record.study}, by reodsl {reodsl.__version__}"
    click.echo(f"model: {hub.push(repo, files, text, private)}")
