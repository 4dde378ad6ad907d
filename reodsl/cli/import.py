"""`reodsl import FILES`: responses of any models, from the files of other tools, as one table."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

import click

from reodsl.cli.options import Place, assignments
from reodsl.cli.output import file_to_write, print_json
from reodsl.diagnostics import problem
from reodsl.diagnostics.excerpt import visible
from reodsl.numbers.responses import COLUMNS, Found, Import
from reodsl.plan.registry import load_registry

LEAST_DENSITY = 0.2
"""Characters for each token, of which texts have three and more: with fewer, most of the text is gone."""


class _Grouped(click.Command):
    """A command whose `--model` names the files before it: click keeps no order between files and options."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse the arguments, and keep in `ctx.obj` how many files each `--model` comes after."""
        ctx.obj = []
        for number, word in enumerate(args):
            if word == "--model" or word.startswith("--model="):
                before = self.make_parser(ctx).parse_args(args=args[:number])[0].get("files")
                ctx.obj.append(len(before) if isinstance(before, tuple) else 0)
        return super().parse_args(ctx, args)


@click.command(
    cls=_Grouped,
    short_help="Bring results of other tools as one table.",
    epilog="""\b
Examples:
  reodsl import log.eval -o theirs.parquet
  reodsl import base/*.jsonl --model base mine/*.jsonl --model mine --tokenizer Qwen/Qwen3-4B -o theirs.parquet
  reodsl import answers.csv --column question=problem_id --column correct=passed -o theirs.parquet
\b
FILES are logs of inspect (.eval, .json), details of lighteval (.parquet), samples of lm-eval, dumps of the Qwen2.5-Math
family, verl, AReaL and evalchemy, reviews and predictions of evalscope, or CSV, JSONL and Parquet with the columns model,
benchmark, question, sample, tokens, correct, and where there are any response, gold, finish and correct@512 (a forced
answer's). docs/IMPORT.md says what each gives.
""",
)
@click.argument("files", nargs=-1, required=True, type=click.Path(path_type=Path), metavar="FILES...")
@click.option(
    "--model", "models", multiple=True, metavar="NAME", help="The model of the files before it. Repeatable."
)
@click.option("--benchmark", metavar="NAME", help="The benchmark of all files. Default: what they say.")
@click.option(
    "--tokenizer",
    metavar="MODEL",
    help="Count tokens by this folder's or hub model's tokenizer where a file has none.",
)
@click.option(
    "--column",
    "columns",
    multiple=True,
    metavar="NAME=PATH",
    help="Where a column is in a row, as in --column tokens=usage.output_tokens. Repeatable.",
)
@click.option(
    "--right-from", type=float, metavar="SCORE", help="The least score that is right, if not all are 0 or 1."
)
@click.option("--common", is_flag=True, help="Keep the questions that all models have.")
@click.option("--ended", is_flag=True, help="Leave out forced answers.")
@click.option("--no-thinking", is_flag=True, help="Count texts without thinking: their model does not think.")
@click.option("--out", "-o", type=Place(), required=True, help="Write the table here.")
@click.option("--json", "as_json", is_flag=True, help="Print what was found of each model as JSON.")
@click.pass_context
def command(
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

    `reodsl reg` and `reodsl frontier` take it. All of it is written or nothing. A line for each model says what was found
    and which kind of curve it gives.
    """
    named: list[str | None] = [None] * len(files)
    # One name is that of all files, wherever it stands.
    starts = [0, *ctx.obj] if len(models) > 1 else [0]
    for number, model in enumerate(models):
        stop = len(files) if number == len(models) - 1 else starts[number + 1]
        named[starts[number] : stop] = [model] * (stop - starts[number])
    if len(models) > 1 and (ctx.obj[-1] < len(files) or len({*starts}) <= len(models)):
        raise problem(
            "E0116",
            f"{len(models)} models are named, and not each has files before it",
            help="write the files of a model and then its name: `a.jsonl --model a b.jsonl --model b`",
        )
    paths = assignments("--column", columns)
    for name in paths:
        if name not in COLUMNS:
            raise problem("E0116", f"there is no column `{name}`", help=f"name one of {', '.join(COLUMNS)}")
    if out.suffix.lower() != ".parquet":
        raise problem(
            "E0118",
            "nothing can be written here: a table of responses is Parquet",
            where=str(out),
            help=f"name it {out.with_suffix('.parquet')}",
        )
    place = file_to_write(out, files)
    place.parent.mkdir(parents=True, exist_ok=True)
    bring = load_registry().import_results
    if bring is None:
        raise problem(
            "E0964", "these runners import no results", help="take those of reodsl: unset REODSL_RUNNERS"
        )
    given = tuple(zip(files, named, strict=True))
    found = bring(
        Import(given, place, benchmark, paths, tokenizer, right_from, common, ended, not no_thinking)
    )
    if as_json:
        print_json({"out": str(out), "models": [asdict(each) | {"kind": each.kind} for each in found]})
        return
    width = max(len(visible(each.model)) for each in found)
    for each in found:
        click.echo(f"{visible(each.model):<{width}}  {_describe(each)}")
    click.echo(f"wrote {out}")


def _describe(found: Found) -> str:
    """Return a line of what was found, what was done to it, and what it gives."""
    from reodsl.report.formats import plural

    each = found.responses / found.questions
    parts = [
        ", ".join(found.form),
        plural(found.questions, "question") + (f" × {each:g}" if each != 1 else ""),
    ]
    parts += [f"tokens of {found.counted} counted from text"] if found.counted else []
    parts += [f"{found.graded} graded here"] if found.graded else []
    parts += [f"{found.unfinished} unfinished"] if found.unfinished else []
    if found.density is not None and found.density < LEAST_DENSITY:
        parts.append("texts much shorter than their tokens: logged without the reasoning?")
    return "  ".join([*parts, f"gives: {found.kind}"])
