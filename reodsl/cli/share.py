"""Commands that exchange data: `fetch` downloads from a hub, `import` and `export` convert results of other tools."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import click
from humanize import naturalsize

from reodsl.cli.options import (
    PathOption,
    assignments,
    complete_files,
    complete_runs,
    existing_store,
    known_store_option,
    spec_options,
)
from reodsl.cli.output import file_to_write, folder_to_fill, print_json, show
from reodsl.cli.prepare import prepare
from reodsl.diagnostics import Problem, plural, problem
from reodsl.diagnostics.render import to_json, visible
from reodsl.numbers.responses import COLUMNS, ImportCounts, ResultFiles
from reodsl.plan.registry import load_registry
from reodsl.plan.verdict import Ready
from reodsl.store.runs import pick, records

if TYPE_CHECKING:
    from reodsl.share.fetch import Download, HubRepo


@click.command(
    epilog="""\b
Examples:
  reodsl fetch specs/qwen3_4b_reo_exp.reo --dry-run   lists what is missing and its size
  reodsl fetch specs/qwen3_4b_reo_exp.reo             downloads it, and resumes an interrupted download
  reodsl fetch specs/qwen3_4b_reo_exp.reo --update    also downloads newer commits
"""
)
@click.argument("spec", shell_complete=complete_files)
@spec_options
@click.option("--dry-run", is_flag=True, help="Print what would be fetched, and fetch nothing.")
@click.option("--update", is_flag=True, help="Also fetch newer commits of branches that were fetched before.")
def fetch_command(
    spec: str,
    sets: tuple[str, ...],
    amends: tuple[str, ...],
    target: str | None,
    store_dir: Path | None,
    dry_run: bool,
    update: bool,
) -> None:
    """Download a spec's models and data sets from their hub.

    Only weights, settings, tokenizers and files with questions are downloaded. Files that are here already are kept; if the
    spec names no commit, branches with newer commits on the hub are listed. HF_HOME is the folder for downloads, HF_ENDPOINT
    another hub, and HF_TOKEN the token for closed repositories. Exits 0 if everything is here.

    Args:
        spec: Path of the spec file.
        sets: Texts `PARAM=VALUE` of `--set`.
        amends: Texts `SETTING=VALUE` of `--amend`.
        target: Name of the study or experiment to use, or None if the spec declares only one.
        store_dir: Folder of the store, or None to look for it.
        dry_run: Whether to print what would be downloaded, without downloading it.
        update: Whether to download newer commits of branches that are here already.
    """
    from reodsl.share.fetch import fetch, list_repositories, look_up

    ready = prepare(spec, sets, amends, target, store_dir)
    folder, repos = ready.keys.folder, list_repositories(ready.spec)
    downloads = [look_up(repo) for repo in repos if not repo.is_here(folder)]
    newer = tell_moved([repo for repo in repos if repo.is_here(folder)], folder)
    downloads += newer if update else []
    if not downloads:
        click.echo("Nothing to fetch: every model and data set is here.")
        return
    say_offers(downloads)
    if dry_run:
        return
    for download in downloads:
        click.echo(f"fetched {download.repository.repo}: {fetch(download)}")


def say_offers(downloads: Sequence[Download], err: bool = False) -> None:
    """Print the size, repository and commit of each download that is offered to the user, and the total size.

    Args:
        downloads: The downloads.
        err: Whether to print to stderr instead of stdout.
    """
    for item in downloads:
        click.echo(f"{naturalsize(item.size):>10}  {item.repository.repo}  {item.commit[:12]}", err=err)
    click.echo(f"{naturalsize(sum(item.size for item in downloads)):>10}  total", err=err)


def tell_moved(repos: Iterable[HubRepo], folder: Path) -> list[Download]:
    """Print which repositories have newer commits on the hub than on this machine, and return downloads of these commits.

    Repositories for which the spec names a commit are skipped.

    If the hub does not answer, a line says so, and no further repository is looked up.

    Args:
        repos: Repositories that are on this machine.
        folder: The spec's folder, where relative paths start.
    """
    from reodsl.share.fetch import look_up

    downloads = []
    for repo in repos:
        stored = repo.follows_branch(folder)
        if stored is None:
            continue
        try:
            download = look_up(repo)
        except Problem as refused:
            click.echo(f"cannot check for newer commits: {refused.diagnostics[0].message}", err=True)
            break
        if download.commit != stored.name:
            downloads.append(download)
            click.echo(
                f"{repo.repo} has a newer commit: {stored.name[:12]} is here, the hub has {download.commit[:12]}. "
                f'`revision: "{stored.name}"` in `hub(...)` keeps the old, `reodsl fetch SPEC --update` gets the new.',
                err=True,
            )
    return downloads


def fetch_missing(ready: Ready, is_agreed: bool) -> None:
    """Download missing models and data sets of a spec, after printing their size.

    If the user does not agree, nothing is downloaded, and the check before the run reports what is missing. Nothing is
    asked if there is no terminal.

    Args:
        ready: The compiled spec.
        is_agreed: Whether the user agreed by --fetch; otherwise a user at a terminal is asked.

    Raises:
        Problem: E0850 if the hub refuses a repository, and `is_agreed`.
    """
    from reodsl.share.fetch import fetch, list_repositories, look_up

    missing = [repo for repo in list_repositories(ready.spec) if not repo.is_here(ready.keys.folder)]
    if not missing or not (is_agreed or (sys.stdin.isatty() and sys.stderr.isatty())):
        return
    try:
        downloads = [look_up(repo) for repo in missing]
    except Problem:
        if is_agreed:
            raise
        return
    click.echo("Not on this machine yet:", err=True)
    say_offers(downloads, err=True)
    if is_agreed or click.confirm("Fetch it now?", err=True):
        for download in downloads:
            click.echo(f"fetched {download.repository.repo}: {fetch(download)}", err=True)


@click.command(
    short_help="Write a run's evaluations for inspect_ai.",
    epilog="""\b
Examples:
  reodsl export quickstart --to inspect              exports/inspect, for: inspect view --log-dir exports/inspect
  reodsl export quickstart --to inspect --arm reo_exp --out logs
""",
)
@click.argument("run", shell_complete=complete_runs)
@click.option("--to", required=True, type=click.Choice(["inspect"]), help="The format of the files.")
@click.option(
    "--arm", "arms", multiple=True, metavar="ARM", help="Only this arm. Repeatable. Default: every arm."
)
@known_store_option
@click.option("--out", type=PathOption(), metavar="DIR", help="Where to put them. Default: exports/inspect.")
@click.option("--json", "as_json", is_flag=True, help="Print the files as JSON.")
def export_command(
    run: str, to: str, arms: tuple[str, ...], store_dir: Path | None, out: Path | None, as_json: bool
) -> None:
    """Write a run's evaluations as logs of inspect_ai.

    RUN is a study, or the start of a run's name. The files have every response with its answer and its forced answers at
    token budgets; accuracy by budget and REG are in their metadata. Evaluations that are not finished are reported.

    Args:
        run: Name of a study, or the start of a run's name.
        to: Form of the files; only `inspect` exists.
        arms: Names of the arms to export; empty for all.
        store_dir: Folder of the store, or None to look for it.
        out: Folder for the output, or None for the default folder.
        as_json: Whether to print JSON instead of text.
    """
    from reodsl.share.evaluated import export, gather

    store = existing_store(store_dir)
    record = pick(records(store), run)
    folder = folder_to_fill(out or Path("exports") / to)
    evaluations = gather(store, record, arms)
    files = export(evaluations, folder)
    show(evaluations.findings)
    if as_json:
        print_json(
            {
                "run": record.name,
                "study": record.study,
                "to": to,
                "folder": str(folder),
                "files": [str(path.relative_to(folder)) for path in files],
                "diagnostics": to_json(evaluations.findings),
            }
        )
    else:
        click.echo(f"{folder}: {len(files)} files")


LEAST_DENSITY = 0.2
"""Smallest plausible number of characters for each token; texts have three or more unless most of the text was cut."""


class _FilesByModel(click.Command):
    """The command `import`, whose `--model` names the model of the files before it.

    Click itself does not keep the order of files and options.
    """

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse the arguments, and store in `ctx.obj` the number of files before each `--model`."""
        ctx.obj = []
        for number, word in enumerate(args):
            if word == "--model" or word.startswith("--model="):
                before = self.make_parser(ctx).parse_args(args=args[:number])[0].get("files")
                ctx.obj.append(len(before) if isinstance(before, tuple) else 0)
        return super().parse_args(ctx, args)


@click.command(
    cls=_FilesByModel,
    short_help="Bring results of other tools as one table.",
    epilog="""\b
Examples:
  reodsl import log.eval -o theirs.parquet
  reodsl import base/*.jsonl --model base mine/*.jsonl --model mine --tokenizer Qwen/Qwen3-4B -o theirs.parquet
  reodsl import answers.csv --column question=problem_id --column correct=passed -o theirs.parquet

FILES are logs of inspect (.eval, .json), details of lighteval (.parquet), samples of lm-eval, dumps of the Qwen2.5-Math
family, verl and AReaL, or CSV, JSONL and Parquet with the columns model, benchmark, question, sample, tokens, correct, and
where there are any response, gold, finish and correct@512 (a forced answer's). `reodsl explain evaluate` has the rest.
""",
)
@click.argument("files", nargs=-1, required=True, type=click.Path(path_type=Path), metavar="FILES...")
@click.option(
    "--model",
    "models",
    multiple=True,
    metavar="NAME",
    help="The model of the files before this option. Repeatable.",
)
@click.option(
    "--benchmark", metavar="NAME", help="The benchmark of all files. Default: its name in the files."
)
@click.option(
    "--tokenizer",
    metavar="MODEL",
    help="Count tokens by this folder's or hub model's tokenizer if a file has no numbers of tokens.",
)
@click.option(
    "--column",
    "columns",
    multiple=True,
    metavar="NAME=PATH",
    help="Path of a column's value in a row, as in --column tokens=usage.output_tokens. Repeatable.",
)
@click.option(
    "--right-from", type=float, metavar="SCORE", help="The least score that is right, if not all are 0 or 1."
)
@click.option("--common", is_flag=True, help="Keep the questions that all models have.")
@click.option("--ended", is_flag=True, help="Leave out forced answers.")
@click.option("--no-thinking", is_flag=True, help="Count texts without thinking: their model does not think.")
@click.option("--out", "-o", type=PathOption(), required=True, help="Write the table here.")
@click.option("--json", "as_json", is_flag=True, help="Print the counts of each model as JSON.")
@click.pass_context
def import_command(
    ctx: click.Context,
    files: tuple[Path, ...],
    models: tuple[str, ...],
    benchmark: str | None,
    tokenizer: str | None,
    columns: tuple[str, ...],
    right_from: float | None,
    common: bool,
    ended: bool,
    no_thinking: bool,
    out: Path,
    as_json: bool,
) -> None:
    """Write responses from files of other tools as one table.

    `reodsl reg` and `reodsl frontier` read the table. It is written completely or not at all. A line for each model has its
    counts of questions and responses, and the kind of curve that the responses give.

    Args:
        ctx: Click's context, whose `obj` holds the number of files before each `--model`.
        files: Result files of other tools.
        models: Names of models, each for the files before its `--model`.
        benchmark: Benchmark of all files, or None for the names in the files.
        tokenizer: Folder or hub name of the tokenizer that counts tokens, or None.
        columns: Texts `NAME=PATH` of `--column`: the column of the table, and where a row of a file holds its value.
        right_from: Least score of a right answer; None if all scores are 0 or 1.
        common: Whether to keep only questions that all models have.
        ended: Whether to leave out forced answers.
        no_thinking: Whether to count texts without thinking.
        out: Parquet file to write.
        as_json: Whether to print JSON instead of text.
    """
    model_by_file: list[str | None] = [None] * len(files)
    # A single name is the name of all files, at any position.
    starts = [0, *ctx.obj] if len(models) > 1 else [0]
    for number, model in enumerate(models):
        stop = len(files) if number == len(models) - 1 else starts[number + 1]
        model_by_file[starts[number] : stop] = [model] * (stop - starts[number])
    if len(models) > 1 and (ctx.obj[-1] < len(files) or len({*starts}) <= len(models)):
        raise problem(
            "E0114",
            f"{len(models)} models are named, but not every model has files before it",
            help="write the files of a model and then its name: `a.jsonl --model a b.jsonl --model b`",
        )
    paths = assignments("--column", columns)
    for name in paths:
        if name not in COLUMNS:
            raise problem("E0114", f"there is no column `{name}`", help=f"name one of {', '.join(COLUMNS)}")
    if out.suffix.lower() != ".parquet":
        raise problem(
            "E0118",
            "a table of responses is a Parquet file",
            where=str(out),
            help=f"name it {out.with_suffix('.parquet')}",
        )
    target = file_to_write(out, files)
    target.parent.mkdir(parents=True, exist_ok=True)
    import_results = load_registry().import_results
    if import_results is None:
        raise problem(
            "E0121", "these runners import no results", help="use the runners of reodsl: unset REODSL_RUNNERS"
        )
    sources = tuple(zip(files, model_by_file, strict=True))
    counts = import_results(
        ResultFiles(sources, target, benchmark, paths, tokenizer, right_from, common, ended, not no_thinking)
    )
    if as_json:
        print_json({"out": str(out), "models": [asdict(row) | {"kind": row.kind} for row in counts]})
        return
    width = max(len(visible(row.model)) for row in counts)
    for row in counts:
        click.echo(f"{visible(row.model):<{width}}  {_describe_counts(row)}")
    click.echo(f"wrote {out}")


def _describe_counts(row: ImportCounts) -> str:
    """Return the import's counts for a model as text, such as the forms of its files, its questions and kind of curve.

    A model whose texts have less than `LEAST_DENSITY` characters for each token gets a warning in the text.
    """
    samples = row.responses / row.questions
    is_abridged = row.density is not None and row.density < LEAST_DENSITY
    phrases = (
        ", ".join(row.form),
        plural(row.questions, "question") + (f" × {samples:g}" if samples != 1 else ""),
        f"tokens of {row.counted} counted from text" if row.counted else "",
        f"{row.graded} graded here" if row.graded else "",
        f"{row.unfinished} unfinished" if row.unfinished else "",
        "texts much shorter than their tokens: logged without the reasoning?" if is_abridged else "",
        f"gives: {row.kind}",
    )
    return "  ".join(filter(None, phrases))
